//! The security stage (RFC 7143, 6.3.2 and 12.1): choice of AuthMethod, and CHAP where it is required.

use super::established::Authentication;
use super::status::{FailureReason, LoginFailure};
use crate::chap::{Authenticated, Challenge, Chap, ChapError, ChapKeys};
use crate::environment::{ChapAccess, Environment};
use crate::text::{MAX_VALUE_BYTES, TextWriter};

/// How far authentication is.
#[derive(Debug)]
pub(super) enum Security {
    /// Nothing agreed yet; CHAP is required if there is an access for it.
    Open(Option<ChapAccess>),
    /// AuthMethod=CHAP agreed, CHAP_A awaited.
    Chap(Chap),
    /// Challenge sent, response awaited.
    Challenged(Challenge),
    /// Settled.
    Done(Authentication),
}

impl Security {
    /// Handles the security keys of one text; `transit` if the initiator wants to leave the stage with it.
    pub(super) fn advance(
        self,
        auth_method: Option<&str>,
        keys: &ChapKeys<'_>,
        transit: bool,
        environment: &dyn Environment,
        out: &mut TextWriter,
    ) -> Result<Self, LoginFailure> {
        let state = match self {
            Self::Open(access) => return Self::choose_method(access, auth_method, keys, transit, out),
            state => state,
        };
        if auth_method.is_some() {
            return Err(FailureReason::Key { key: "AuthMethod", problem: "proposed again" }.into());
        }
        match state {
            Self::Chap(chap) => {
                let (challenge, answer) = chap.choose_algorithm(keys, environment).map_err(FailureReason::Chap)?;
                for (key, value) in &answer {
                    out.pair(key, value);
                }
                Ok(Self::Challenged(challenge))
            }
            Self::Challenged(challenge) => {
                let Authenticated { algorithm, user, answer } = challenge.verify(keys).map_err(FailureReason::Chap)?;
                let mutual = answer.is_some();
                for (key, value) in answer.iter().flatten() {
                    out.pair(key, value);
                }
                Ok(Self::Done(Authentication::Chap { algorithm, user, mutual }))
            }
            state => {
                no_chap_keys(keys)?;
                Ok(state)
            }
        }
    }

    /// The initiator begins in the operational stage, and with that without authentication.
    pub(super) fn skip(self) -> Result<Self, LoginFailure> {
        match self {
            Self::Open(None) => Ok(Self::Done(Authentication::None)),
            Self::Done(authentication) => Ok(Self::Done(authentication)),
            _ => Err(FailureReason::AuthenticationRequired.into()),
        }
    }

    /// Whether the stage may be left.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    fn choose_method(
        access: Option<ChapAccess>,
        auth_method: Option<&str>,
        keys: &ChapKeys<'_>,
        transit: bool,
        out: &mut TextWriter,
    ) -> Result<Self, LoginFailure> {
        no_chap_keys(keys)?;
        let Some(list) = auth_method else {
            // Without a proposal the default, None, holds; whoever stays in the stage may still make one.
            return if transit { Self::Open(access).skip() } else { Ok(Self::Open(access)) };
        };
        let wanted = if access.is_some() { "CHAP" } else { "None" };
        if list.len() > MAX_VALUE_BYTES || !list.split(',').any(|method| method == wanted) {
            return Err(match access {
                Some(_) => FailureReason::AuthenticationRequired,
                None => FailureReason::NoCommonAuthMethod,
            }
            .into());
        }
        out.pair("AuthMethod", wanted);
        Ok(match access {
            Some(access) => Self::Chap(Chap::new(access)),
            None => Self::Done(Authentication::None),
        })
    }
}

fn no_chap_keys(keys: &ChapKeys<'_>) -> Result<(), LoginFailure> {
    match keys.first() {
        Some(key) => Err(FailureReason::Chap(ChapError::OutOfPlace(key)).into()),
        None => Ok(()),
    }
}
