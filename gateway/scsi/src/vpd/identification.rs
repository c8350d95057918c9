//! Unit serial number (80h) and device identification (83h) (SPC-4, 7.8.15 and 7.8.6).

use crate::inquiry::VENDOR;
use crate::unit::{LogicalUnit, Target};

/// Most characters of a serial number: keeps the page within the one-byte allocation length of old hosts.
const MAX_SERIAL: usize = 252;
/// Most bytes in one designator.
const MAX_DESIGNATOR: usize = 255;

/// PROTOCOL IDENTIFIER of iSCSI, in the high nibble of a designator's first byte.
const ISCSI: u8 = 0x50;
/// PROTOCOL IDENTIFIER VALID.
const PIV: u8 = 0x80;

/// CODE SET.
#[derive(Clone, Copy)]
enum CodeSet {
    Binary = 0x1,
    Ascii = 0x2,
    Utf8 = 0x3,
}

/// ASSOCIATION, shifted to its place in a designator's second byte.
#[derive(Clone, Copy)]
enum Association {
    LogicalUnit = 0x00,
    TargetPort = 0x10,
    TargetDevice = 0x20,
}

/// DESIGNATOR TYPE (SPC-4, 7.8.6).
#[derive(Clone, Copy)]
enum Kind {
    T10VendorId = 0x1,
    Naa = 0x3,
    RelativeTargetPort = 0x4,
    TargetPortGroup = 0x5,
    ScsiName = 0x8,
}

pub(super) fn unit_serial_number(unit: &LogicalUnit) -> Vec<u8> {
    serial(unit).collect()
}

/// First what names the logical unit, the best identifier in front; then the port and the device.
pub(super) fn device_identification(unit: Option<&LogicalUnit>, target: &Target) -> Vec<u8> {
    let mut page = Vec::new();
    if let Some(unit) = unit {
        put(&mut page, CodeSet::Binary, Association::LogicalUnit, Kind::Naa, &unit.naa.to_be_bytes());
        let vendor_id: Vec<u8> = VENDOR.iter().copied().chain(serial(unit)).collect();
        put(&mut page, CodeSet::Ascii, Association::LogicalUnit, Kind::T10VendorId, &vendor_id);
        // Lower case, as Linux writes the same identifier when it makes a name of the binary one.
        let name = scsi_name(&format!("naa.{:016x}", unit.naa));
        put(&mut page, CodeSet::Utf8, Association::LogicalUnit, Kind::ScsiName, &name);
    }
    let port = u32::from(target.relative_port).to_be_bytes();
    put(&mut page, CodeSet::Binary, Association::TargetPort, Kind::RelativeTargetPort, &port);
    let group = u32::from(target.port_group).to_be_bytes();
    put(&mut page, CodeSet::Binary, Association::TargetPort, Kind::TargetPortGroup, &group);
    // RFC 7143, 4.4.3: the SCSI name of an iSCSI target port.
    let port_name = scsi_name(&format!("{},t,0x{:04x}", target.name, target.port_group));
    put(&mut page, CodeSet::Utf8, Association::TargetPort, Kind::ScsiName, &port_name);
    let device_name = scsi_name(&target.name);
    put(&mut page, CodeSet::Utf8, Association::TargetDevice, Kind::ScsiName, &device_name);
    page
}

/// The serial number in the printable characters that the field may have (SPC-4, 4.4.1).
fn serial(unit: &LogicalUnit) -> impl Iterator<Item = u8> {
    let printable = |byte: u8| {
        if byte == b' ' || byte.is_ascii_graphic() { byte } else { b'?' }
    };
    unit.serial.bytes().take(MAX_SERIAL).map(printable)
}

/// A SCSI name string (SPC-4, 7.8.6): ends with at least one null and fills a multiple of four bytes.
fn scsi_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Appends a designation descriptor. One that is too long for its length field is left out: half a name names
/// something else.
fn put(page: &mut Vec<u8>, code_set: CodeSet, association: Association, kind: Kind, designator: &[u8]) {
    let Ok(length) = u8::try_from(designator.len().min(MAX_DESIGNATOR + 1)) else {
        return;
    };
    let (protocol, valid) = match association {
        Association::LogicalUnit => (0, 0),
        Association::TargetPort | Association::TargetDevice => (ISCSI, PIV),
    };
    page.extend_from_slice(&[protocol | code_set as u8, valid | association as u8 | kind as u8, 0, length]);
    page.extend_from_slice(designator);
}
