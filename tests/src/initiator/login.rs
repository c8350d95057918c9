//! The login phase (RFC 7143, sections 6 and 13): security negotiation, operational negotiation, and what came of it.

use std::net::SocketAddr;

use super::chap::{Algorithm, Chap};
use super::pdu::{Bhs, IMMEDIATE, Pdu, request, response};
use super::session::Session;
use super::text;
use super::wire::{Wire, WireError};

/// Stages of the login phase (RFC 7143, 11.12.3).
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const LOGIN_TAG: u32 = 0x1091_0000;
/// A login that takes more exchanges than this goes round in circles.
const MAX_EXCHANGES: usize = 64;

/// The name with which the harness logs in.
pub const INITIATOR: &str = "iqn.2026-11.io.holdfast.tests:initiator";

/// Keys whose value is a declaration: the target owes no answer (RFC 7143, section 13).
const DECLARATIVE: &[&str] =
    &["InitiatorName", "InitiatorAlias", "TargetName", "SessionType", "MaxRecvDataSegmentLength"];

/// Why a login has not succeeded.
#[derive(Debug)]
pub enum LoginError {
    /// The target has refused it with a status class and detail (RFC 7143, 11.13.5).
    Refused {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
    },
    /// Mutual CHAP: the target does not know its secret.
    TargetNotAuthentic,
    /// The target has broken the protocol.
    Protocol(String),
    /// The connection is gone.
    Wire(WireError),
}

impl std::fmt::Display for LoginError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { class, detail } => write!(formatter, "login refused: {class:02x}{detail:02x}"),
            Self::TargetNotAuthentic => write!(formatter, "the target does not know its secret"),
            Self::Protocol(what) => write!(formatter, "protocol error of the target: {what}"),
            Self::Wire(error) => write!(formatter, "{error}"),
        }
    }
}

impl std::error::Error for LoginError {}

impl From<WireError> for LoginError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn protocol(what: impl Into<String>) -> LoginError {
    LoginError::Protocol(what.into())
}

/// What a login asks for. Change the fields, then [`Login::connect`].
#[derive(Clone, Debug)]
pub struct Login {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; `None` makes a discovery session.
    pub target: Option<String>,
    /// The initiator's part of the session id.
    pub isid: [u8; 6],
    /// The target's part: 0 for a new session.
    pub tsih: u16,
    /// Connection id.
    pub cid: u16,
    /// CHAP. Without it, the login begins in the operational stage.
    pub chap: Option<Chap>,
    /// A value of AuthMethod to send instead of `CHAP`; without CHAP, makes the login begin in the security stage.
    pub auth_method: Option<String>,
    /// Operational keys, in the order in which they are sent.
    pub keys: Vec<(String, String)>,
    /// Splits the text of each request in pieces of so many bytes, continued by the C bit.
    pub piece_len_bytes: Option<usize>,
    /// The first CmdSN.
    pub first_cmd_sn: u32,
}

impl Login {
    /// A normal session to `target`.
    pub fn to(target: &str) -> Self {
        let mut login = Self::discovery();
        login.target = Some(target.to_owned());
        for (key, value) in [
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxBurstLength", "262144"),
            ("FirstBurstLength", "65536"),
            ("MaxOutstandingR2T", "4"),
            ("MaxConnections", "1"),
            ("DataPDUInOrder", "Yes"),
            ("DataSequenceInOrder", "Yes"),
        ] {
            login = login.with(key, value);
        }
        login
    }

