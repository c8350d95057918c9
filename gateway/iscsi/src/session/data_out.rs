//! Data from the initiator: immediate, unsolicited, and solicited by R2T (RFC 7143, 4.2.5.2, 11.7, 11.8).
//!
//! Data comes in sequences, each ended by the F bit; within a sequence DataSN counts from 0 and offsets are
//! contiguous (DataPDUInOrder=Yes, which this target insists on). A sequence that breaks these rules is rejected and
//! fails its task, not the connection: the status follows when all open sequences have ended (RFC 7143, 11.4.7.2).
//! Sequences may end in another order than they were asked for; their data is put in order here.

use bytes::{Bytes, BytesMut};
use zerocopy::byteorder::big_endian::U32;

use super::Session;
use super::numbers::Numbers;
use super::sense::Failure;
use super::tasks::Task;
use crate::output::{Action, DataPieces, Output, TaskId};
use crate::params::Parameters;
use crate::pdu::{DataOutHeader, Opcode, OutPdu, Pdu, RESERVED_TAG, ReadyToTransferHeader, RejectReason};

/// Neighbouring pieces of data are joined up to this many bytes, so that an initiator that sends single bytes cannot
/// make the bookkeeping larger than the data.
const JOINED_BYTES: usize = 8 * 1024;

/// The data of one task, as far as it is here, and what is known of the rest.
#[derive(Debug)]
pub(super) struct DataOut {
    /// In order, without gaps, from the start.
    pieces: DataPieces,
    /// Length of `pieces`.
    received_bytes: u32,
    /// What the shell wants; `None` until it says.
    wanted_bytes: Option<u32>,
    /// Up to where data is here, or on its way.
    asked_bytes: u32,
    /// Sequences that have not ended, or have ended before an earlier one. In the order of their offsets.
    sequences: Vec<Sequence>,
    r2t_count: u32,
    delivered: bool,
}

#[derive(Debug)]
struct Sequence {
    /// Reserved for the unsolicited sequence.
    transfer_tag: u32,
    offset: u32,
    max_bytes: u32,
    received_bytes: u32,
    next_data_sn: u32,
    ended: bool,
    pieces: DataPieces,
}

/// What is wrong with a Data-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    NoSequence,
    Bad(RejectReason, Failure),
    /// Nothing is wrong with the PDU, but its sequence ended too early.
    Short,
}

impl DataOut {
    /// Data that came with the command; `unsolicited_end` is up to where unsolicited data may follow, if it does.
    pub(super) fn new(immediate: Bytes, unsolicited_end: Option<u32>) -> Self {
        let immediate_bytes = u32::try_from(immediate.len()).unwrap_or(u32::MAX);
        let mut data_out = Self {
            pieces: DataPieces::new(),
            received_bytes: immediate_bytes,
            wanted_bytes: None,
            asked_bytes: immediate_bytes,
            sequences: Vec::new(),
            r2t_count: 0,
            delivered: false,
        };
        if !immediate.is_empty() {
            data_out.pieces.push(immediate);
        }
        if let Some(end) = unsolicited_end {
            data_out.sequences.push(Sequence::new(RESERVED_TAG, immediate_bytes, end.saturating_sub(immediate_bytes)));
        }
        data_out
    }

    /// Whether the initiator still owes the end of a sequence.
    pub(super) fn is_open(&self) -> bool {
        !self.sequences.is_empty()
    }

    pub(super) fn r2t_count(&self) -> u32 {
        self.r2t_count
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        let in_sequences = self.sequences.iter().flat_map(|sequence| &sequence.pieces);
        self.pieces.iter().chain(in_sequences).map(Bytes::len).sum()
    }

    /// Drops what is here. Open sequences stay open.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        for sequence in &mut self.sequences {
            sequence.pieces.clear();
        }
    }

    fn accept(&mut self, pdu: &Pdu, data: Bytes, discarding: bool) -> Result<(), Problem> {
        let header = pdu.bhs.view::<DataOutHeader>();
        let tag = header.target_transfer_tag.get();
        let sequence = self
            .sequences
            .iter_mut()
            .find(|sequence| sequence.transfer_tag == tag && !sequence.ended)
            .ok_or(Problem::NoSequence)?;
        sequence.ended = pdu.bhs.is_final();
        let accepted = if discarding { Ok(()) } else { sequence.accept(header, data, pdu.data_digest_ok) };
        self.collect();
        accepted
    }

    /// Takes the data of sequences that have ended, as far as there is no gap.
    fn collect(&mut self) {
        while let Some(sequence) = self.sequences.first_mut().filter(|sequence| sequence.ended) {
            self.received_bytes = sequence.offset + sequence.received_bytes;
            if sequence.transfer_tag == RESERVED_TAG {
                self.asked_bytes = self.received_bytes;
            }
            for piece in sequence.pieces.drain(..) {
                push_piece(&mut self.pieces, piece);
            }
            self.sequences.remove(0);
        }
    }

    /// Offset and length of the next piece to ask for, if one may be asked for now.
    fn next_request(&self, parameters: &Parameters) -> Option<(u32, u32)> {
        // Unsolicited data may end early, and only its end tells where the solicited data begins.
        let unsolicited_open = self.sequences.first().is_some_and(|sequence| sequence.transfer_tag == RESERVED_TAG);
        let outstanding = self.sequences.iter().filter(|sequence| !sequence.ended).count();
        let missing = self.wanted_bytes?.saturating_sub(self.asked_bytes);
        if unsolicited_open || outstanding >= usize::from(parameters.max_outstanding_r2t).max(1) || missing == 0 {
            return None;
        }
        // No negotiation ends below 512.
        Some((self.asked_bytes, missing.min(parameters.max_burst_length.max(512))))
    }

    /// The data, once: when all that is wanted is here and no sequence is open.
    fn take_complete(&mut self) -> Option<DataPieces> {
        let wanted = self.wanted_bytes?;
        if self.delivered || self.is_open() || self.received_bytes < wanted {
            return None;
        }
        self.delivered = true;
        let mut pieces = std::mem::take(&mut self.pieces);
        truncate(&mut pieces, wanted as usize);
        Some(pieces)
    }
}

