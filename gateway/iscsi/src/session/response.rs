//! How a task ends towards the initiator: Data-In, status, residuals (RFC 7143, 11.4, 11.7).

use bytes::{BufMut, Bytes, BytesMut};
use zerocopy::byteorder::big_endian::U32;

use super::Session;
use super::sense::{CHECK_CONDITION, TASK_ABORTED};
use super::tasks::{Fate, Task};
use crate::output::{DataPieces, Output, TaskResult};
use crate::pdu::{DataInHeader, Opcode, OutPdu, RESERVED_TAG, ScsiResponseHeader};

/// SAM status GOOD.
const GOOD: u8 = 0x00;

/// Final bit, which is always one in a response.
const FINAL: u8 = 0x80;

/// Longest sense data (SPC-4, 4.5.1).
const MAX_SENSE_BYTES: usize = 252;

/// The difference between what was expected and what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    None,
    /// Fewer bytes than expected.
    Underflow(u32),
    /// More bytes than expected, of which none were transferred.
    Overflow(u32),
}

impl Residual {
    pub(super) fn of(expected_bytes: u32, actual_bytes: u64) -> Self {
        let expected = u64::from(expected_bytes);
        let saturated = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match actual_bytes {
            actual if actual < expected => Self::Underflow(saturated(expected - actual)),
            actual if actual > expected => Self::Overflow(saturated(actual - expected)),
            _ => Self::None,
        }
    }

    /// Flags as they stand in a SCSI Response and in a Data-In alike, and the count.
    fn parts(self) -> (u8, u32) {
        match self {
            Self::None => (0, 0),
            Self::Underflow(count) => (ScsiResponseHeader::UNDERFLOW, count),
            Self::Overflow(count) => (ScsiResponseHeader::OVERFLOW, count),
        }
    }
}

/// What a response says besides its numbers.
struct Ending {
    status: u8,
    sense: Bytes,
    residual: Residual,
    bidirectional_read_residual: Residual,
    data_in_count: u32,
}

/// Data on its way into Data-In PDUs, which cut it anywhere and never copy it.
struct DataIn {
    current: Bytes,
    rest: smallvec::IntoIter<[Bytes; 2]>,
    /// How many bytes are to be taken yet; never more than the pieces have.
    left: usize,
}

impl DataIn {
    fn new(pieces: DataPieces) -> Self {
        let left = pieces.iter().map(Bytes::len).sum();
        Self { current: Bytes::new(), rest: pieces.into_iter(), left }
    }

    /// The next `count` bytes, at most [`Self::left`], for one data segment.
    fn take(&mut self, count: usize) -> (Bytes, Vec<Bytes>) {
        let mut wanted = count.min(self.left);
        self.left -= wanted;
        let first = self.take_piece(&mut wanted);
        let mut more = Vec::new();
        while wanted > 0 {
            more.push(self.take_piece(&mut wanted));
        }
        (first, more)
    }

    fn take_piece(&mut self, wanted: &mut usize) -> Bytes {
        while self.current.is_empty()
            && let Some(next) = self.rest.next()
        {
            self.current = next;
        }
        let piece = self.current.split_to(self.current.len().min(*wanted));
        // Were there no more pieces, there would be nothing more to want.
        *wanted = if piece.is_empty() { 0 } else { *wanted - piece.len() };
        piece
    }
}

impl Session {
    /// Sends what a task that has left the table ends with.
    pub(super) fn end_task(&mut self, task: &Task, mut result: TaskResult, out: &mut Output) {
        if task.immediate {
            self.immediate_commands = self.immediate_commands.saturating_sub(1);
        } else {
            self.numbers.window.command_closed();
        }
        if self.closed || task.fate == Fate::Aborted {
            return;
        }
        if let Some(failure) = task.failure {
            result = TaskResult { status: CHECK_CONDITION, sense: failure.sense(), ..TaskResult::default() };
        }
        if task.fate == Fate::AbortedElsewhere {
            result = TaskResult { status: TASK_ABORTED, ..TaskResult::default() };
        }
        self.respond(task, result, out);
    }

    fn respond(&mut self, task: &Task, result: TaskResult, out: &mut Output) {
        let mut data = DataIn::new(result.data_in);
        let data_in_bytes = data.left as u64;
        let (residual, bidirectional_read_residual) = match (task.read, task.write) {
            (true, true) => (
                Residual::of(task.write_bytes(), result.data_out_wanted),
                Residual::of(task.read_bytes(), data_in_bytes),
            ),
            (true, false) => (Residual::of(task.read_bytes(), data_in_bytes), Residual::None),
            (false, true) => (Residual::of(task.write_bytes(), result.data_out_wanted), Residual::None),
            // The command wants to transfer, the initiator does not.
            (false, false) => (Residual::of(0, data_in_bytes.max(result.data_out_wanted)), Residual::None),
        };
        data.left = data.left.min(task.read_bytes() as usize);

        // The status of a bidirectional command, or one with sense data, needs a PDU of its own (RFC 7143, 11.7.3).
        let collapsed = (result.status == GOOD && !task.write && data.left > 0).then_some(residual);
        let data_in_count = self.send_data_in(task, data, collapsed, out);
        if collapsed.is_none() {
            self.send_response(
                task,
                Ending {
                    status: result.status,
                    sense: result.sense,
                    residual,
                    bidirectional_read_residual,
                    data_in_count,
                },
                out,
            );
        }
    }

