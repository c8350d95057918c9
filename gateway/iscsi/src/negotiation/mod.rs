//! Negotiation of the operational keys (RFC 7143, 6.2 and section 13).
//!
//! [`table::KEYS`] says what each key is; [`Negotiation`] answers them one text at a time and ends in a
//! [`Parameters`]. Names, authentication and SendTargets are found in the table too, but belong to [`crate::login`],
//! [`crate::chap`] and [`crate::text_request`].

mod offered;
pub mod table;
mod value;

use thiserror::Error;

pub use self::offered::Offered;
use self::table::{Key, Kind, MAX_LENGTH, MIN_LENGTH, Relevance, Stage};
pub use self::value::{BooleanResult, NumberResult, boolean, first_common, parse_boolean, parse_number};
use crate::params::Parameters;
use crate::text::{Pair, TextWriter};

/// Answer to a value that is not allowed, or to a key that is not allowed here.
pub const REJECT: &str = "Reject";
/// Answer to a key that means nothing on this session.
pub const IRRELEVANT: &str = "Irrelevant";
/// Answer to a key that is not known.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";

/// A value that ends the login: it has no answer in which it could be refused, or contradicts what is agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{key}: {problem}")]
pub struct KeyError {
    /// The key as the RFC spells it.
    pub key: &'static str,
    /// What is wrong with its value.
    pub problem: &'static str,
}

/// The negotiation of one connection's parameters during login.
#[derive(Debug)]
pub struct Negotiation {
    offered: Offered,
    parameters: Parameters,
    discovery: bool,
    leading: bool,
    first_burst_agreed: bool,
    declared: bool,
}

impl Negotiation {
    /// Begins with the RFC's defaults. `discovery`: on a discovery session; `leading`: for the first connection of a
    /// session (TSIH 0).
    pub fn new(offered: Offered, discovery: bool, leading: bool) -> Self {
        let parameters = Parameters::default();
        Self { offered, parameters, discovery, leading, first_burst_agreed: false, declared: false }
    }

    /// Answers the pairs of one text of the operational stage, and declares the target's own
    /// MaxRecvDataSegmentLength with the first.
    pub fn answer(&mut self, pairs: &[Pair<'_>], out: &mut TextWriter) -> Result<(), KeyError> {
        // Whether FirstBurstLength means anything, and what it may be, depends on keys that may stand behind it.
        let (last, first): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.key == "FirstBurstLength");
        for pair in first.into_iter().chain(last) {
            if let Some(answer) = self.answer_one(pair, Stage::Operational)? {
                out.pair(pair.key, &answer);
            }
        }
        if !self.declared {
            self.declared = true;
            let length = self.offered.max_recv_data_segment_length.clamp(MIN_LENGTH, MAX_LENGTH);
            self.parameters.max_recv_data_segment_length = length;
            out.pair("MaxRecvDataSegmentLength", &length.to_string());
        }
        Ok(())
    }

    /// Refuses what cannot stand in the security stage, where nothing operational is negotiated. `None`: the key has
    /// no answer.
    pub fn answer_in_security_stage(&mut self, pair: &Pair<'_>) -> Result<Option<String>, KeyError> {
        self.answer_one(pair, Stage::Security)
    }

    /// What was agreed on.
    pub fn finish(mut self) -> Parameters {
        // A FirstBurstLength that was never spoken of is its default, which the agreed MaxBurstLength may undercut.
        let parameters = &mut self.parameters;
        parameters.first_burst_length = parameters.first_burst_length.min(parameters.max_burst_length);
        self.parameters
    }

    fn answer_one(&mut self, pair: &Pair<'_>, stage: Stage) -> Result<Option<String>, KeyError> {
        let Some(key) = table::find(pair.key) else {
            return Ok(Some(NOT_UNDERSTOOD.to_owned()));
        };
        if !key.usage.allows(stage) {
            return Ok(Some(REJECT.to_owned()));
        }
        if key.leading_only && !self.leading && !matches!(key.kind, Kind::Identity | Kind::Ignored) {
            return Ok(Some(REJECT.to_owned()));
        }
        if !self.is_relevant(key) {
            return Ok(Some(IRRELEVANT.to_owned()));
        }
        let answer = match key.kind {
            Kind::Number { .. } => self.number(key, pair.value)?,
            Kind::Boolean { result, own, set } => match parse_boolean(pair.value) {
                Some(proposed) => {
                    let agreed = result.of(proposed, own(&self.offered));
                    set(&mut self.parameters, agreed);
                    boolean(agreed).to_owned()
                }
                None => REJECT.to_owned(),
            },
            Kind::List { own, set } => match first_common(pair.value, own(&self.offered)) {
                Some(chosen) => {
                    set(&mut self.parameters, chosen);
                    chosen.to_owned()
                }
                None => REJECT.to_owned(),
            },
            Kind::MaxRecvDataSegmentLength => {
                self.parameters.max_send_data_segment_length = parse_max_recv_data_segment_length(pair.value)?;
                return Ok(None);
            }
            Kind::Marker => boolean(false).to_owned(),
            Kind::MarkerInterval | Kind::Target | Kind::Authentication | Kind::SendTargets => REJECT.to_owned(),
            Kind::Identity | Kind::Ignored => return Ok(None),
        };
        Ok(Some(answer))
    }

    fn is_relevant(&self, key: &Key) -> bool {
        match key.relevance {
            Relevance::Always => true,
            Relevance::NormalSession => !self.discovery,
            Relevance::UnsolicitedData => {
                !self.discovery && (self.parameters.immediate_data || !self.parameters.initial_r2t)
            }
        }
    }

    fn number(&mut self, key: &Key, value: &str) -> Result<String, KeyError> {
        let Kind::Number { result, min, max, own, set } = key.kind else {
            return Ok(REJECT.to_owned());
        };
        let proposed = parse_number(value).and_then(|number| u32::try_from(number).ok());
        let Some(proposed) = proposed.filter(|number| (min..=max).contains(number)) else {
            return Ok(REJECT.to_owned());
        };
        let agreed = result.of(proposed, own(&self.offered, &self.parameters).clamp(min, max));
        set(&mut self.parameters, agreed);
        match key.name {
            "FirstBurstLength" => self.first_burst_agreed = true,
            "MaxBurstLength" if self.first_burst_agreed && self.parameters.first_burst_length > agreed => {
                return Err(KeyError { key: key.name, problem: "lower than the agreed FirstBurstLength" });
            }
            _ => {}
        }
        Ok(agreed.to_string())
    }
}

/// The initiator's MaxRecvDataSegmentLength, in bytes (RFC 7143, 13.12). It has no answer, so a bad one is an error.
pub fn parse_max_recv_data_segment_length(value: &str) -> Result<u32, KeyError> {
    parse_number(value)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| (MIN_LENGTH..=MAX_LENGTH).contains(number))
        .ok_or(KeyError { key: "MaxRecvDataSegmentLength", problem: "not a number of 512 to 16777215" })
}

#[cfg(test)]
mod tests;
