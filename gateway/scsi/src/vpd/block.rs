//! Block limits (B0h), block device characteristics (B1h) and logical block provisioning (B2h) of SBC-3.

use crate::unit::LogicalUnit;

/// PAGE LENGTH of B0h and B1h that the standard gives.
const PAGE_BYTES: usize = 0x3c;

/// Lengths are in logical blocks.
///
/// ```text
/// byte 4       WSNZ (0)                          byte 20..23  maximum unmap LBA count
///      5       maximum compare and write length       24..27  maximum unmap block descriptor count
///      6, 7    optimal granularity                    28..31  optimal unmap granularity
///      8..11   maximum transfer length                32..35  UGAVALID (31), unmap granularity alignment
///     12..15   optimal transfer length                36..43  maximum write same length
///     16..19   maximum prefetch length                44..63  atomic writes
/// ```
pub(super) fn block_limits(unit: &LogicalUnit) -> Vec<u8> {
    let limits = &unit.limits;
    let blocks = |bytes: u32| unit.block_size.blocks_in(bytes);
    let granularity = u16::try_from(blocks(limits.optimal_granularity_bytes)).unwrap_or(u16::MAX);
    let (max_unmap_blocks, max_unmap_descriptors, unmap_granularity) = if unit.thin {
        (limits.max_unmap_blocks, u32::from(limits.max_unmap_descriptors), blocks(limits.unmap_granularity_bytes))
    } else {
        (0, 0, 0)
    };
    let mut body = vec![0, 0];
    body.extend_from_slice(&granularity.to_be_bytes());
    body.extend_from_slice(&unit.max_transfer_blocks().to_be_bytes());
    body.extend_from_slice(&blocks(limits.optimal_transfer_bytes).to_be_bytes());
    body.extend_from_slice(&0_u32.to_be_bytes());
    body.extend_from_slice(&max_unmap_blocks.to_be_bytes());
    body.extend_from_slice(&max_unmap_descriptors.to_be_bytes());
    body.extend_from_slice(&unmap_granularity.to_be_bytes());
    let alignment_valid = if unit.thin { 1_u32 << 31 } else { 0 };
    body.extend_from_slice(&alignment_valid.to_be_bytes());
    body.extend_from_slice(&unit.max_write_same_blocks().to_be_bytes());
    body.resize(PAGE_BYTES, 0);
    body
}

/// A medium that does not rotate. FUAB: FUA means what SBC-3 says.
pub(super) fn block_device_characteristics(_unit: &LogicalUnit) -> Vec<u8> {
    let mut body = vec![0x00, 0x01, 0, 0, 0x02];
    body.resize(PAGE_BYTES, 0);
    body
}

/// LBPU (7), LBPWS (6), LBPWS10 (5), LBPRZ (2); provisioning type 2: thin, 0: fully provisioned.
pub(super) fn logical_block_provisioning(unit: &LogicalUnit) -> Vec<u8> {
    if unit.thin { vec![0, 0xe4, 0x02, 0] } else { vec![0, 0, 0, 0] }
}
