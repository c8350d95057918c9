//! The tasks of a session: a slab, found by [`TaskId`] or by Initiator Task Tag.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::data_out::DataOut;
use super::sense::Failure;
use super::tags::TagHasher;
use crate::output::{TaskId, TaskResult};
use crate::serial::SerialNumber;

/// Low bits of a [`TaskId`] that name the slot; the others count tasks.
const SLOT_BITS: u32 = 20;

/// A SCSI task between its command PDU and its response.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) initiator_task_tag: u32,
    pub(super) lun: [u8; 8],
    pub(super) command_number: SerialNumber,
    pub(super) immediate: bool,
    pub(super) read: bool,
    pub(super) write: bool,
    /// Expected Data Transfer Length in bytes.
    pub(super) expected_bytes: u32,
    pub(super) bidirectional_read_bytes: Option<u32>,
    pub(super) data_out: DataOut,
    /// What was wrong with its data: decides the status, whatever the shell says.
    pub(super) failure: Option<Failure>,
    pub(super) fate: Fate,
    /// Whether the shell knows that the outcome no longer matters.
    pub(super) abandon_told: bool,
    /// The shell's result, where the response has to wait for the initiator to end its data.
    pub(super) result: Option<Box<TaskResult>>,
}

/// How a task is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// By its own response.
    Live,
    /// By no response: the initiator aborted it.
    Aborted,
    /// With TASK ABORTED: another nexus aborted it (TAS=1; SAM-5, 5.6).
    AbortedElsewhere,
}

impl Task {
    /// Whether data for it is of no use any more.
    pub(super) fn is_discarding(&self) -> bool {
        self.fate != Fate::Live || self.failure.is_some() || self.result.is_some()
    }

    /// Bytes that the initiator may send for it in all.
    pub(super) fn write_bytes(&self) -> u32 {
        if self.write { self.expected_bytes } else { 0 }
    }

    /// Bytes that the initiator takes for it in all.
    pub(super) fn read_bytes(&self) -> u32 {
        match self.bidirectional_read_bytes {
            Some(bytes) => bytes,
            None if self.read => self.expected_bytes,
            None => 0,
        }
    }

    pub(super) fn drop_data(&mut self) {
        self.data_out.clear();
    }
}

/// All tasks of a session.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    slots: Vec<Option<Task>>,
    free: Vec<u32>,
    by_tag: HashMap<u32, u32, BuildHasherDefault<TagHasher>>,
    made: u64,
}

impl TaskTable {
    /// Tasks that the shell has not completed.
    pub(super) fn unsettled(&self) -> usize {
        self.slots.iter().flatten().filter(|task| task.result.is_none()).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_tag.is_empty()
    }

    pub(super) fn has_tag(&self, initiator_task_tag: u32) -> bool {
        self.by_tag.contains_key(&initiator_task_tag)
    }

    /// Adds a task under a tag that is not in use; `make` gets its id.
    pub(super) fn insert(&mut self, initiator_task_tag: u32, make: impl FnOnce(TaskId) -> Task) -> TaskId {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                // Window and immediate commands are counted by 16 bits each, so that 20 bits are enough.
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.made += 1;
        let id = TaskId(self.made << SLOT_BITS | u64::from(slot));
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            *entry = Some(make(id));
        }
        self.by_tag.insert(initiator_task_tag, slot);
        id
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        self.slots.get(slot_of(id))?.as_ref().filter(|task| task.id == id)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.slots.get_mut(slot_of(id))?.as_mut().filter(|task| task.id == id)
    }

    pub(super) fn by_tag(&mut self, initiator_task_tag: u32) -> Option<&mut Task> {
        let slot = *self.by_tag.get(&initiator_task_tag)?;
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let slot = slot_of(id);
        let task = self.slots.get_mut(slot)?.take_if(|task| task.id == id)?;
        self.by_tag.remove(&task.initiator_task_tag);
        self.free.push(u32::try_from(slot).unwrap_or(u32::MAX));
        Some(task)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.slots.iter_mut().flatten()
    }

    /// Bytes of data that tasks hold because their data is not complete.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.slots.iter().flatten().map(|task| task.data_out.buffered_bytes()).sum()
    }
}

fn slot_of(id: TaskId) -> usize {
    usize::try_from(id.0 & ((1 << SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}
