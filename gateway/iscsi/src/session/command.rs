//! SCSI Command PDUs (RFC 7143, 11.3).
//!
//! A command that cannot be is rejected and leaves its CmdSN open, as RFC 7143, 7.3 wants it. One exception: a
//! command whose immediate data fails the digest is rejected *and* begun and ended with CHECK CONDITION. The header
//! was received well, an initiator that sends the command again with the same CmdSN is ignored and gets its status,
//! and one that does not is spared a session that hangs on the gap. A second command with the tag of an open task
//! is rejected with "task in progress" and changes nothing for the first one.

use super::Session;
use super::data_out::DataOut;
use super::sense::Failure;
use super::tasks::{Fate, Task};
use crate::output::{Action, Cdb, Output, ScsiCommand, TaskAttribute};
use crate::pdu::{Pdu, RESERVED_TAG, RejectReason, ScsiCommandHeader};
use crate::serial::SerialNumber;

/// Types of additional header segments (RFC 7143, 11.2.2.1).
const AHS_EXTENDED_CDB: u8 = 0x01;
const AHS_BIDIRECTIONAL_READ_LENGTH: u8 = 0x02;

/// Longest CDB in bytes (SPC-4, 4.2.3).
const MAX_CDB_BYTES: usize = 260;

impl Session {
    pub(super) fn execute_scsi(&mut self, mut pdu: Pdu, out: &mut Output) {
        let data = std::mem::take(&mut pdu.data);
        let header = pdu.bhs.view::<ScsiCommandHeader>();
        let request = match self.check_command(&pdu, header, data.len()) {
            Ok(request) => request,
            Err(reason) => return self.reject(reason, &pdu, out),
        };
        let immediate = pdu.bhs.immediate();
        if immediate {
            self.immediate_commands += 1;
        } else {
            self.numbers.window.command_opened();
        }
        self.accept(&pdu);
        self.counters.commands += 1;

        let first_burst = self.parameters.first_burst_length;
        let id = self.tasks.insert(header.initiator_task_tag.get(), |id| Task {
            id,
            initiator_task_tag: header.initiator_task_tag.get(),
            lun: header.lun,
            command_number: SerialNumber(header.cmd_sn.get()),
            immediate,
            read: request.read,
            write: request.write,
            expected_bytes: request.expected_bytes,
            bidirectional_read_bytes: request.bidirectional_read_bytes,
            data_out: DataOut::new(data, request.unsolicited.then(|| first_burst.min(request.expected_bytes))),
            failure: None,
            fate: Fate::Live,
            abandon_told: false,
            result: None,
        });
        if !pdu.data_digest_ok {
            // The shell never hears of it.
            self.reject(RejectReason::DataDigestError, &pdu, out);
            self.fail_task(id, Failure::DataDigest, false, out);
            return self.complete(id, super::TaskResult::default(), out);
        }
        out.actions.push_back(Action::Command(ScsiCommand {
            task: id,
            initiator_task_tag: header.initiator_task_tag.get(),
            lun: header.lun,
            cdb: request.cdb,
            attribute: request.attribute,
            read: request.read,
            write: request.write,
            expected_data_transfer_length: request.expected_bytes,
            bidirectional_read_length: request.bidirectional_read_bytes,
            immediate_data_bytes: request.immediate_bytes,
        }));
    }

    fn check_command(&self, pdu: &Pdu, header: &ScsiCommandHeader, data_bytes: usize) -> Result<Request, RejectReason> {
        let tag = header.initiator_task_tag.get();
        if tag == RESERVED_TAG {
            return Err(RejectReason::InvalidPduField);
        }
        if self.tasks.has_tag(tag) {
            return Err(RejectReason::TaskInProgress);
        }
        if pdu.bhs.immediate() && self.immediate_commands >= self.limits.max_immediate_commands {
            return Err(RejectReason::ImmediateCommandReject);
        }
        let request = Request::parse(pdu, header, data_bytes)?;
        if request.immediate_bytes > 0
            && (!self.parameters.immediate_data || request.immediate_bytes > self.parameters.first_burst_length)
        {
            return Err(RejectReason::ProtocolError);
        }
        if request.unsolicited
            && (self.parameters.initial_r2t || request.immediate_bytes >= self.parameters.first_burst_length)
        {
            return Err(RejectReason::ProtocolError);
        }
        Ok(request)
    }
}

