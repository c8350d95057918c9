//! Status-Class and Status-Detail of login responses (RFC 7143, 11.13.5) and what leads to each.

use thiserror::Error;

use crate::chap::ChapError;
use crate::environment::Refusal;
use crate::name::NameError;
use crate::negotiation::KeyError;
use crate::text::TextError;

/// Status-Class (high byte) and Status-Detail (low byte) of a login response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs, reason = "the variants carry the names of RFC 7143, 11.13.5")]
pub enum LoginStatus {
    Success = 0x0000,
    TargetMovedTemporarily = 0x0101,
    TargetMovedPermanently = 0x0102,
    InitiatorError = 0x0200,
    AuthenticationFailure = 0x0201,
    AuthorizationFailure = 0x0202,
    NotFound = 0x0203,
    TargetRemoved = 0x0204,
    UnsupportedVersion = 0x0205,
    TooManyConnections = 0x0206,
    MissingParameter = 0x0207,
    CannotIncludeInSession = 0x0208,
    SessionTypeNotSupported = 0x0209,
    SessionDoesNotExist = 0x020a,
    InvalidDuringLogin = 0x020b,
    TargetError = 0x0300,
    ServiceUnavailable = 0x0301,
    OutOfResources = 0x0302,
}

impl LoginStatus {
    /// Status-Class: 0 success, 1 redirection, 2 the initiator's error, 3 the target's.
    pub fn class(self) -> u8 {
        (self as u16).to_be_bytes()[0]
    }

    /// Status-Detail.
    pub fn detail(self) -> u8 {
        (self as u16).to_be_bytes()[1]
    }
}

impl Refusal {
    /// The status that tells the initiator.
    pub fn status(&self) -> LoginStatus {
        match self {
            Self::NotFound => LoginStatus::NotFound,
            Self::Forbidden => LoginStatus::AuthorizationFailure,
            Self::Removed => LoginStatus::TargetRemoved,
            Self::MovedTemporarily(_) => LoginStatus::TargetMovedTemporarily,
            Self::MovedPermanently(_) => LoginStatus::TargetMovedPermanently,
            Self::ServiceUnavailable => LoginStatus::ServiceUnavailable,
            Self::OutOfResources => LoginStatus::OutOfResources,
            Self::SessionDoesNotExist => LoginStatus::SessionDoesNotExist,
            Self::TooManyConnections => LoginStatus::TooManyConnections,
            Self::CannotIncludeInSession => LoginStatus::CannotIncludeInSession,
            Self::SessionTypeNotSupported => LoginStatus::SessionTypeNotSupported,
            Self::TargetError => LoginStatus::TargetError,
        }
    }
}

/// A login that ended without a session: the status that was sent, and the reason for the log and the counters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("login failed with status {:04x}: {reason}", *status as u16)]
pub struct LoginFailure {
    /// What the initiator is told.
    pub status: LoginStatus,
    /// Why.
    pub reason: FailureReason,
}

impl From<FailureReason> for LoginFailure {
    fn from(reason: FailureReason) -> Self {
        Self { status: reason.status(), reason }
    }
}

impl From<TextError> for LoginFailure {
    fn from(error: TextError) -> Self {
        FailureReason::from(error).into()
    }
}

impl From<KeyError> for LoginFailure {
    fn from(error: KeyError) -> Self {
        FailureReason::from(error).into()
    }
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FailureReason {
    /// The gateway's own rules.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// A PDU of the login breaks RFC 7143.
    #[error("{0}")]
    Protocol(&'static str),
    /// Another PDU where only login requests may come.
    #[error("a PDU with opcode {opcode:#04x} during login")]
    NotALoginRequest {
        /// Its opcode.
        opcode: u8,
    },
    /// No common version of the protocol: only version 0 is spoken.
    #[error("the initiator speaks versions {min} to {max}, only version 0 is spoken here")]
    Version {
        /// Version-min of the request.
        min: u8,
        /// Version-max of the request.
        max: u8,
    },
    /// A key's value breaks RFC 7143.
    #[error("{key}: {problem}")]
    Key {
        /// The key as the RFC spells it.
        key: &'static str,
        /// What is wrong with its value.
        problem: &'static str,
    },
    /// A key that the login cannot do without did not come.
    #[error("{0} is missing")]
    MissingKey(&'static str),
    /// A name in InitiatorName or TargetName is malformed.
    #[error("{key}: {error}")]
    Name {
        /// Which of the two.
        key: &'static str,
        /// What is wrong with it.
        error: NameError,
    },
    /// The text of a login request is malformed.
    #[error("{0}")]
    Text(#[from] TextError),
    /// SessionType is neither Normal nor Discovery.
    #[error("unknown SessionType")]
    UnknownSessionType,
    /// Nothing but authentication is offered, where none is set up for the initiator.
    #[error("AuthMethod offers nothing that is set up for the initiator")]
    NoCommonAuthMethod,
    /// CHAP is required, but the initiator did not offer it or went past it.
    #[error("CHAP is required but the initiator does not do it")]
    AuthenticationRequired,
    /// CHAP was tried and failed.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapError),
}

impl FailureReason {
    /// The status that tells the initiator.
    pub fn status(&self) -> LoginStatus {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::Protocol(_) | Self::Key { .. } | Self::Text(_) => LoginStatus::InitiatorError,
            Self::NotALoginRequest { .. } => LoginStatus::InvalidDuringLogin,
            Self::Version { .. } => LoginStatus::UnsupportedVersion,
            Self::MissingKey(_) => LoginStatus::MissingParameter,
            // No target has a malformed name.
            Self::Name { key: "TargetName", .. } => LoginStatus::NotFound,
            Self::Name { .. } => LoginStatus::InitiatorError,
            Self::UnknownSessionType => LoginStatus::SessionTypeNotSupported,
            Self::NoCommonAuthMethod | Self::AuthenticationRequired | Self::Chap(_) => {
                LoginStatus::AuthenticationFailure
            }
        }
    }
}

impl From<KeyError> for FailureReason {
    fn from(KeyError { key, problem }: KeyError) -> Self {
        Self::Key { key, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_every_refusal_then_as_in_the_table_of_the_rfc() {
        let address = || "192.0.2.1:3260".to_owned();
        for (refusal, class, detail) in [
            (Refusal::MovedTemporarily(address()), 1, 1),
            (Refusal::MovedPermanently(address()), 1, 2),
            (Refusal::Forbidden, 2, 2),
            (Refusal::NotFound, 2, 3),
            (Refusal::Removed, 2, 4),
            (Refusal::TooManyConnections, 2, 6),
            (Refusal::CannotIncludeInSession, 2, 8),
            (Refusal::SessionTypeNotSupported, 2, 9),
            (Refusal::SessionDoesNotExist, 2, 10),
            (Refusal::TargetError, 3, 0),
            (Refusal::ServiceUnavailable, 3, 1),
            (Refusal::OutOfResources, 3, 2),
        ] {
            assert_eq!((refusal.status().class(), refusal.status().detail()), (class, detail), "{refusal}");
        }
    }
}
