//! What the state machines of this crate hand to the shell: PDUs to send, and actions to carry out.
//!
//! An [`Output`] belongs to the caller, who passes it in, drains it and passes it in again, so that steady traffic
//! allocates nothing here. PDUs are to be sent in the order of [`Output::pdus`]: StatSN is already in them. Actions
//! are to be carried out in the order of [`Output::actions`]; between the two queues there is no order, except that
//! [`Action::Established`] and [`Action::Close`] take effect after the PDUs queued so far.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::frame::FrameError;
use crate::login::{Established, LoginFailure};
use crate::pdu::OutPdu;

/// PDUs and actions that a state machine has produced.
#[derive(Debug, Default)]
pub struct Output {
    /// To be sent in this order.
    pub pdus: VecDeque<OutPdu>,
    /// To be carried out in this order.
    pub actions: VecDeque<Action>,
}

impl Output {
    /// Whether there is nothing to send and nothing to do.
    pub fn is_empty(&self) -> bool {
        self.pdus.is_empty() && self.actions.is_empty()
    }
}

/// A task of one session; never used twice in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub(crate) u64);

impl TaskId {
    /// A number for logs and maps.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

/// The pieces of a data buffer, in order. Most commands have one.
pub type DataPieces = SmallVec<[Bytes; 2]>;

/// What the shell has to do.
#[derive(Debug)]
pub enum Action {
    /// Login is done. Digests change from the next PDU on, both ways. The shell registers the session.
    Established(Box<Established>),
    /// A SCSI command, in the order of CmdSN. Unsolicited data of it may still be arriving. The shell answers by
    /// [`Session::transfer_out`](crate::session::Session::transfer_out), where the command takes data, and in any
    /// case ends it by exactly one [`Session::complete`](crate::session::Session::complete).
    Command(ScsiCommand),
    /// All data that was asked for by `transfer_out` is here, at most as much as was asked for: less where the
    /// initiator's Expected Data Transfer Length is less.
    DataOut {
        /// The task that asked.
        task: TaskId,
        /// Its data.
        data: DataPieces,
    },
    /// The outcome of these tasks no longer matters to the initiator: whatever of them has not been sent to storage
    /// is to be dropped. No `DataOut` follows for them. The shell still calls `complete`, with any result, once for each, when it is
    /// settled that the task will have no effect from now on.
    Abandon(Vec<TaskId>),
    /// The own tasks that the function covers are settled. The shell does what concerns other nexuses, then calls
    /// [`Session::complete_task_management`](crate::session::Session::complete_task_management).
    TaskManagement(TaskManagement),
    /// What `abort_from_other_nexus` with this token covered is settled.
    AbortsSettled(u64),
    /// Send what is queued, then close the connection. Comes once.
    Close(CloseReason),
}

/// A SCSI command as the initiator gave it (RFC 7143, 11.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// Its name towards the session.
    pub task: TaskId,
    /// Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// LUN in SAM's eight-byte format.
    pub lun: [u8; 8],
    /// Command descriptor block.
    pub cdb: Cdb,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// R bit: the initiator expects Data-In.
    pub read: bool,
    /// W bit: the initiator has Data-Out.
    pub write: bool,
    /// Expected Data Transfer Length in bytes.
    pub expected_data_transfer_length: u32,
    /// Of a bidirectional command: Expected Bidirectional Read Data Transfer Length in bytes (RFC 7143, 11.2.2.4).
    pub bidirectional_read_length: Option<u32>,
    /// Bytes of data that came with the command PDU.
    pub immediate_data_bytes: u32,
}

/// A command descriptor block: 16 bytes, or longer with an Extended CDB AHS (RFC 7143, 11.2.2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cdb {
    /// The 16 bytes of the BHS; shorter CDBs are padded there by the initiator.
    Inline([u8; 16]),
    /// 17 to 260 bytes.
    Extended(Box<[u8]>),
}

impl Cdb {
    /// The bytes: 16 to 260.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Extended(bytes) => bytes,
        }
    }
}

/// Task attribute (RFC 7143, 11.3.1; SAM-5, 8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants carry the names of the standard")]
pub enum TaskAttribute {
    Untagged,
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// A task management function whose own tasks are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagement {
    /// Names the request towards the session.
    pub token: u64,
    /// What is asked for.
    pub function: TaskFunction,
    /// LUN in SAM's eight-byte format; without meaning for the target resets.
    pub lun: [u8; 8],
}

/// Task management functions that reach the shell (RFC 7143, 11.5.1). ABORT TASK is the session's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants carry the names of RFC 7143, 11.5.1")]
pub enum TaskFunction {
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    /// As the warm reset; in the end all sessions of the target are closed, this one by the session itself.
    TargetColdReset,
}

/// How a task management function ended (RFC 7143, 11.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants carry the names of RFC 7143, 11.6.1")]
#[repr(u8)]
pub enum TaskManagementOutcome {
    Complete = 0,
    TaskDoesNotExist = 1,
    LunDoesNotExist = 2,
    TaskStillAllegiant = 3,
    ReassignmentNotSupported = 4,
    NotSupported = 5,
    AuthorizationFailed = 6,
    Rejected = 255,
}

/// How a SCSI command ended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TaskResult {
    /// SAM status byte.
    pub status: u8,
    /// Sense data without iSCSI's length prefix; empty where there is none.
    pub sense: Bytes,
    /// All data for the initiator. What exceeds its Expected Data Transfer Length is not sent but counted as residual.
    pub data_in: DataPieces,
    /// Bytes that the CDB takes from the initiator; the residual of a write is counted against it.
    pub data_out_wanted: u64,
}

/// Why a connection is closed: for the log and for counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The initiator logged out.
    LoggedOut,
    /// Login was refused.
    LoginFailed(LoginFailure),
    /// Login was not done in time.
    LoginTimeout,
    /// The initiator broke the protocol beyond what a Reject can answer.
    ProtocolError(&'static str),
    /// The byte stream could not be understood.
    Frame(FrameError),
    /// Neither a PDU nor the answer to a NOP-In came in time.
    InitiatorDead,
    /// The initiator was asked to log out and did not.
    LogoutOverdue,
    /// A new login took this session's place.
    Replaced,
    /// TARGET COLD RESET.
    TargetReset,
    /// The target shuts down or withdraws the initiator's access.
    Administrative,
}
