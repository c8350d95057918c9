//! CHAP as iSCSI does it (RFC 7143, 12.1.3; RFC 1994).

use thiserror::Error;

/// Why CHAP failed. All of these end the login with status 0201 (authentication failure).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChapError {
    /// No hash of the initiator's list is spoken here.
    #[error("no common algorithm in CHAP_A")]
    NoCommonAlgorithm,
    /// A key of this step is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A key that does not belong to this step.
    #[error("{0} is out of place")]
    OutOfPlace(&'static str),
    /// A value that does not parse.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// Wrong name or wrong response; which of the two is nobody's business.
    #[error("wrong name or secret")]
    WrongCredentials,
    /// The initiator gave our own challenge, or our own response, back to us.
    #[error("the initiator reflected our challenge or response")]
    Reflected,
    /// The initiator wants the target to authenticate itself, and there is nothing to do it with.
    #[error("mutual authentication was asked for, but the target has no credential")]
    NoTargetCredential,
}