    /// A discovery session.
    pub fn discovery() -> Self {
        // A random-type ISID (RFC 7143, 11.12.5): each session of a process has its own, as an initiator with several
        // sessions to a target must.
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_be_bytes();
        let mut login = Self {
            initiator: INITIATOR.to_owned(),
            target: None,
            isid: [0x80, 0x48, 0x46, number[1], number[2], number[3]],
            tsih: 0,
            cid: 0,
            chap: None,
            auth_method: None,
            keys: Vec::new(),
            piece_len_bytes: None,
            first_cmd_sn: 1,
        };
        for (key, value) in [
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "0"),
            ("ErrorRecoveryLevel", "0"),
            ("MaxRecvDataSegmentLength", "262144"),
        ] {
            login = login.with(key, value);
        }
        login
    }

    /// Sends another value for an operational key, or one more key.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        match self.keys.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value.to_owned(),
            None => self.keys.push((key.to_owned(), value.to_owned())),
        }
        self
    }

    /// Sends another initiator name.
    #[must_use]
    pub fn as_initiator(mut self, name: &str) -> Self {
        self.initiator = name.to_owned();
        self
    }

    /// Authenticates by CHAP.
    #[must_use]
    pub fn with_chap(mut self, chap: Chap) -> Self {
        self.chap = Some(chap);
        self
    }

    /// Asks for digests in both kinds: `CRC32C`, `None`, or a list.
    #[must_use]
    pub fn with_digests(self, header: &str, data: &str) -> Self {
        self.with("HeaderDigest", header).with("DataDigest", data)
    }

    /// Connects and logs in.
    pub fn connect(&self, portal: SocketAddr) -> Result<Session, LoginError> {
        self.log_in(Wire::connect(portal)?)
    }

    /// Logs in over a connection that is already there.
    pub fn log_in(&self, wire: Wire) -> Result<Session, LoginError> {
        let mut exchange = Exchange {
            wire,
            login: self,
            exp_stat_sn: None,
            tsih: self.tsih,
            exp_cmd_sn: self.first_cmd_sn,
            max_cmd_sn: self.first_cmd_sn,
        };
        let mut first = self.identification();
        if let Some(chap) = &self.chap {
            exchange.chap(chap, &mut first)?;
        } else if let Some(methods) = &self.auth_method {
            first.push(("AuthMethod".to_owned(), methods.clone()));
            exchange.transit(SECURITY, OPERATIONAL, &first)?;
            first.clear();
        }
        first.extend(self.keys.iter().cloned());
        let answers = exchange.transit(OPERATIONAL, FULL_FEATURE, &first)?;
        let negotiated = Negotiated::from_answers(&self.keys, answers)?;
        let Exchange { mut wire, exp_stat_sn, tsih, exp_cmd_sn, max_cmd_sn, .. } = exchange;
        if tsih == 0 {
            return Err(protocol("no TSIH in the last login response"));
        }
        wire.set_digests(negotiated.header_digest, negotiated.data_digest);
        let exp_stat_sn = exp_stat_sn.ok_or_else(|| protocol("no login response"))?;
        Ok(Session::new(wire, negotiated, tsih, exp_stat_sn, exp_cmd_sn, max_cmd_sn))
    }

    fn identification(&self) -> Vec<(String, String)> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut pairs = vec![pair("InitiatorName", &self.initiator)];
        match &self.target {
            Some(target) => pairs.extend([pair("SessionType", "Normal"), pair("TargetName", target)]),
            None => pairs.push(pair("SessionType", "Discovery")),
        }
        pairs
    }

    /// The header of a login request in these stages; sequence numbers are still to be set.
    pub fn request_header(&self, flags: u8) -> Bhs {
        Bhs::new(request::LOGIN | IMMEDIATE, flags)
            .with_bytes(8, &self.isid)
            .with_u16(14, self.tsih)
            .with_task_tag(LOGIN_TAG)
            .with_u16(20, self.cid)
            .with_u32(24, self.first_cmd_sn)
    }
}

type Pairs = Vec<(String, String)>;

struct Exchange<'a> {
    wire: Wire,
    login: &'a Login,
    exp_stat_sn: Option<u32>,
    tsih: u16,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
}

