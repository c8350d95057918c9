//! What the shell sets for a session, and what a session counts.

use std::time::Duration;

/// Limits of a session that are not negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// How many non-immediate SCSI commands may be open at a time, 1 to 65535.
    pub command_window: u16,
    /// How many immediate SCSI commands may be open at a time; more are rejected (RFC 7143, 4.2.2.1).
    pub max_immediate_commands: u16,
    /// How many task management functions may wait for tasks to settle at a time.
    pub max_task_management: u16,
    /// After this much silence of the initiator a NOP-In asks whether it is there.
    pub nop_interval: Duration,
    /// After this much more silence it is taken for dead.
    pub nop_timeout: Duration,
    /// A discovery session, on which there is no NOP, is closed after this much silence.
    pub discovery_idle_timeout: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            command_window: 128,
            max_immediate_commands: 8,
            max_task_management: 16,
            nop_interval: Duration::from_secs(5),
            nop_timeout: Duration::from_secs(5),
            discovery_idle_timeout: Duration::from_secs(60),
        }
    }
}

/// Events of a session that are worth a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SCSI commands accepted.
    pub commands: u64,
    /// Rejects sent.
    pub rejects: u64,
    /// Requests with a CmdSN outside the window or received before.
    pub ignored_requests: u64,
    /// Data-Out PDUs for tasks that do not want them any more, or are not known.
    pub discarded_data_out: u64,
    /// Data segments whose digest did not match.
    pub data_digest_errors: u64,
    /// Tasks that ended because of how their data came.
    pub failed_tasks: u64,
    /// Tasks aborted by the initiator or by other nexuses.
    pub aborted_tasks: u64,
    /// Task management functions received.
    pub task_management: u64,
    /// NOP-Ins sent to see whether the initiator is there.
    pub pings: u64,
}