impl Sequence {
    fn new(transfer_tag: u32, offset: u32, max_bytes: u32) -> Self {
        Self {
            transfer_tag,
            offset,
            max_bytes,
            received_bytes: 0,
            next_data_sn: 0,
            ended: false,
            pieces: DataPieces::new(),
        }
    }

    fn accept(&mut self, header: &DataOutHeader, data: Bytes, digest_ok: bool) -> Result<(), Problem> {
        if !digest_ok {
            return Err(Problem::Bad(RejectReason::DataDigestError, Failure::DataDigest));
        }
        if header.data_sn.get() != self.next_data_sn {
            return Err(Problem::Bad(RejectReason::ProtocolError, Failure::Offset));
        }
        // Neither sum can overflow: a sequence lies inside the Expected Data Transfer Length.
        if header.buffer_offset.get() != self.offset + self.received_bytes {
            return Err(Problem::Bad(RejectReason::InvalidPduField, Failure::Offset));
        }
        let room = self.max_bytes - self.received_bytes;
        let Some(bytes) = u32::try_from(data.len()).ok().filter(|bytes| *bytes <= room) else {
            return Err(Problem::Bad(RejectReason::ProtocolError, Failure::TooMuchData));
        };
        self.next_data_sn = self.next_data_sn.wrapping_add(1);
        self.received_bytes += bytes;
        push_piece(&mut self.pieces, data);
        let solicited = self.transfer_tag != RESERVED_TAG;
        if solicited && self.ended && self.received_bytes < self.max_bytes {
            return Err(Problem::Short);
        }
        Ok(())
    }
}

impl Session {
    /// The SCSI layer wants `len_bytes` of data from the initiator for this task; it gets them, or the Expected Data
    /// Transfer Length if that is less, by [`Action::DataOut`], at once if nothing has to be waited for. To be
    /// called at most once for a task.
    pub fn transfer_out(&mut self, task: TaskId, len_bytes: u64, out: &mut Output) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if entry.is_discarding() || entry.data_out.wanted_bytes.is_some() {
            return;
        }
        let limit = entry.write_bytes();
        entry.data_out.wanted_bytes = Some(u32::try_from(len_bytes).unwrap_or(u32::MAX).min(limit));
        advance(entry, &mut self.numbers, &self.parameters, out);
    }

    /// Bytes that [`transfer_out`](Self::transfer_out) with this length has to wait for: memory for them is needed
    /// before it is called. 0 when all of the data is here.
    pub fn missing_bytes(&self, task: TaskId, len_bytes: u64) -> u64 {
        let Some(entry) = self.tasks.get(task) else {
            return 0;
        };
        let here: u32 = entry.data_out.sequences.iter().map(|sequence| sequence.received_bytes).sum();
        let wanted = len_bytes.min(u64::from(entry.write_bytes()));
        wanted.saturating_sub(u64::from(entry.data_out.received_bytes) + u64::from(here))
    }

    pub(super) fn receive_data_out(&mut self, mut pdu: Pdu, out: &mut Output) {
        let data = std::mem::take(&mut pdu.data);
        let header = pdu.bhs.view::<DataOutHeader>();
        if !pdu.data_digest_ok {
            self.counters.data_digest_errors += 1;
        }
        let Some(task) = self.tasks.by_tag(header.initiator_task_tag.get()) else {
            // Data that was on its way when its task ended.
            self.counters.discarded_data_out += 1;
            return;
        };
        let id = task.id;
        let discarding = task.is_discarding();
        if discarding {
            self.counters.discarded_data_out += 1;
        }
        match task.data_out.accept(&pdu, data, discarding) {
            Ok(()) => {}
            Err(Problem::NoSequence) if discarding => return,
            Err(Problem::NoSequence) => {
                let reads_only = task.write_bytes() == 0;
                let is_unsolicited = header.target_transfer_tag.get() == RESERVED_TAG;
                let harmless = task.data_out.delivered || reads_only;
                self.reject(RejectReason::ProtocolError, &pdu, out);
                // The data of the task is complete without it, or there is none.
                if harmless {
                    return;
                }
                let failure = if is_unsolicited { Failure::UnexpectedUnsolicitedData } else { Failure::TransferTag };
                self.fail_task(id, failure, true, out);
            }
            Err(Problem::Bad(reason, failure)) => {
                self.reject(reason, &pdu, out);
                self.fail_task(id, failure, true, out);
            }
            Err(Problem::Short) => self.fail_task(id, Failure::IncorrectAmountOfData, true, out),
        }
        self.data_moved(id, out);
    }

    /// After a change of a task's data: asks for more, hands it over, or sends the response that has waited for it.
    fn data_moved(&mut self, id: TaskId, out: &mut Output) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        if !task.is_discarding() {
            return advance(task, &mut self.numbers, &self.parameters, out);
        }
        task.drop_data();
        if !task.data_out.is_open()
            && let Some(result) = task.result.take()
            && let Some(task) = self.tasks.remove(id)
        {
            self.end_task(&task, *result, out);
            self.finish_logout(out);
        }
    }

    /// Fails a task for what is wrong with its data. `announced`: the shell knows the task.
    pub(super) fn fail_task(&mut self, id: TaskId, failure: Failure, announced: bool, out: &mut Output) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        if task.failure.is_some() {
            return;
        }
        self.counters.failed_tasks += 1;
        task.failure = Some(failure);
        task.drop_data();
        if announced {
            task.abandon_told = true;
            out.actions.push_back(Action::Abandon(vec![id]));
        }
    }
}

