//! CHAP as iSCSI does it (RFC 7143, 12.1.3; RFC 1994): the target's side of the exchange, one-way and mutual.
//!
//! ```text
//! initiator                         target
//! CHAP_A=7,5                   ->                        Chap::choose_algorithm
//!                              <-   CHAP_A CHAP_I CHAP_C
//! CHAP_N CHAP_R [CHAP_I CHAP_C] ->                       Challenge::verify
//!                              <-   [CHAP_N CHAP_R]
//! ```
//!
//! The keys of a step come as a [`ChapKeys`]; each state consumes itself. Secrets leave this module only as hashes.

mod algorithm;
mod binary;

use thiserror::Error;

pub use self::algorithm::ChapAlgorithm;
use self::algorithm::Response;
pub use self::binary::{BinaryError, MAX_BINARY_BYTES, decode_binary, encode_hex};
use crate::environment::{ChapAccess, Credential, Environment};
use crate::negotiation::parse_number;
use crate::text::{MAX_VALUE_BYTES, Pair, TextError};

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

/// The CHAP keys of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChapKeys<'a> {
    /// CHAP_A
    pub algorithms: Option<&'a str>,
    /// CHAP_I
    pub identifier: Option<&'a str>,
    /// CHAP_C
    pub challenge: Option<&'a str>,
    /// CHAP_N
    pub name: Option<&'a str>,
    /// CHAP_R
    pub response: Option<&'a str>,
}

impl<'a> ChapKeys<'a> {
    /// Takes `pair` if it is a CHAP key; tells whether it was.
    pub fn take(&mut self, pair: &Pair<'a>) -> Result<bool, TextError> {
        let field = match pair.key {
            "CHAP_A" => &mut self.algorithms,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            _ => return Ok(false),
        };
        match field.replace(pair.value) {
            None => Ok(true),
            Some(_) => Err(TextError::DuplicateKey),
        }
    }

    /// The name of a key that is there, if there is any.
    pub fn first(&self) -> Option<&'static str> {
        let keys = [
            ("CHAP_A", self.algorithms),
            ("CHAP_I", self.identifier),
            ("CHAP_C", self.challenge),
            ("CHAP_N", self.name),
            ("CHAP_R", self.response),
        ];
        keys.into_iter().find_map(|(key, value)| value.map(|_| key))
    }
}

