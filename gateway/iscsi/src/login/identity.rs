//! The keys that say who logs in to what: InitiatorName, InitiatorAlias, TargetName and SessionType (RFC 7143, 13.4,
//! 13.5, 13.7, 13.21).
//!
//! All of them have to come with the first text. The RFC forbids to declare them again; versions of libiscsi do it
//! all the same in the operational stage after CHAP, so the same value again is let pass.

use super::established::SessionIdentity;
use super::status::{FailureReason, LoginFailure};
use crate::name::IscsiName;
use crate::text::{MAX_VALUE_BYTES, Pair, TextError};

/// The identity keys of one text, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdentityKeys {
    initiator: Option<IscsiName>,
    initiator_alias: Option<String>,
    target: Option<IscsiName>,
    session_type: Option<SessionType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionType {
    Normal,
    Discovery,
}

impl IdentityKeys {
    /// Takes `pair` if it is one of the keys; tells whether it was.
    pub(super) fn take(&mut self, pair: &Pair<'_>) -> Result<bool, LoginFailure> {
        match pair.key {
            "InitiatorName" => set_once(&mut self.initiator, name("InitiatorName", pair.value)?)?,
            "TargetName" => set_once(&mut self.target, name("TargetName", pair.value)?)?,
            "InitiatorAlias" => {
                if pair.value.len() > MAX_VALUE_BYTES {
                    let problem = "more than 255 bytes";
                    return Err(FailureReason::Key { key: "InitiatorAlias", problem }.into());
                }
                set_once(&mut self.initiator_alias, pair.value.to_owned())?;
            }
            "SessionType" => {
                let session_type = match pair.value {
                    "Normal" => SessionType::Normal,
                    "Discovery" => SessionType::Discovery,
                    _ => return Err(FailureReason::UnknownSessionType.into()),
                };
                set_once(&mut self.session_type, session_type)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The identity, from the keys of the first text.
    pub(super) fn identify(self, isid: [u8; 6]) -> Result<SessionIdentity, LoginFailure> {
        let initiator = self.initiator.ok_or(FailureReason::MissingKey("InitiatorName"))?;
        let target = match self.session_type.unwrap_or(SessionType::Normal) {
            SessionType::Discovery => None,
            SessionType::Normal => Some(self.target.ok_or(FailureReason::MissingKey("TargetName"))?),
        };
        Ok(SessionIdentity { initiator, initiator_alias: self.initiator_alias, isid, target })
    }

    /// Keys of a later text must not say anything else.
    pub(super) fn agree_with(self, identity: &SessionIdentity) -> Result<(), LoginFailure> {
        let discovery = identity.target.is_none();
        let changed = |key| FailureReason::Key { key, problem: "declared again with another value" }.into();
        if self.initiator.is_some_and(|name| name != identity.initiator) {
            return Err(changed("InitiatorName"));
        }
        if !discovery && self.target.is_some() && self.target != identity.target {
            return Err(changed("TargetName"));
        }
        if self.session_type.is_some_and(|session_type| (session_type == SessionType::Discovery) != discovery) {
            return Err(changed("SessionType"));
        }
        Ok(())
    }
}

fn name(key: &'static str, value: &str) -> Result<IscsiName, LoginFailure> {
    IscsiName::parse(value).map_err(|error| FailureReason::Name { key, error }.into())
}

fn set_once<T>(field: &mut Option<T>, value: T) -> Result<(), LoginFailure> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(FailureReason::Text(TextError::DuplicateKey).into()),
    }
}