    /// Sends the data, with GOOD status and `collapsed` as the residual in the last PDU if that is given. Says how
    /// many PDUs it took.
    fn send_data_in(&mut self, task: &Task, mut data: DataIn, collapsed: Option<Residual>, out: &mut Output) -> u32 {
        let max_pdu = (self.parameters.max_send_data_segment_length as usize).max(1);
        let max_burst = (self.parameters.max_burst_length as usize).max(1);
        // R2Ts and Data-Ins of a bidirectional command are numbered together (RFC 7143, 11.8).
        let first_data_sn = task.data_out.r2t_count();
        let (mut count, mut offset, mut burst) = (0, 0u32, 0);
        while data.left > 0 {
            let segment_bytes = max_pdu.min(max_burst - burst).min(data.left);
            let (first, more) = data.take(segment_bytes);
            let is_last = data.left == 0;
            burst += segment_bytes;
            let ends_sequence = is_last || burst == max_burst;
            let mut header = DataInHeader {
                opcode: Opcode::DataIn as u8,
                flags: if ends_sequence { FINAL } else { 0 },
                reserved: 0,
                status: GOOD,
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                lun: [0; 8],
                initiator_task_tag: U32::new(task.initiator_task_tag),
                target_transfer_tag: U32::new(RESERVED_TAG),
                stat_sn: U32::ZERO,
                exp_cmd_sn: U32::ZERO,
                max_cmd_sn: U32::ZERO,
                data_sn: U32::new(first_data_sn.wrapping_add(count)),
                buffer_offset: U32::new(offset),
                residual_count: U32::ZERO,
            };
            let stamp = match collapsed.filter(|_| is_last) {
                Some(residual) => {
                    let (flags, residual_count) = residual.parts();
                    header.flags |= DataInHeader::STATUS | flags;
                    header.residual_count = U32::new(residual_count);
                    let stamp = self.numbers.stamp_status();
                    header.stat_sn = stamp.stat_sn;
                    stamp
                }
                // StatSN has no meaning without the S bit (RFC 7143, 11.7.5).
                None => self.numbers.stamp(),
            };
            header.exp_cmd_sn = stamp.exp_cmd_sn;
            header.max_cmd_sn = stamp.max_cmd_sn;
            out.pdus.push_back(OutPdu { more, ..OutPdu::new(&header, first) });
            offset = offset.wrapping_add(u32::try_from(segment_bytes).unwrap_or(u32::MAX));
            count = count.wrapping_add(1);
            if ends_sequence {
                burst = 0;
            }
        }
        count
    }

    fn send_response(&mut self, task: &Task, ending: Ending, out: &mut Output) {
        let (flags, residual_count) = ending.residual.parts();
        let (read_flags, read_residual_count) = ending.bidirectional_read_residual.parts();
        let stamp = self.numbers.stamp_status();
        // What the initiator should have seen, where Data-In is among it (RFC 7143, 11.4.8).
        let exp_data_sn = match ending.data_in_count {
            0 => 0,
            count => count.wrapping_add(task.data_out.r2t_count()),
        };
        out.pdus.push_back(OutPdu::new(
            &ScsiResponseHeader {
                opcode: Opcode::ScsiResponse as u8,
                // The bidirectional flags o and u stand two bits above O and U.
                flags: FINAL | flags | read_flags << 2,
                response: 0,
                status: ending.status,
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                reserved: [0; 8],
                initiator_task_tag: U32::new(task.initiator_task_tag),
                snack_tag: U32::ZERO,
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                exp_data_sn: U32::new(exp_data_sn),
                bidirectional_read_residual_count: U32::new(read_residual_count),
                residual_count: U32::new(residual_count),
            },
            sense_segment(&ending.sense),
        ));
    }
}

/// SenseLength and sense data (RFC 7143, 11.4.7).
fn sense_segment(sense: &[u8]) -> Bytes {
    let sense = sense.get(..MAX_SENSE_BYTES).unwrap_or(sense);
    if sense.is_empty() {
        return Bytes::new();
    }
    let mut segment = BytesMut::with_capacity(2 + sense.len());
    segment.put_u16(u16::try_from(sense.len()).unwrap_or(u16::MAX));
    segment.extend_from_slice(sense);
    segment.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_when_compared_then_says_which_way_and_how_much() {
        assert_eq!(Residual::of(512, 512), Residual::None);
        assert_eq!(Residual::of(512, 100), Residual::Underflow(412));
        assert_eq!(Residual::of(512, 513), Residual::Overflow(1));
        assert_eq!(Residual::of(0, u64::MAX), Residual::Overflow(u32::MAX));
        assert_eq!(Residual::of(u32::MAX, 0), Residual::Underflow(u32::MAX));
    }
}
