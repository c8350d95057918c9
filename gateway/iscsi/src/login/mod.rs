//! The login phase (RFC 7143, 6.3).

mod established;
mod status;

pub use self::established::{Authentication, ChapAlgorithm, Established, SessionIdentity};
pub use self::status::{FailureReason, LoginFailure, LoginStatus};
use crate::pdu::OutPdu;

/// What a login request led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// The login goes on: send these.
    Continue(Vec<OutPdu>),
    /// The login is over without a session: send these and close the connection.
    Failed {
        /// At most one login response.
        responses: Vec<OutPdu>,
        /// For the log and the counters.
        reason: LoginFailure,
    },
    /// The full feature phase begins after these.
    Established {
        /// The final login response. No digests on it.
        responses: Vec<OutPdu>,
        /// What the session begins with.
        established: Box<Established>,
    },
}
