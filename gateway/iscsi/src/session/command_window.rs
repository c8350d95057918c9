//! Command numbering (RFC 7143, 4.2.2.1): which command is next, which may be sent, and those that came too early.
//!
//! MaxCmdSN says how many commands the initiator may have open: it is ExpCmdSN plus the size of the window, less the
//! commands that are still being worked on. So the number of tasks is bounded, and the initiator feels it before it
//! sends.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::tags::TagHasher;
use crate::pdu::Pdu;
use crate::serial::SerialNumber;

/// Bytes of data that PDUs ahead of their turn may hold. At ErrorRecoveryLevel 0 commands come in order, so that
/// there are none but for a gap that a Reject has left.
const MAX_HELD_BYTES: usize = 1024 * 1024;

/// The window of command numbers of a session.
#[derive(Debug)]
pub(super) struct CommandWindow {
    expected: SerialNumber,
    max: SerialNumber,
    /// MaxCmdSN as the initiator knows it.
    told_max: SerialNumber,
    size: u16,
    /// Commands that have left the window as received but not as finished.
    open_commands: u32,
    held: HashMap<u32, Held, BuildHasherDefault<TagHasher>>,
    held_bytes: usize,
}

/// A command number that was received before its turn.
#[derive(Debug)]
pub(super) enum Held {
    Pdu(Box<Pdu>),
    /// Aborted before its turn: the number counts as received (RFC 7143, 11.5.5).
    Aborted,
}

/// Where a command number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Its turn.
    Next,
    /// In the window, but a number before it is missing.
    Ahead,
    /// A duplicate, or outside the window: to be ignored.
    Ignored,
}

/// What waits ahead of its turn is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldTooMuch;

impl CommandWindow {
    pub(super) fn new(expected: SerialNumber, told_max: SerialNumber, size: u16) -> Self {
        // The window that login gave stays valid; a MaxCmdSN below ExpCmdSN - 1 has no meaning.
        let closed = expected.minus(1);
        let told_max = if told_max.is_after(closed) { told_max } else { closed };
        let mut window =
            Self { expected, max: told_max, told_max, size, open_commands: 0, held: HashMap::default(), held_bytes: 0 };
        window.refresh();
        window
    }

    pub(super) fn expected(&self) -> SerialNumber {
        self.expected
    }

    /// ExpCmdSN and MaxCmdSN for a PDU that is being queued.
    pub(super) fn tell(&mut self) -> (SerialNumber, SerialNumber) {
        self.told_max = self.max;
        (self.expected, self.max)
    }

    /// Whether the initiator believes the window to be closed though it is open.
    pub(super) fn needs_telling(&self) -> bool {
        self.told_max.is_before(self.expected) && !self.max.is_before(self.expected)
    }

    pub(super) fn set_size(&mut self, size: u16) {
        self.size = size;
        self.refresh();
    }

    pub(super) fn position(&self, number: SerialNumber) -> Position {
        if number == self.expected && !self.max.is_before(number) {
            Position::Next
        } else if self.is_inside(number) && !self.held.contains_key(&number.0) {
            Position::Ahead
        } else {
            Position::Ignored
        }
    }

    /// Whether `number` lies between ExpCmdSN and MaxCmdSN.
    pub(super) fn is_inside(&self, number: SerialNumber) -> bool {
        !number.is_before(self.expected)
            && !number.is_after(self.max)
            && number.since(self.expected) <= u32::from(u16::MAX)
    }

    /// The expected number is taken.
    pub(super) fn advance(&mut self) {
        self.expected = self.expected.next();
        self.refresh();
    }

    /// Keeps a PDU until its turn.
    pub(super) fn hold(&mut self, number: SerialNumber, pdu: Pdu) -> Result<(), HeldTooMuch> {
        let bytes = pdu.data.len() + pdu.ahs.len();
        if self.held_bytes + bytes > MAX_HELD_BYTES {
            return Err(HeldTooMuch);
        }
        self.held_bytes += bytes;
        self.held.insert(number.0, Held::Pdu(Box::new(pdu)));
        Ok(())
    }

    /// Counts a number inside the window as received, and drops the PDU if it is held.
    pub(super) fn abort(&mut self, number: SerialNumber) {
        if let Some(Held::Pdu(pdu)) = self.held.insert(number.0, Held::Aborted) {
            self.held_bytes -= pdu.data.len() + pdu.ahs.len();
        }
    }

    /// Aborts the held PDUs with a number before `end` that `covers` says yes to.
    pub(super) fn abort_held(&mut self, end: SerialNumber, covers: impl Fn(&Pdu) -> bool) {
        for (&number, held) in &mut self.held {
            if let Held::Pdu(pdu) = held
                && SerialNumber(number).is_before(end)
                && covers(pdu)
            {
                self.held_bytes -= pdu.data.len() + pdu.ahs.len();
                *held = Held::Aborted;
            }
        }
    }

    /// What was held for the number whose turn it is.
    pub(super) fn take_next(&mut self) -> Option<Held> {
        if self.held.is_empty() {
            return None;
        }
        let held = self.held.remove(&self.expected.0)?;
        if let Held::Pdu(pdu) = &held {
            self.held_bytes -= pdu.data.len() + pdu.ahs.len();
        }
        Some(held)
    }

    /// Forgets all that is held.
    pub(super) fn clear_held(&mut self) {
        self.held = HashMap::default();
        self.held_bytes = 0;
    }

    /// A command is begun. To be called before [`advance`](Self::advance) for its number, which would give its room
    /// away otherwise.
    pub(super) fn command_opened(&mut self) {
        self.open_commands += 1;
    }

    pub(super) fn command_closed(&mut self) {
        self.open_commands = self.open_commands.saturating_sub(1);
        self.refresh();
    }

    /// MaxCmdSN moves up when there is room, and never down (RFC 7143, 4.2.2.1).
    fn refresh(&mut self) {
        let room = u32::from(self.size).saturating_sub(self.open_commands);
        let max = self.expected.plus(room).minus(1);
        if max.is_after(self.max) {
            self.max = max;
        }
    }
}
