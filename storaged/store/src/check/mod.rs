//! Checks a store that nobody serves: every structure, every checksum, every slot in use. Changes nothing.
//!
//! [`check()`] is the whole; start reading there. In its order:
//!
//! | file | checks |
//! |---|---|
//! | `place.rs` | directory, lock, data file, RocksDB as a whole |
//! | `mod.rs` | superblock, whose parts they are, lengths |
//! | `tables.rs` | all rows of the catalogue but the map (`rows.rs` reads them) |
//! | `state.rs` | the journal, which is carried out in memory |
//! | `map.rs` | map entries, against bitmaps and allocation pages (`slots.rs`), and the data (`blocks.rs`) |
//!
//! What is true at the checkpoint (entries, bitmaps, allocation pages) is compared as of the checkpoint; the data is
//! compared with what a read would find after a start, so blocks that are only journalled are not judged by what
//! their slots hold. Damage in one place never ends the check of the others: where the state cannot be found as the engine would find
//! it, the check goes on with what there is, and says so.
//!
//! `finding.rs` has what can be wrong, with what that means and what to do.

mod blocks;
pub mod dump;
mod finding;
mod map;
mod place;
mod report;
mod rows;
mod slots;
mod state;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use self::finding::{Finding, Problem, Severity, VolumeRange};
pub use self::report::{Observer, Summary};

use self::map::MapWalk;
use self::report::Report;
use crate::catalogue::Catalogue;
use crate::device::Device;
use crate::directory::Identity;
use crate::error::OpenError;
use crate::format::Superblock;
use crate::format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS};
use crate::ids::CHUNK_BYTES;
use crate::recovery::slots_of;

/// Checks the store in `dir`, whichever node's it is, and tells `observer` what is found. An error means that there is nothing
/// that could be checked: no store, one in use, or one of a later release.
pub fn check(dir: &Path, observer: &mut dyn Observer) -> Result<Summary, OpenError> {
    let mut report = Report::new(observer);
    let parts = place::open(dir, &mut report)?;
    check_parts(&mut report, parts.identity, parts.device.as_deref(), parts.catalogue.as_deref());
    Ok(report.summary)
}

/// The same of a simulated store.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn check_open(observer: &mut dyn Observer, device: &dyn Device, catalogue: &dyn Catalogue) {
    check_parts(&mut Report::new(observer), None, Some(device), Some(catalogue));
}

/// The same of a store whose parts are open. What is missing has been told already.
fn check_parts(
    report: &mut Report<'_>,
    identity: Option<Identity>,
    device: Option<&dyn Device>,
    catalogue: Option<&dyn Catalogue>,
) {
    let superblock = device.and_then(|device| superblock(report, device, identity));
    if let Some((device, superblock)) = device.zip(superblock.as_ref()) {
        check_len(report, device, superblock);
    }
    let Some(catalogue) = catalogue else { return };
    let of_superblock =
        superblock.as_ref().map(|superblock| Identity { uuid: superblock.uuid, node_id: superblock.node_id });
    let expected: Vec<(&str, Identity)> = [("the directory", identity), ("the data file", of_superblock)]
        .into_iter()
        .filter_map(|(what, identity)| Some((what, identity?)))
        .collect();
    let data = device.zip(superblock.as_ref());
    // Without the data file nobody knows how many there are.
    let total_slots = data.map_or(u32::MAX, |(device, superblock)| slots_of(device, superblock));
    let tables = tables::read(report, catalogue, total_slots);
    tables::check_identity(report, catalogue, &expected);
    let data = data.map(|(device, superblock)| (device, state::read(report, device, catalogue, superblock, &tables)));
    MapWalk::new(catalogue, data, &tables).run(report);
}

/// The good copy of the superblock. Each is judged by itself.
fn superblock(report: &mut Report<'_>, device: &dyn Device, identity: Option<Identity>) -> Option<Superblock> {
    let mut good: Option<Superblock> = None;
    for (number, offset) in (1..).zip(SUPERBLOCK_OFFSETS) {
        let place = format!("copy {number} of the superblock");
        let bytes = match device.read(offset, SUPERBLOCK_LEN) {
            Ok(bytes) => bytes,
            Err(error) => {
                report.found(Finding::new(Problem::Superblock, place, error.to_string()));
                continue;
            }
        };
        match Superblock::parse(&bytes) {
            Ok(superblock) => match &good {
                None => {
                    let Superblock { uuid, node_id, .. } = superblock;
                    if let Some(identity) = identity.filter(|identity| *identity != Identity { uuid, node_id }) {
                        let detail = format!(
                            "it is of disk {uuid} of node {node_id}, the directory is of disk {} of node {}",
                            identity.uuid, identity.node_id
                        );
                        report.found(Finding::new(Problem::OtherDisk, place, detail));
                    }
                    good = Some(superblock);
                }
                Some(first) if *first != superblock => {
                    report.found(Finding::new(Problem::Superblock, place, "it differs from the first"));
                }
                Some(_) => {}
            },
            Err(error) => report.unparsed(Problem::Superblock, place, &error),
        }
    }
    good
}

/// The file grows by whole slots.
fn check_len(report: &mut Report<'_>, device: &dyn Device, superblock: &Superblock) {
    let (len, slots_offset) = (device.len_bytes(), superblock.slots_offset);
    let Some(slots) = len.checked_sub(slots_offset) else {
        let detail = format!("it ends at byte {len}, before the place of its slots at {slots_offset}");
        return report.found(Finding::new(Problem::DataFile, "the data file", detail));
    };
    let rest = slots % CHUNK_BYTES;
    if rest > 0 {
        report.note(format!(
            "the data file ends in {rest} bytes of a slot that is not used, as an interrupted growth leaves it"
        ));
    }
}
