//! MODE SENSE (6) and (10) (SPC-4, 6.11 and 6.12). The pages are in `pages.rs`.

mod pages;

use crate::prepare::{Plan, UnitCall};
use crate::sense::{AdditionalSense, Sense};
use crate::unit::LogicalUnit;
use pages::{Page, Values};

/// Page code for all pages.
const ALL_PAGES: u8 = 0x3f;
/// Subpage code for all subpages.
const ALL_SUBPAGES: u8 = 0xff;

/// WP and DPOFUA of the DEVICE-SPECIFIC PARAMETER (SBC-3, mode parameter header).
const WRITE_PROTECT: u8 = 0x80;
const DPOFUA: u8 = 0x10;

pub(crate) fn mode_sense_6(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let pages = selected_pages(call)?;
    let descriptor = if call.cdb.bit(1, 3) { Vec::new() } else { short_descriptor(call.unit) };
    // Both lengths are far below 256: one descriptor, and pages that are a few dozen bytes altogether.
    let length = u8::try_from(3 + descriptor.len() + pages.len()).unwrap_or(u8::MAX);
    let descriptor_length = u8::try_from(descriptor.len()).unwrap_or(u8::MAX);
    let mut data = vec![length, 0, device_specific(call.unit), descriptor_length];
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(&pages);
    Ok(Plan::data_in(data, u32::from(call.cdb.u8(4))))
}

pub(crate) fn mode_sense_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let pages = selected_pages(call)?;
    let long_lba = call.cdb.bit(1, 4);
    let descriptor = match (call.cdb.bit(1, 3), long_lba) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(call.unit),
        (false, true) => long_descriptor(call.unit),
    };
    let length = u16::try_from(6 + descriptor.len() + pages.len()).unwrap_or(u16::MAX);
    let descriptor_length = u16::try_from(descriptor.len()).unwrap_or(u16::MAX);
    let mut data = Vec::with_capacity(8 + descriptor.len() + pages.len());
    data.extend_from_slice(&length.to_be_bytes());
    // LONGLBA tells the kind of descriptor that follows, so it is set only where one does.
    let long_descriptor_follows = long_lba && !descriptor.is_empty();
    data.extend_from_slice(&[0, device_specific(call.unit), u8::from(long_descriptor_follows), 0]);
    data.extend_from_slice(&descriptor_length.to_be_bytes());
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(&pages);
    Ok(Plan::data_in(data, u32::from(call.cdb.u16(7))))
}

/// Page control (PC), page code and subpage code stand in the same bytes of both CDBs.
fn selected_pages(call: &UnitCall<'_>) -> Result<Vec<u8>, Sense> {
    let values = match call.cdb.u8(2) >> 6 {
        0b00 | 0b10 => Values::Current,
        0b01 => Values::Changeable,
        _ => {
            let additional = AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED;
            return Err(Sense { additional, ..Sense::invalid_bit_in_cdb(2, 7) });
        }
    };
    let code = call.cdb.u8(2) & 0x3f;
    let subpage = call.cdb.u8(3);
    if !matches!(subpage, 0 | ALL_SUBPAGES) {
        // No page has subpages yet. An unknown page is the earlier error.
        let known = code == ALL_PAGES || Page::all().any(|page| page.code() == code);
        return Err(if known { Sense::invalid_field_in_cdb(3) } else { Sense::invalid_bit_in_cdb(2, 5) });
    }
    let mut data = Vec::new();
    for page in Page::all().filter(|page| code == ALL_PAGES || page.code() == code) {
        page.put(&mut data, call.unit, values);
    }
    if data.is_empty() {
        return Err(Sense::invalid_bit_in_cdb(2, 5));
    }
    Ok(data)
}

fn device_specific(unit: &LogicalUnit) -> u8 {
    DPOFUA | if unit.read_only { WRITE_PROTECT } else { 0 }
}

/// Number of blocks (4; all ones when there are more), reserved, block length (3): the short LBA mode parameter block
/// descriptor of SBC-3.
fn short_descriptor(unit: &LogicalUnit) -> Vec<u8> {
    let mut descriptor = u32::try_from(unit.blocks).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    // Block lengths fit into the three lower bytes; the highest one is the reserved byte.
    descriptor.extend_from_slice(&unit.block_size.bytes().to_be_bytes());
    descriptor
}

/// Number of blocks (8), reserved (4), block length (4): the long LBA mode parameter block descriptor of SBC-3.
fn long_descriptor(unit: &LogicalUnit) -> Vec<u8> {
    let mut descriptor = unit.blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&[0; 4]);
    descriptor.extend_from_slice(&unit.block_size.bytes().to_be_bytes());
    descriptor
}
