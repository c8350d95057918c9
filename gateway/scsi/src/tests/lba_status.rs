//! GET LBA STATUS (SBC-3, 5.4).

use super::*;

fn cdb(lba: u64, allocation_length: u32) -> Vec<u8> {
    let mut cdb = vec![0x9e, 0x12];
    cdb.extend_from_slice(&lba.to_be_bytes());
    cdb.extend_from_slice(&allocation_length.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    cdb
}

#[test]
fn status_is_one_descriptor_from_the_block_to_the_end() {
    let unit = unit_512();
    let blocks = u32::try_from(unit.blocks).unwrap();
    let data = Host::with(unit).data(&cdb(8, 24));
    assert_eq!(data[..8], [0, 0, 0, 20, 0, 0, 0, 0]);
    assert_eq!(data[8..16], 8_u64.to_be_bytes());
    assert_eq!(data[16..20], (blocks - 8).to_be_bytes());
    assert_eq!(data[20..], [0; 4]);
}

#[test]
fn status_is_cut_to_the_allocation_length() {
    assert_eq!(Host::with(unit_512()).data(&cdb(0, 7)).len(), 7);
}
