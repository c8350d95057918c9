//! A recovered store against the model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use holdfast_proto::ids::OpId;
use holdfast_proto::units::BLOCK_LEN;

use super::model::{Model, ShardModel};
use super::workload::{chunks, number_of, shards};
use crate::catalogue::Catalogue;
use crate::check::{self, Finding, Observer};
use crate::checkpoint::read_entries;
use crate::device::Device;
use crate::format::entry::Entry;
use crate::format::keys;
use crate::ids::{CHUNK_BLOCKS, ChunkIndex, ShardId};
use crate::machine::{Cold, Lower, Machine, ReadPlan};
use crate::read::carry_out;

/// What is to be looked at.
pub(super) struct Found<'a> {
    pub(super) machine: &'a mut Machine<usize>,
    pub(super) device: &'a dyn Device,
    pub(super) catalogue: &'a dyn Catalogue,
}

/// What became of a block.
pub(super) type Block = Result<u64, String>;

impl Found<'_> {
    /// Which of the models it is: the index.
    pub(super) fn is_one_of(&mut self, models: &[&Model]) -> Result<usize, String> {
        let mut differences = Vec::new();
        for (index, model) in models.iter().enumerate() {
            match self.is(model) {
                Ok(()) => return Ok(index),
                Err(difference) => differences.push(difference),
            }
        }
        Err(format!("what was recovered is none of what it may be: {}", differences.join(" -- ")))
    }

    fn is(&mut self, model: &Model) -> Result<(), String> {
        let ids: BTreeSet<ShardId> = self.machine.shard_ids().into_iter().chain(shards()).collect();
        for id in ids {
            let nothing = ShardModel::default();
            let shard = model.shards.get(&id).unwrap_or(&nothing);
            let differs = |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
                Err(format!("{what} of shard {id}: {found:?} instead of {expected:?}"))
            };
            let state = self.machine.shard_state(id);
            if state != shard.state {
                return differs("numbers", &state, &shard.state);
            }
            let versions = self.versions(id)?;
            if versions != shard.versions() {
                return differs("versions", &versions, &shard.versions());
            }
            let slots = self.machine.slot_count(id).unwrap_or_default() as usize;
            let (least, most) = shard.slots();
            if !(least..=most).contains(&slots) {
                return differs("slots", &slots, &(least, most));
            }
            for asked in shard.operations().flat_map(|id| [id, OpId { part: id.part + 2, ..id }]) {
                let known = self.machine.known(id, &asked);
                if known != shard.known(&asked) {
                    return differs("dedupe", &(asked, known), &shard.known(&asked));
                }
            }
            for chunk in chunks() {
                let first = chunk.first_block();
                let blocks = self.read(id, first, CHUNK_BLOCKS);
                for (block, found) in (first..).zip(blocks) {
                    let expected = shard.blocks.get(&block).copied().unwrap_or_default();
                    if found.as_ref() != Ok(&expected) {
                        return differs(&format!("block {block}"), &found, &expected);
                    }
                }
            }
        }
        Ok(())
    }

    /// After damage in one place: the shards' numbers are right, and each block is, or gives an error.
    pub(super) fn is_right_or_says_so(&mut self, model: &Model) -> Result<(), String> {
        for id in shards() {
            let nothing = ShardModel::default();
            let shard = model.shards.get(&id).unwrap_or(&nothing);
            let state = self.machine.shard_state(id);
            if state != shard.state {
                return Err(format!("shard {id} silently has {state:?} instead of {:?}", shard.state));
            }
            for chunk in chunks() {
                let first = chunk.first_block();
                for block in first..first + CHUNK_BLOCKS {
                    let expected = shard.blocks.get(&block).copied().unwrap_or_default();
                    match self.read(id, block, 1).pop() {
                        Some(Ok(number)) if number != expected => {
                            return Err(format!("block {block} of shard {id} is {number} instead of {expected}"));
                        }
                        Some(Err(error)) if error.starts_with("made up") => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// After damage: each block gives something that once was written there, or an error.
    pub(super) fn makes_nothing_up(&mut self, model: &Model) -> Result<(), String> {
        for id in shards() {
            for chunk in chunks() {
                let first = chunk.first_block();
                for block in first..first + CHUNK_BLOCKS {
                    let found = self.read(id, block, 1).pop();
                    let known = model.history.get(&(id, block));
                    match found {
                        Some(Ok(number)) if number != 0 && !known.is_some_and(|known| known.contains(&number)) => {
                            return Err(format!(
                                "block {block} of shard {id} reads as {number}, which never was there"
                            ));
                        }
                        Some(Err(error)) if error.starts_with("made up") => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn versions(&self, id: ShardId) -> Result<Vec<(ChunkIndex, crate::machine::ChunkVersion)>, String> {
        let range = keys::map_range(id);
        let mut entries = BTreeMap::new();
        let mut damaged = None;
        let visited = self.catalogue.range(&range.start, &range.end, &mut |key, value| {
            let (shard, chunk) = keys::parse_map(key).unwrap();
            match Entry::parse(shard, chunk, value) {
                Ok(entry) => drop(entries.insert(chunk, entry)),
                Err(error) => damaged = Some(error),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| error.to_string())?;
        damaged.map_or(Ok(()), |error| Err(error.to_string()))?;
        Ok(self.machine.versions(id, &entries))
    }

    /// The number of each block.
    pub(super) fn read(&mut self, id: ShardId, first: u32, count: u32) -> Vec<Block> {
        let all = |error: String| vec![Err(error); count as usize];
        let mut loaded = BTreeMap::new();
        let (pieces, planned) = loop {
            let known = |chunk| loaded.get(&chunk).map_or(Cold::Unknown, |content| Cold::Known(*content));
            match self.machine.plan_read(id, first, count, known) {
                ReadPlan::Ready { pieces, planned } => break (pieces, planned),
                ReadPlan::Load { chunks, .. } => {
                    let wanted = chunks.into_iter().map(|chunk| (id, chunk)).collect();
                    match read_entries(self.catalogue, wanted) {
                        Ok(entries) => {
                            for ((_, chunk), lower) in entries {
                                let Lower::Entry(entry) = lower else { return all("damaged entry".into()) };
                                loaded.insert(chunk, entry.and_then(|entry| entry.content));
                            }
                        }
                        Err(error) => return all(error.to_string()),
                    }
                }
                ReadPlan::Missing(chunk) => return all(format!("no entry of chunk {}", chunk.get())),
            }
        };
        let read = carry_out(self.device, &pieces);
        self.machine.read_is_over(planned);
        match read {
            Ok(read) => numbers(&read.data.concat(), &read.crcs),
            Err(fault) => all(format!("{:?} at block {} of {count} from {first}", fault.kind, fault.block)),
        }
    }

    /// The offline check has nothing to say.
    pub(super) fn is_clean(&self) -> Result<(), String> {
        struct Notes(Vec<String>);
        impl Observer for Notes {
            fn found(&mut self, finding: &Finding) {
                self.0.push(finding.to_string());
            }
            fn note(&mut self, _: &str) {}
            fn progress(&mut self, _: u64, _: u64) {}
        }
        let mut notes = Notes(Vec::new());
        check::check_open(&mut notes, self.device, self.catalogue);
        if notes.0.is_empty() { Ok(()) } else { Err(format!("the offline check finds: {}", notes.0.join("; "))) }
    }
}

/// The numbers of the blocks of a read.
pub(super) fn numbers(bytes: &[u8], crcs: &[u32]) -> Vec<Block> {
    let number = |(block, crc): (&[u8], &u32)| match number_of(block) {
        _ if crc32c::crc32c(block) != *crc => {
            Err("made up: the checksum that was answered is not that of the block".into())
        }
        Some(number) => Ok(number),
        None => Err("made up: nobody wrote such a block".into()),
    };
    bytes.chunks(BLOCK_LEN).zip(crcs).map(number).collect()
}