/// Hands the data over if it is complete, or asks for as much more as is allowed.
fn advance(task: &mut Task, numbers: &mut Numbers, parameters: &Parameters, out: &mut Output) {
    if let Some(data) = task.data_out.take_complete() {
        out.actions.push_back(Action::DataOut { task: task.id, data });
        return;
    }
    while let Some((offset, bytes)) = task.data_out.next_request(parameters) {
        let tag = numbers.transfer_tag();
        let stamp = numbers.stamp();
        out.pdus.push_back(OutPdu::new(
            &ReadyToTransferHeader {
                opcode: Opcode::ReadyToTransfer as u8,
                flags: 0x80,
                reserved: [0; 2],
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                lun: task.lun,
                initiator_task_tag: U32::new(task.initiator_task_tag),
                target_transfer_tag: U32::new(tag),
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                r2t_sn: U32::new(task.data_out.r2t_count),
                buffer_offset: U32::new(offset),
                desired_data_transfer_length: U32::new(bytes),
            },
            Bytes::new(),
        ));
        task.data_out.r2t_count = task.data_out.r2t_count.wrapping_add(1);
        task.data_out.asked_bytes = offset + bytes;
        task.data_out.sequences.push(Sequence::new(tag, offset, bytes));
    }
}

/// Appends a piece; joins small neighbours, each time the last is as long as the one before, so that every byte is
/// copied a few times at most.
fn push_piece(pieces: &mut DataPieces, piece: Bytes) {
    if piece.is_empty() {
        return;
    }
    pieces.push(piece);
    while let [.., before, last] = pieces.as_slice()
        && before.len() <= last.len()
        && before.len() + last.len() <= JOINED_BYTES
    {
        let mut joined = BytesMut::with_capacity(before.len() + last.len());
        joined.extend_from_slice(before);
        joined.extend_from_slice(last);
        pieces.pop();
        pieces.pop();
        pieces.push(joined.freeze());
    }
}

fn truncate(pieces: &mut DataPieces, mut len_bytes: usize) {
    pieces.retain(|piece| {
        piece.truncate(len_bytes);
        len_bytes -= piece.len();
        !piece.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(pieces: &DataPieces) -> Vec<u8> {
        pieces.iter().flatten().copied().collect()
    }

    #[test]
    fn push_piece_when_single_bytes_come_then_the_pieces_stay_few() {
        let mut pieces = DataPieces::new();
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i.to_le_bytes()[0]).collect();
        for byte in &bytes {
            push_piece(&mut pieces, Bytes::copy_from_slice(&[*byte]));
        }
        assert!(pieces.len() < 40, "{} pieces", pieces.len());
        assert_eq!(total(&pieces), bytes);
    }

    #[test]
    fn push_piece_when_pieces_are_large_then_none_is_copied() {
        let mut pieces = DataPieces::new();
        let piece = Bytes::from(vec![7; JOINED_BYTES]);
        push_piece(&mut pieces, piece.clone());
        push_piece(&mut pieces, piece.clone());
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1].as_ptr(), piece.as_ptr());
    }

    #[test]
    fn truncate_when_the_end_lies_in_a_piece_then_cuts_there() {
        let mut pieces: DataPieces = [&b"abc"[..], b"def", b"ghi"].into_iter().map(Bytes::from_static).collect();
        truncate(&mut pieces, 4);
        assert_eq!(total(&pieces), b"abcd");
        assert_eq!(pieces.len(), 2);
    }
}