/// A command PDU that makes sense in itself.
struct Request {
    attribute: TaskAttribute,
    read: bool,
    write: bool,
    /// Unsolicited Data-Out follows: the F bit is not set.
    unsolicited: bool,
    expected_bytes: u32,
    immediate_bytes: u32,
    bidirectional_read_bytes: Option<u32>,
    cdb: Cdb,
}

impl Request {
    fn parse(pdu: &Pdu, header: &ScsiCommandHeader, data_bytes: usize) -> Result<Self, RejectReason> {
        let attribute = match header.flags & ScsiCommandHeader::ATTR_MASK {
            0 => TaskAttribute::Untagged,
            1 => TaskAttribute::Simple,
            2 => TaskAttribute::Ordered,
            3 => TaskAttribute::HeadOfQueue,
            4 => TaskAttribute::Aca,
            _ => return Err(RejectReason::InvalidPduField),
        };
        let read = header.flags & ScsiCommandHeader::READ != 0;
        let write = header.flags & ScsiCommandHeader::WRITE != 0;
        let expected_bytes = header.expected_data_transfer_length.get();
        if !read && !write && expected_bytes != 0 {
            return Err(RejectReason::InvalidPduField);
        }
        let immediate_bytes = u32::try_from(data_bytes).map_err(|_| RejectReason::InvalidPduField)?;
        if immediate_bytes > 0 && (!write || immediate_bytes > expected_bytes) {
            return Err(RejectReason::ProtocolError);
        }
        let unsolicited = !pdu.bhs.is_final();
        if unsolicited && (!write || immediate_bytes >= expected_bytes) {
            return Err(RejectReason::ProtocolError);
        }
        let extensions = Extensions::parse(&pdu.ahs)?;
        if extensions.bidirectional_read_bytes.is_some() != (read && write) {
            return Err(RejectReason::InvalidPduField);
        }
        Ok(Self {
            attribute,
            read,
            write,
            unsolicited,
            expected_bytes,
            immediate_bytes,
            bidirectional_read_bytes: extensions.bidirectional_read_bytes,
            cdb: match extensions.cdb {
                None => Cdb::Inline(header.cdb),
                Some(rest) => Cdb::Extended([&header.cdb, rest].concat().into()),
            },
        })
    }
}

/// The additional header segments of a command (RFC 7143, 11.2.2).
#[derive(Default)]
struct Extensions<'a> {
    /// The CDB from its 17th byte on.
    cdb: Option<&'a [u8]>,
    bidirectional_read_bytes: Option<u32>,
}

impl<'a> Extensions<'a> {
    fn parse(mut ahs: &'a [u8]) -> Result<Self, RejectReason> {
        let mut extensions = Self::default();
        while let Some((&[length_high, length_low, kind], after_type)) = ahs.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([length_high, length_low]));
            // The length leaves out itself and the type; the whole segment is padded to a multiple of four.
            let padded = (length + 3).next_multiple_of(4) - 3;
            let content = after_type.get(..length).ok_or(RejectReason::InvalidPduField)?;
            match (kind & 0x3f, content) {
                (AHS_EXTENDED_CDB, [_reserved, cdb @ ..]) if extensions.cdb.is_none() => {
                    if cdb.is_empty() || cdb.len() > MAX_CDB_BYTES - 16 {
                        return Err(RejectReason::InvalidPduField);
                    }
                    extensions.cdb = Some(cdb);
                }
                (AHS_BIDIRECTIONAL_READ_LENGTH, &[_reserved, a, b, c, d])
                    if extensions.bidirectional_read_bytes.is_none() =>
                {
                    extensions.bidirectional_read_bytes = Some(u32::from_be_bytes([a, b, c, d]));
                }
                _ => return Err(RejectReason::InvalidPduField),
            }
            ahs = after_type.get(padded..).ok_or(RejectReason::InvalidPduField)?;
        }
        if ahs.is_empty() { Ok(extensions) } else { Err(RejectReason::InvalidPduField) }
    }
}