impl Exchange<'_> {
    /// Sends `pairs` and empty requests after them until the target transits to `next`; returns all it has answered.
    fn transit(&mut self, current: u8, next: u8, pairs: &[(String, String)]) -> Result<Pairs, LoginError> {
        let (mut answers, mut done) = self.ask(current, Some(next), pairs)?;
        for _ in 0..MAX_EXCHANGES {
            if done {
                return Ok(answers);
            }
            let (more, transited) = self.ask(current, Some(next), &[])?;
            answers.extend(more);
            done = transited;
        }
        Err(protocol("the login does not end"))
    }

    /// One request, in pieces if wanted, and its whole answer. Also tells whether the target has transited.
    fn ask(&mut self, current: u8, next: Option<u8>, pairs: &[(String, String)]) -> Result<(Pairs, bool), LoginError> {
        let stages = current << 2 | next.unwrap_or(0);
        let transit = if next.is_some() { TRANSIT } else { 0 };
        let text = text::encode(pairs);
        let mut pieces = text.chunks(self.login.piece_len_bytes.unwrap_or(8192)).peekable();
        let mut answer = loop {
            let piece = pieces.next().unwrap_or_default();
            if pieces.peek().is_none() {
                break self.send_and_receive(transit | stages, piece)?;
            }
            let acknowledged = self.send_and_receive(CONTINUE | current << 2, piece)?;
            if !acknowledged.data.is_empty() || acknowledged.bhs.flags() & (TRANSIT | CONTINUE) != 0 {
                return Err(protocol("a request that is not complete was answered"));
            }
        };
        let mut text = answer.data.clone();
        while answer.bhs.flags() & CONTINUE != 0 {
            answer = self.send_and_receive(current << 2, &[])?;
            text.extend_from_slice(&answer.data);
        }
        let flags = answer.bhs.flags();
        let transited = flags & TRANSIT != 0;
        if flags >> 2 & 3 != current || transited && Some(flags & 3) != next {
            return Err(protocol(format!("stages {flags:02x} in answer to {stages:02x}")));
        }
        let answers = text::decode(&text).map_err(|error| protocol(error.to_string()))?;
        Ok((answers, transited))
    }

    fn send_and_receive(&mut self, flags: u8, data: &[u8]) -> Result<Pdu, LoginError> {
        let header = self.login.request_header(flags).with_u32(28, self.exp_stat_sn.unwrap_or(0));
        self.wire.send(header, &[], data)?;
        let answer = self.wire.receive()?;
        let bhs = &answer.bhs;
        if bhs.opcode() != response::LOGIN || bhs.task_tag() != LOGIN_TAG || bhs.0[8..14] != self.login.isid {
            return Err(protocol(format!("not an answer to the login request: {bhs:02x?}")));
        }
        if bhs.0[36] != 0 {
            return Err(LoginError::Refused { class: bhs.0[36], detail: bhs.0[37] });
        }
        let stat_sn = bhs.u32_at(24);
        if self.exp_stat_sn.is_some_and(|expected| expected != stat_sn) {
            return Err(protocol(format!("StatSN {stat_sn}, not {:?}", self.exp_stat_sn)));
        }
        self.exp_stat_sn = Some(stat_sn.wrapping_add(1));
        self.exp_cmd_sn = bhs.u32_at(28);
        self.max_cmd_sn = bhs.u32_at(32);
        self.tsih = bhs.u16_at(14);
        Ok(answer)
    }

    /// CHAP in the security stage (RFC 7143, 12.1.3).
    fn chap(&mut self, chap: &Chap, first: &mut Pairs) -> Result<(), LoginError> {
        let methods = self.login.auth_method.clone().unwrap_or_else(|| "CHAP".to_owned());
        first.push(("AuthMethod".to_owned(), methods));
        let (answers, transited) = self.ask(SECURITY, None, first)?;
        first.clear();
        let chosen = text::find(&answers, "AuthMethod");
        if transited || chosen != Some("CHAP") {
            return Err(protocol(format!("AuthMethod={chosen:?} in answer to CHAP")));
        }
        let numbers: Vec<&str> = chap.algorithms.iter().map(|algorithm| algorithm.number()).collect();
        let (challenge, _) = self.ask(SECURITY, None, &[("CHAP_A".to_owned(), numbers.join(","))])?;
        let (algorithm, identifier, bytes) = parse_challenge(&challenge)?;
        if !chap.algorithms.contains(&algorithm) {
            return Err(protocol("an algorithm that was not offered"));
        }
        let proof = algorithm.response(identifier, &chap.own.secret, &bytes);
        let mut pairs = vec![
            ("CHAP_N".to_owned(), chap.own.name.clone()),
            ("CHAP_R".to_owned(), text::encode_binary(&proof, chap.form)),
        ];
        let mut own = (identifier.wrapping_add(77), vec![0; bytes.len()]);
        getrandom::fill(&mut own.1).map_err(|error| protocol(error.to_string()))?;
        if chap.reflect {
            own = (identifier, bytes);
        }
        if chap.target.is_some() || chap.reflect {
            pairs.push(("CHAP_I".to_owned(), own.0.to_string()));
            pairs.push(("CHAP_C".to_owned(), text::encode_binary(&own.1, chap.form)));
        }
        let answers = self.transit(SECURITY, OPERATIONAL, &pairs)?;
        let Some(target) = &chap.target else { return Ok(()) };
        let name = text::find(&answers, "CHAP_N").ok_or_else(|| protocol("no CHAP_N of the target"))?;
        let proof = text::find(&answers, "CHAP_R").ok_or_else(|| protocol("no CHAP_R of the target"))?;
        let proof = text::decode_binary(proof).map_err(|error| protocol(error.to_string()))?;
        if name != target.name || proof != algorithm.response(own.0, &target.secret, &own.1) {
            return Err(LoginError::TargetNotAuthentic);
        }
        Ok(())
    }
}

fn parse_challenge(answers: &[(String, String)]) -> Result<(Algorithm, u8, Vec<u8>), LoginError> {
    let value = |key| text::find(answers, key).ok_or_else(|| protocol(format!("no {key}")));
    let algorithm = Algorithm::from_number(value("CHAP_A")?).ok_or_else(|| protocol("unknown CHAP_A"))?;
    let identifier = value("CHAP_I")?.parse().map_err(|_| protocol("CHAP_I is no byte"))?;
    let challenge = text::decode_binary(value("CHAP_C")?).map_err(|error| protocol(error.to_string()))?;
    if challenge.len() < 16 {
        return Err(protocol(format!("a challenge of {} bytes", challenge.len())));
    }
    Ok((algorithm, identifier, challenge))
}