/// Keys and values to send, in this order.
pub type Answer<const KEYS: usize> = [(&'static str, String); KEYS];

/// CHAP was agreed on; the initiator's CHAP_A is awaited.
#[derive(Debug)]
pub struct Chap {
    access: ChapAccess,
}

/// The target's challenge is out; the initiator's response is awaited.
#[derive(Debug)]
pub struct Challenge {
    access: ChapAccess,
    algorithm: ChapAlgorithm,
    identifier: u8,
    challenge: Vec<u8>,
}

/// The initiator has shown that it knows a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The hash.
    pub algorithm: ChapAlgorithm,
    /// The initiator's CHAP_N.
    pub user: String,
    /// The target's answer, if the initiator asked for it: keys in the order to be sent.
    pub answer: Option<Answer<2>>,
}

impl Chap {
    /// Begins an exchange.
    pub fn new(access: ChapAccess) -> Self {
        Self { access }
    }

    /// Takes the first algorithm of the initiator's list that is spoken here, and challenges it: the next state and
    /// the keys to send.
    pub fn choose_algorithm(
        self,
        keys: &ChapKeys<'_>,
        environment: &dyn Environment,
    ) -> Result<(Challenge, Answer<3>), ChapError> {
        let list = keys.algorithms.ok_or(ChapError::Missing("CHAP_A"))?;
        if let Some(key) = (ChapKeys { algorithms: None, ..*keys }).first() {
            return Err(ChapError::OutOfPlace(key));
        }
        if list.len() > MAX_VALUE_BYTES {
            return Err(ChapError::Malformed("CHAP_A"));
        }
        let algorithm = list
            .split(',')
            .find_map(|number| ChapAlgorithm::from_number(parse_number(number)?))
            .ok_or(ChapError::NoCommonAlgorithm)?;
        let mut identifier = [0];
        let mut challenge = vec![0; algorithm.digest_bytes()];
        environment.fill_random(&mut identifier);
        environment.fill_random(&mut challenge);
        let [identifier] = identifier;
        let answer = [
            ("CHAP_A", algorithm.number().to_string()),
            ("CHAP_I", identifier.to_string()),
            ("CHAP_C", encode_hex(&challenge)),
        ];
        Ok((Challenge { access: self.access, algorithm, identifier, challenge }, answer))
    }
}

impl Challenge {
    /// Judges the initiator's response, and answers its challenge if it sent one.
    pub fn verify(self, keys: &ChapKeys<'_>) -> Result<Authenticated, ChapError> {
        if keys.algorithms.is_some() {
            return Err(ChapError::OutOfPlace("CHAP_A"));
        }
        let user = keys.name.ok_or(ChapError::Missing("CHAP_N"))?;
        let response = keys.response.ok_or(ChapError::Missing("CHAP_R"))?;
        if user.len() > MAX_VALUE_BYTES {
            return Err(ChapError::Malformed("CHAP_N"));
        }
        let response = decode_binary(response).map_err(|_| ChapError::Malformed("CHAP_R"))?;
        let asked = self.target_challenge(keys)?;
        self.refuse_reflection(&response, asked.as_ref())?;
        // All credentials are tried whatever comes of each, so that the time does not tell which names exist.
        let known = self.access.initiator_credentials.iter().fold(false, |known, credential| {
            let expected = self.respond(credential);
            known | (expected.matches(&response) & (credential.name == user))
        });
        if !known {
            return Err(ChapError::WrongCredentials);
        }
        let answer = match asked {
            None => None,
            Some((identifier, challenge)) => {
                let credential = self.access.target_credential.as_ref().ok_or(ChapError::NoTargetCredential)?;
                let response = self.algorithm.respond(identifier, &credential.secret, &challenge);
                Some([("CHAP_N", credential.name.clone()), ("CHAP_R", encode_hex(response.as_bytes()))])
            }
        };
        Ok(Authenticated { algorithm: self.algorithm, user: user.to_owned(), answer })
    }

    /// What the initiator wants to have answered, if it does: CHAP_I and CHAP_C come together or not at all.
    fn target_challenge(&self, keys: &ChapKeys<'_>) -> Result<Option<(u8, Vec<u8>)>, ChapError> {
        let (identifier, challenge) = match (keys.identifier, keys.challenge) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(ChapError::Missing("CHAP_I")),
            (Some(_), None) => return Err(ChapError::Missing("CHAP_C")),
            (Some(identifier), Some(challenge)) => (identifier, challenge),
        };
        let identifier = parse_number(identifier)
            .and_then(|number| u8::try_from(number).ok())
            .ok_or(ChapError::Malformed("CHAP_I"))?;
        let challenge = decode_binary(challenge).map_err(|_| ChapError::Malformed("CHAP_C"))?;
        Ok(Some((identifier, challenge)))
    }

    /// An initiator that does not know a secret must not get it used for it (RFC 7143, 9.2.1): our challenge may not
    /// come back, and neither may what our own secret would answer to it. The latter also finds one secret in both
    /// directions, which the RFC forbids.
    fn refuse_reflection(&self, response: &[u8], asked: Option<&(u8, Vec<u8>)>) -> Result<(), ChapError> {
        if asked.is_some_and(|(_, challenge)| *challenge == self.challenge) {
            return Err(ChapError::Reflected);
        }
        match &self.access.target_credential {
            Some(own) if self.respond(own).matches(response) => Err(ChapError::Reflected),
            _ => Ok(()),
        }
    }

    fn respond(&self, credential: &Credential) -> Response {
        self.algorithm.respond(self.identifier, &credential.secret, &self.challenge)
    }
}

#[cfg(test)]
mod tests;
