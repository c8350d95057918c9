//! What Linux sends to a new iSCSI disk: the scan of the target, the vital product data that is kept for sysfs, and
//! the disk driver's look at the disk. Reasons name the functions of drivers/scsi that send the command; the answers
//! are from the standards.

use super::*;

/// CDB, expected Data-In, reason.
type Row = (&'static str, Vec<u8>, &'static str);

fn standard_inquiry() -> Vec<u8> {
    let mut data = hex("00 00 06 12 5b 00 00 02");
    data.extend_from_slice(b"HOLDFASTVIRTUAL-DISK    0001");
    data.resize(58, 0);
    data.extend(hex("00a0 0460 04c0 0960"));
    padded(data, 96)
}

fn rows() -> Vec<Row> {
    vec![
        ("12 00 00 00 24 00", standard_inquiry()[..36].to_vec(), "scsi_probe_lun: 36 bytes that any device can give"),
        ("12 00 00 00 60 00", standard_inquiry(), "scsi_probe_lun: again with additional length + 5"),
        (
            "a0 00 00 00 00 00 00 00 10 00 00 00",
            hex("00000008 00000000 0000000000000000"),
            "scsi_report_lun_scan: which units are there",
        ),
        ("12 01 00 00 04 00", hex("00 00 0007"), "scsi_get_vpd_size: how long is the list of pages"),
        ("12 01 00 00 ff 00", hex("00 00 0007 00 80 83 86 b0 b1 b2"), "scsi_attach_vpd: which pages are there"),
        ("12 01 80 00 ff 00", [hex("00 80 0006"), b"disk-1".to_vec()].concat(), "scsi_attach_vpd: serial number"),
        (
            "12 01 83 00 ff 00",
            [
                hex("00 83 009a"),
                hex("01 03 00 08 3123456789abcdef"),
                hex("02 01 00 0e"),
                b"HOLDFASTdisk-1".to_vec(),
                hex("03 08 00 18"),
                b"naa.3123456789abcdef\0\0\0\0".to_vec(),
                hex("51 94 00 04 00000001"),
                hex("51 95 00 04 00000001"),
                hex("53 98 00 28"),
                b"iqn.2026-11.io.holdfast:disk0,t,0x0001\0\0".to_vec(),
                hex("53 a8 00 20"),
                b"iqn.2026-11.io.holdfast:disk0\0\0\0".to_vec(),
            ]
            .concat(),
            "scsi_attach_vpd: wwid, and the identifiers that multipath compares",
        ),
        ("00 00 00 00 00 00", vec![], "sd_spinup_disk"),
        (
            "9e 10 0000000000000000 00000020 00 00",
            padded(hex("00000000001fffff 00000200 00 03 c0 00"), 32),
            "read_capacity_16: first for SPC-3 and later",
        ),
        (
            "12 01 b0 00 40 00",
            padded(
                hex("00 b0 003c 00 00 0008 00004000 00000800 00000000 00100000 00000100 00000008 80000000
                     0000000000008000"),
                64,
            ),
            "sd_read_block_limits",
        ),
        ("12 01 b1 00 40 00", padded(hex("00 b1 003c 0001 00 00 02"), 64), "sd_read_block_characteristics"),
        ("12 01 b2 00 08 00", hex("00 b2 0004 00 e4 02 00"), "sd_read_block_provisioning"),
        ("1a 00 3f 00 04 00", hex("43 00 10 08"), "sd_read_write_protect"),
        ("1a 00 08 00 04 00", hex("1f 00 10 08"), "sd_read_cache_type: header"),
        (
            "1a 00 08 00 20 00",
            padded(hex("1f 00 10 08 00200000 00000200 08 12 00"), 32),
            "sd_read_cache_type: page; WCE=0, DPOFUA=1",
        ),
        (
            "a3 0c 01 12 0000 00000200 00 00",
            hex("00 03 0006 12 01 ff ff ff 00"),
            "sd_read_write_same: does the command work at all",
        ),
        (
            "a3 0c 01 93 0000 00000200 00 00",
            hex("00 03 0010 93 09 ffffffffffffffff ffffffff 1f 00"),
            "sd_read_write_same: WRITE SAME(16)",
        ),
        (
            "a3 0c 01 41 0000 00000200 00 00",
            hex("00 03 000a 41 08 ffffffff 1f ffff 00"),
            "sd_read_write_same: WRITE SAME(10)",
        ),
        (
            "a3 0c 01 85 0000 00000200 00 00",
            hex("00 01 0000"),
            "sd_read_write_same: ATA PASS-THROUGH(16) would mean SATA behind a translation",
        ),
    ]
}

#[test]
fn every_answer_of_the_probe_is_what_linux_reads() {
    let mut host = Host::with(unit_512());
    for (cdb, expected, reason) in rows() {
        assert_eq!(hex_of(&host.data(&hex(cdb))), hex_of(&expected), "{cdb}: {reason}");
    }
}

#[test]
fn a_disk_of_4096_byte_blocks_has_no_smaller_logical_blocks() {
    let mut host = Host::with(unit_4096());
    let capacity = host.data(&hex("9e 10 0000000000000000 00000020 00 00"));
    assert_eq!(capacity, padded(hex("000000000003ffff 00001000 00 00 c0 00"), 32));
    let limits = host.data(&hex("12 01 b0 00 40 00"));
    let expected = "00 b0 003c 00 00 0001 00000800 00000100 00000000 00100000 00000100 00000001 80000000
                    0000000000001000";
    assert_eq!(hex_of(&limits), hex_of(&padded(hex(expected), 64)));
}

#[test]
fn the_first_command_after_login_reports_power_on_and_the_retry_works() {
    let target = target([(0, unit_512())]);
    let mut nexus = new_nexus();
    let mut run = |cdb: &[u8]| prepare(&Request { lun: LUN_0, cdb, expected_data_out_bytes: 0 }, &mut nexus, &target);
    assert!(matches!(run(&hex("12 00 00 00 24 00")), Plan::Respond(Response { status: Status::Good, .. })));
    assert_eq!(codes(sense_of(run(&[0; 16]))), (0x6, 0x29, 0x00));
    assert_eq!(run(&[0; 16]), Plan::Respond(Response::good()));
}

/// Sixteen bytes on a line, so that a difference shows where it is.
fn hex_of(bytes: &[u8]) -> Vec<String> {
    bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x} ")).collect()).collect()
}
