//! The operations of one connection that are under way at storage.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdfast_proto::ids::VolumeId;

use super::completions::{Completions, PartDone, PartError, PartToken};
use super::lane::Lane;
use super::null::zeros;
use super::parts::{BlockOperation, Parts};

/// Parts of one operation that are under way at once.
const MAX_PARTS_IN_FLIGHT: usize = 8;

/// Where a volume's blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Nowhere.
    Null,
    /// At the storage node.
    Stored(VolumeId),
}

/// An operation that has come to its end; what storage holds of it no longer changes.
#[derive(Debug)]
pub(crate) struct OperationDone {
    /// The number that the caller gave it.
    pub(crate) operation: u64,
    /// Data read, in order; or what failed first.
    pub(crate) result: Result<Vec<Bytes>, PartError>,
}

/// Operations under way, by the caller's numbers.
pub(crate) struct Operations {
    lane: Lane,
    nexus: u64,
    completions: Rc<Completions>,
    running: HashMap<u64, Running>,
}

struct Running {
    volume: VolumeId,
    parts: Parts,
    /// Handles of parts that have not come back.
    handles: Vec<(u64, u64)>,
    next_offset: u64,
    /// Data of finished parts, by their offset in the operation's data.
    data: Vec<(u64, Vec<Bytes>)>,
    error: Option<PartError>,
}

impl Operations {
    pub(crate) fn new(lane: Lane, nexus: u64) -> Self {
        Self { lane, nexus, completions: Completions::new(), running: HashMap::new() }
    }

    /// Starts an operation. `Some` if it is over at once.
    pub(crate) fn start(&mut self, operation: u64, backend: Backend, what: BlockOperation) -> Option<OperationDone> {
        let volume = match backend {
            Backend::Stored(volume) => volume,
            Backend::Null => {
                return Some(OperationDone { operation, result: Ok(answer_of_null(&what)) });
            }
        };
        let mut running = Running {
            volume,
            parts: Parts::new(what),
            handles: Vec::with_capacity(1),
            next_offset: 0,
            data: Vec::new(),
            error: None,
        };
        running.send_more(operation, self.nexus, &self.lane, &self.completions);
        if running.handles.is_empty() {
            return Some(running.done(operation));
        }
        self.running.insert(operation, running);
        None
    }

    /// Sends nothing more of an operation and takes back what has not left. It still ends through [`Self::poll_done`].
    pub(crate) fn abandon(&mut self, operation: u64) {
        if let Some(running) = self.running.get_mut(&operation) {
            running.error.get_or_insert(PartError::Cancelled);
            for (_, handle) in &running.handles {
                self.lane.cancel(*handle);
            }
        }
    }

    /// Ready when [`Self::poll_done`] has work to do.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        self.completions.poll_ready(context)
    }

    /// The next operation that has ended, if the parts that came back since end one.
    pub(crate) fn poll_done(&mut self) -> Option<OperationDone> {
        while let Some(part) = self.completions.pop() {
            let number = part.token.operation;
            let Some(running) = self.running.get_mut(&number) else {
                continue;
            };
            running.take(part);
            if running.error.is_none() {
                running.send_more(number, self.nexus, &self.lane, &self.completions);
            }
            if running.handles.is_empty() {
                return self.running.remove(&number).map(|running| running.done(number));
            }
        }
        None
    }
}

impl Running {
    fn send_more(&mut self, operation: u64, nexus: u64, lane: &Lane, completions: &Rc<Completions>) {
        while self.handles.len() < MAX_PARTS_IN_FLIGHT {
            let Some(part) = self.parts.next() else { break };
            let token = PartToken { operation, buffer_offset: self.next_offset };
            self.next_offset += part.range.len;
            let handle = lane.submit(self.volume, nexus, part, completions, token);
            self.handles.push((token.buffer_offset, handle));
        }
    }

    fn take(&mut self, part: PartDone) {
        self.handles.retain(|(offset, _)| *offset != part.token.buffer_offset);
        match part.result {
            Ok(data) if data.is_empty() => {}
            Ok(data) => self.data.push((part.token.buffer_offset, data)),
            // Of several damaged blocks the first on the medium is told, whichever answer came first.
            Err(PartError::Medium { offset }) => match &mut self.error {
                Some(PartError::Medium { offset: first }) => *first = offset.min(*first),
                Some(_) => {}
                None => self.error = Some(PartError::Medium { offset }),
            },
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    fn done(mut self, operation: u64) -> OperationDone {
        let result = match self.error.take() {
            Some(error) => Err(error),
            None => {
                self.data.sort_unstable_by_key(|(offset, _)| *offset);
                Ok(self.data.into_iter().flat_map(|(_, data)| data).collect())
            }
        };
        OperationDone { operation, result }
    }
}

fn answer_of_null(what: &BlockOperation) -> Vec<Bytes> {
    match what {
        BlockOperation::Read(range) => vec![zeros(usize::try_from(range.len).unwrap_or(usize::MAX))],
        _ => Vec::new(),
    }
}
