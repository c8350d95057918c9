//! Everything that the state machines ask of the world around them: randomness, who may log in where, which targets
//! there are, and session handles. The gateway implements [`Environment`] over its configuration, the tests over
//! fixed answers.
//!
//! The calls are answered from memory and must not block: they are made while a PDU is being handled.

use std::fmt;
use std::hint;

use thiserror::Error;

use crate::login::SessionIdentity;
use crate::name::IscsiName;

/// The world as a connection sees it.
pub trait Environment {
    /// Fills `bytes` from a cryptographically strong source: CHAP identifiers and challenges come from it.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Whether `initiator` may log in to `target`, and how it has to authenticate.
    fn target_access(&self, initiator: &IscsiName, target: &IscsiName) -> Result<Access, Refusal>;

    /// Whether `initiator` may open a discovery session, and how it has to authenticate.
    fn discovery_access(&self, initiator: &IscsiName) -> Result<Access, Refusal>;

    /// The targets that `initiator` may use, for SendTargets.
    fn targets(&self, initiator: &IscsiName) -> Vec<TargetRecord>;

    /// The TSIH of the session that this login makes (never 0), asked once, when everything else is settled.
    ///
    /// `requested` is what the initiator sent. At 0 a new session begins; one with the same identity that is still
    /// there is replaced (session reinstatement, RFC 7143, 6.3.5). Otherwise it names the session to join on
    /// connection `cid`: [`Refusal::SessionDoesNotExist`] when there is none, [`Refusal::TooManyConnections`] when
    /// this would be its second connection.
    fn assign_tsih(&self, login: &SessionIdentity, requested: u16, cid: u16) -> Result<u16, Refusal>;
}

/// The right to log in, and what it takes.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// CHAP is required if set; without it the initiator logs in by its name alone.
    pub chap: Option<ChapAccess>,
    /// Tag of the portal group that this connection came in by (RFC 7143, 13.9). Not sent on discovery sessions.
    pub portal_group_tag: u16,
    /// Sent as TargetAlias if set; at most 255 bytes of it (RFC 7143, 13.6).
    pub target_alias: Option<String>,
}

/// What CHAP has to show on a session.
#[derive(Clone, Debug)]
pub struct ChapAccess {
    /// The initiator proves that it knows one of these. Nobody gets in while there is none.
    pub initiator_credentials: Vec<Credential>,
    /// With what the target authenticates itself when the initiator asks for it. Without one such a login fails.
    pub target_credential: Option<Credential>,
}

/// A CHAP name (CHAP_N) and its secret.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Sent or expected as CHAP_N, compared byte by byte.
    pub name: String,
    /// The shared secret.
    pub secret: Secret,
}

/// A CHAP secret: any 1 to 255 bytes. Never printed, and overwritten when dropped.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// A secret has a length that CHAP cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a CHAP secret has 1 to 255 bytes, this one has {len_bytes}")]
pub struct SecretLengthError {
    /// Length of the refused secret, in bytes.
    pub len_bytes: usize,
}

impl Secret {
    /// Longest secret, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Takes any 1 to 255 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretLengthError> {
        if bytes.is_empty() || bytes.len() > Self::MAX_BYTES {
            return Err(SecretLengthError { len_bytes: bytes.len() });
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes, for the hash and nothing else.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the stores above from being dropped as dead.
        hint::black_box(&self.0);
    }
}

/// A target in the answer to SendTargets (RFC 7143, appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// Its name.
    pub name: IscsiName,
    /// Where it can be reached: `host:port` exactly as to be sent (IPv6 addresses in brackets), and the portal group
    /// tag.
    pub addresses: Vec<(String, u16)>,
}

/// Why a login is turned away. [`Refusal::status`] says how the initiator is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no such target.
    #[error("there is no such target")]
    NotFound,
    /// The initiator may not use the target.
    #[error("the initiator may not use the target")]
    Forbidden,
    /// The target was removed and is not coming back.
    #[error("the target has been removed")]
    Removed,
    /// The target is elsewhere for now: `host:port`, sent as TargetAddress.
    #[error("the target has moved for now to {0}")]
    MovedTemporarily(String),
    /// The target is elsewhere for good: `host:port`, sent as TargetAddress.
    #[error("the target has moved for good to {0}")]
    MovedPermanently(String),
    /// The gateway cannot serve now (draining, starting); the initiator may try again.
    #[error("the service is not available now")]
    ServiceUnavailable,
    /// A limit of the gateway is reached.
    #[error("a limit on sessions or memory is reached")]
    OutOfResources,
    /// The TSIH that was asked for names no session.
    #[error("the session to be joined does not exist")]
    SessionDoesNotExist,
    /// The session that was asked for has all the connections that it may have.
    #[error("the session has all the connections that it may have")]
    TooManyConnections,
    /// The session that was asked for takes no connection of this kind.
    #[error("the connection cannot join the session")]
    CannotIncludeInSession,
    /// Discovery or normal sessions are not served here.
    #[error("sessions of this type are not served here")]
    SessionTypeNotSupported,
    /// Anything that went wrong in the target.
    #[error("the target failed")]
    TargetError,
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_new_when_empty_or_too_long_then_refused() {
        assert_eq!(Secret::new(b"").unwrap_err().len_bytes, 0);
        assert_eq!(Secret::new(&[7; 256]).unwrap_err().len_bytes, 256);
        assert_eq!(Secret::new(&[7; 255]).unwrap().expose(), [7; 255]);
        assert_eq!(Secret::new(&[0]).unwrap().expose(), [0]);
    }

    #[test]
    fn secret_when_printed_then_nothing_of_it_shows() {
        let credential = Credential { name: "user".to_owned(), secret: Secret::new(b"hidden").unwrap() };
        assert_eq!(format!("{credential:?}"), "Credential { name: \"user\", secret: Secret }");
    }
}
