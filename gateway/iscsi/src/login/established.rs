//! What a finished login hands to the full feature phase.

use crate::chap::ChapAlgorithm;
use crate::name::IscsiName;
use crate::params::Parameters;

/// A connection that has reached the full feature phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// Who logged in to what.
    pub identity: SessionIdentity,
    /// Target session identifying handle, never 0.
    pub tsih: u16,
    /// Connection identifier, the initiator's choice.
    pub cid: u16,
    /// What was negotiated.
    pub parameters: Parameters,
    /// StatSN of the next response.
    pub next_stat_sn: u32,
    /// ExpCmdSN: the CmdSN of the first command to come.
    pub exp_cmd_sn: u32,
    /// MaxCmdSN as the last login response gave it; later ones may not be below.
    pub max_cmd_sn: u32,
    /// How the two sides authenticated.
    pub authentication: Authentication,
    /// The portal group that the session runs through; 0 on discovery sessions.
    pub portal_group_tag: u16,
}

/// The two ends of a session. A login with the same identity replaces the session (RFC 7143, 6.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionIdentity {
    /// InitiatorName.
    pub initiator: IscsiName,
    /// InitiatorAlias, for people; at most 255 bytes.
    pub initiator_alias: Option<String>,
    /// Initiator session identifier.
    pub isid: [u8; 6],
    /// TargetName; `None` on a discovery session.
    pub target: Option<IscsiName>,
}

/// How a session was authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// AuthMethod=None, or the security stage was skipped.
    None,
    /// AuthMethod=CHAP.
    Chap {
        /// The hash that both sides used.
        algorithm: ChapAlgorithm,
        /// CHAP_N of the initiator.
        user: String,
        /// Whether the target authenticated itself too.
        mutual: bool,
    },
}