/// What initiator and target have agreed on.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// The initiator's MaxRecvDataSegmentLength: the most a PDU of the target may carry.
    pub max_recv_len_bytes: usize,
    /// The target's MaxRecvDataSegmentLength: the most a PDU to the target may carry.
    pub max_send_len_bytes: usize,
    /// MaxBurstLength.
    pub max_burst_len_bytes: usize,
    /// FirstBurstLength.
    pub first_burst_len_bytes: usize,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: usize,
    /// Every answer of the target in the operational stage, as it came.
    pub answers: Vec<(String, String)>,
}

impl Negotiated {
    fn from_answers(offers: &[(String, String)], answers: Pairs) -> Result<Self, LoginError> {
        for (key, offer) in offers.iter().filter(|(key, _)| !DECLARATIVE.contains(&key.as_str())) {
            let answer = text::find(&answers, key).ok_or_else(|| protocol(format!("no answer to {key}={offer}")))?;
            check_answer(key, offer, answer)?;
        }
        // An answered key is the result; one that was not offered keeps the RFC's default.
        let number = |key: &str, default: usize| {
            text::find(&answers, key).and_then(|value| value.parse().ok()).unwrap_or(default)
        };
        let is =
            |key: &str, value: &str, default: bool| text::find(&answers, key).map_or(default, |answer| answer == value);
        let declared = text::find(offers, "MaxRecvDataSegmentLength").and_then(|value| value.parse().ok());
        Ok(Self {
            header_digest: is("HeaderDigest", "CRC32C", false),
            data_digest: is("DataDigest", "CRC32C", false),
            max_recv_len_bytes: declared.unwrap_or(8192),
            max_send_len_bytes: number("MaxRecvDataSegmentLength", 8192),
            max_burst_len_bytes: number("MaxBurstLength", 262_144),
            first_burst_len_bytes: number("FirstBurstLength", 65_536),
            initial_r2t: is("InitialR2T", "Yes", true),
            immediate_data: is("ImmediateData", "Yes", true),
            max_outstanding_r2t: number("MaxOutstandingR2T", 1),
            answers,
        })
    }
}

/// Whether the answer is one that the offer allows (RFC 7143, 6.2.1 to 6.2.3 and section 13).
fn check_answer(key: &str, offer: &str, answer: &str) -> Result<(), LoginError> {
    if ["Reject", "Irrelevant", "NotUnderstood"].contains(&answer) {
        return Ok(());
    }
    let numbers = (offer.parse::<u64>(), answer.parse::<u64>());
    let allowed = match (key, numbers) {
        ("DefaultTime2Wait", (Ok(offer), Ok(answer))) => answer >= offer,
        (_, (Ok(offer), Ok(answer))) => answer <= offer,
        ("InitialR2T" | "DataPDUInOrder" | "DataSequenceInOrder", _) => answer == "Yes" || offer == "No",
        ("ImmediateData", _) => answer == "No" || offer == "Yes",
        _ => offer.split(',').any(|choice| choice == answer),
    };
    if allowed { Ok(()) } else { Err(protocol(format!("{key}={answer} in answer to {offer}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_answer_when_outside_the_offer_then_error() {
        for (key, offer, answer, allowed) in [
            ("MaxBurstLength", "262144", "262144", true),
            ("MaxBurstLength", "262144", "524288", false),
            ("DefaultTime2Wait", "2", "3", true),
            ("DefaultTime2Wait", "2", "1", false),
            ("InitialR2T", "Yes", "No", false),
            ("InitialR2T", "No", "Yes", true),
            ("ImmediateData", "No", "Yes", false),
            ("HeaderDigest", "CRC32C,None", "None", true),
            ("HeaderDigest", "CRC32C", "None", false),
            ("X-com.example.key", "1", "NotUnderstood", true),
        ] {
            assert_eq!(check_answer(key, offer, answer).is_ok(), allowed, "{key}={offer}: {answer}");
        }
    }

    #[test]
    fn from_answers_when_a_key_is_not_answered_then_error() {
        let offers = vec![("MaxBurstLength".to_owned(), "1024".to_owned())];
        assert!(Negotiated::from_answers(&offers, Vec::new()).is_err());
    }

    #[test]
    fn discovery_when_made_twice_then_isids_differ() {
        assert_ne!(Login::discovery().isid, Login::discovery().isid);
    }
}
