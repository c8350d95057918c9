//! Where a connection's finished parts arrive: a queue with room for one waiting task, all on one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// Names a part to the connection that started it; storage gives it back unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartToken {
    /// The connection's number for the operation.
    pub(crate) operation: u64,
    /// Offset of the part's first byte in the operation's data.
    pub(crate) buffer_offset: u64,
}

/// Why a part was not done. Every value means that its fate is *settled*: it has not happened, or it will not happen later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartError {
    /// The stored data at this byte of the volume is damaged or cannot be read.
    Medium {
        /// Byte offset in the volume.
        offset: u64,
    },
    /// No space for a write that needs some.
    NoSpace,
    /// The volume may not be written.
    WriteProtected,
    /// Data was damaged on its way; doing it again may succeed.
    DataDamaged,
    /// The connection to storage was lost and the request may or may not have been done; it will not be done later.
    ConnectionLost,
    /// Dropped before it was sent, because the task was abandoned.
    Cancelled,
    /// The storage node refused or failed; the text is for the log.
    Failed(String),
}

/// A finished part.
#[derive(Debug)]
pub(crate) struct PartDone {
    pub(crate) token: PartToken,
    /// What was read; empty for other kinds.
    pub(crate) result: Result<Vec<Bytes>, PartError>,
}

/// The queue of one connection.
#[derive(Default)]
pub(crate) struct Completions {
    queue: RefCell<VecDeque<PartDone>>,
    waiting: Cell<Option<Waker>>,
}

impl Completions {
    pub(crate) fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Adds a finished part and wakes the connection, if it sleeps.
    pub(crate) fn push(&self, done: PartDone) {
        self.queue.borrow_mut().push_back(done);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    pub(crate) fn pop(&self) -> Option<PartDone> {
        self.queue.borrow_mut().pop_front()
    }

    /// Ready when there is something to [`Self::pop`]; otherwise the task is woken when there is.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        if !self.queue.borrow().is_empty() {
            return Poll::Ready(());
        }
        self.waiting.set(Some(context.waker().clone()));
        Poll::Pending
    }
}
