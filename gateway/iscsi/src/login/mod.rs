//! The login phase (RFC 7143, 6.3): login requests in, login responses out, until the full feature phase begins or
//! the login fails.
//!
//! Begin reading at [`Login::receive`]. `request` checks headers, `identity` finds out who logs in to what,
//! `security` authenticates, [`crate::negotiation`] settles the operational keys. How long a login may take is the
//! shell's business; how much of anything it may bring is limited here.

mod established;
mod identity;
mod request;
mod security;
mod status;

use std::collections::BTreeSet;
use std::mem;

pub use self::established::{Authentication, Established, SessionIdentity};
use self::identity::IdentityKeys;
use self::request::{ConnectionKey, LoginStage, MAX_LOGIN_DATA_BYTES, Request, protocol};
use self::security::Security;
pub use self::status::{FailureReason, LoginFailure, LoginStatus};
pub use crate::chap::ChapAlgorithm;
use crate::chap::ChapKeys;
use crate::environment::{Access, Environment, Refusal};
use crate::negotiation::{Negotiation, Offered};
use crate::params::Parameters;
use crate::pdu::{Bhs, LoginRequestHeader, LoginResponseHeader, Opcode, OutPdu, Pdu};
use crate::text::{self, MAX_PAIRS, MAX_VALUE_BYTES, Pair, TextCollector, TextError, TextSender, TextWriter};

/// Most requests in one login. The longest honest one needs some twenty.
const MAX_REQUESTS: u32 = 256;

/// What a login begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginConfig {
    /// This target's side of the negotiation.
    pub offered: Offered,
    /// Commands that the initiator may have under way from the start: MaxCmdSN of login responses is
    /// ExpCmdSN + this - 1 (RFC 7143, 4.2.2.1). At least 1.
    pub command_window: u16,
}

impl Default for LoginConfig {
    fn default() -> Self {
        Self { offered: Offered::default(), command_window: 1 }
    }
}

/// What a PDU led to.
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

/// The login of one connection.
#[derive(Debug)]
pub struct Login {
    config: LoginConfig,
    received: u32,
    collector: TextCollector,
    sender: TextSender,
    /// Keys that may not come again.
    seen: BTreeSet<String>,
    numbers: Option<Numbers>,
    state: State,
}

/// What the first request fixes.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    connection: ConnectionKey,
    stat_sn: u32,
    exp_cmd_sn: u32,
}

#[derive(Debug)]
enum State {
    /// Before the first whole text.
    First,
    Negotiating(Box<Negotiating>),
    Over,
}

/// The initiator has said who it is and may go on.
#[derive(Debug)]
struct Negotiating {
    stage: LoginStage,
    identity: SessionIdentity,
    portal_group_tag: u16,
    security: Security,
    negotiation: Negotiation,
}

impl Login {
    /// Awaits the first login request.
    pub fn new(config: LoginConfig) -> Self {
        Self {
            config,
            received: 0,
            collector: TextCollector::default(),
            sender: TextSender::default(),
            seen: BTreeSet::new(),
            numbers: None,
            state: State::First,
        }
    }

    /// Handles one PDU of the initiator.
    pub fn receive(&mut self, pdu: Pdu, environment: &dyn Environment) -> LoginStep {
        if matches!(self.state, State::Over) {
            return LoginStep::Failed { responses: Vec::new(), reason: protocol("a PDU after the login was over") };
        }
        match self.try_receive(&pdu, environment) {
            Ok(step) => step,
            Err(reason) => self.fail(&pdu.bhs, reason),
        }
    }

    fn try_receive(&mut self, pdu: &Pdu, environment: &dyn Environment) -> Result<LoginStep, LoginFailure> {
        let request = Request::parse(pdu)?;
        self.admit(&request)?;
        if self.sender.is_sending() {
            // The initiator fetches the rest of a long response by empty requests (RFC 7143, 6.2).
            if !pdu.data.is_empty() || request.continued {
                return Err(protocol("a new text before the response was sent whole"));
            }
        } else {
            match self.collector.add(&pdu.data, request.continued)? {
                None => {
                    return Ok(LoginStep::Continue(vec![self.response(&pdu.bhs, &request, None, false)]));
                }
                Some(text) => self.process(&request, &text, environment)?,
            }
        }
        self.respond(&pdu.bhs, &request, environment)
    }

    /// Holds a request against the ones before it.
    fn admit(&mut self, request: &Request) -> Result<(), LoginFailure> {
        self.received += 1;
        if self.received > MAX_REQUESTS {
            return Err(protocol("a login that does not come to an end"));
        }
        let numbers = self.numbers.get_or_insert(Numbers {
            connection: request.connection,
            // The numbering that the initiator expects is as good as any; it begins with no session behind it.
            stat_sn: request.exp_stat_sn,
            exp_cmd_sn: request.cmd_sn,
        });
        if numbers.connection != request.connection {
            return Err(protocol("ISID, TSIH or CID changed during login"));
        }
        match &self.state {
            State::Negotiating(login) if login.stage != request.stage => {
                Err(protocol("a login request in another stage than agreed"))
            }
            _ => Ok(()),
        }
    }

    /// Handles a whole text; the answer waits in the sender.
    fn process(&mut self, request: &Request, text: &[u8], environment: &dyn Environment) -> Result<(), LoginFailure> {
        let mut out = TextWriter::default();
        let Keys { identity, auth_method, chap, mut security, mut others } =
            Keys::sort(text::parse(text)?, &mut self.seen)?;
        let mut login = match mem::replace(&mut self.state, State::Over) {
            State::Negotiating(login) => {
                identity.agree_with(&login.identity)?;
                login
            }
            _ => Box::new(self.identify(request, identity, environment, &mut out)?),
        };
        match request.stage {
            LoginStage::Security => {
                let transit = request.transit_to.is_some();
                login.security = login.security.advance(auth_method, &chap, transit, environment, &mut out)?;
                for pair in &others {
                    if let Some(answer) = login.negotiation.answer_in_security_stage(pair)? {
                        out.pair(pair.key, &answer);
                    }
                }
            }
            LoginStage::Operational | LoginStage::FullFeature => {
                login.security = login.security.skip()?;
                // Security keys have no place here and are answered like any other such key.
                others.append(&mut security);
                login.negotiation.answer(&others, &mut out)?;
            }
        }
        self.state = State::Negotiating(login);
        self.sender.start(out.finish());
        Ok(())
    }

    /// The first text: who logs in to what, and may it (RFC 7143, 6.3).
    fn identify(
        &self,
        request: &Request,
        keys: IdentityKeys,
        environment: &dyn Environment,
        out: &mut TextWriter,
    ) -> Result<Negotiating, LoginFailure> {
        let identity = keys.identify(request.connection.isid)?;
        let access = match &identity.target {
            Some(target) => environment.target_access(&identity.initiator, target),
            None => environment.discovery_access(&identity.initiator),
        };
        let Access { chap, portal_group_tag, target_alias } = access.map_err(FailureReason::Refused)?;
        let discovery = identity.target.is_none();
        if !discovery {
            out.pair("TargetPortalGroupTag", &portal_group_tag.to_string());
            if let Some(alias) = target_alias {
                out.pair("TargetAlias", shortened(&alias));
            }
        }
        Ok(Negotiating {
            stage: request.stage,
            identity,
            portal_group_tag: if discovery { 0 } else { portal_group_tag },
            security: Security::Open(chap),
            negotiation: Negotiation::new(self.config.offered.clone(), discovery, request.connection.tsih == 0),
        })
    }

    /// Sends the next piece of the answer and, with the last one, changes the stage if that was asked for.
    fn respond(
        &mut self,
        bhs: &Bhs,
        request: &Request,
        environment: &dyn Environment,
    ) -> Result<LoginStep, LoginFailure> {
        let State::Negotiating(login) = &mut self.state else {
            return Err(protocol("no login under way"));
        };
        let transit_to =
            request.transit_to.filter(|_| login.security.is_done() && self.sender.remaining() <= MAX_LOGIN_DATA_BYTES);
        match transit_to {
            Some(LoginStage::FullFeature) => self.establish(bhs, request, environment),
            Some(stage) => {
                login.stage = stage;
                Ok(LoginStep::Continue(vec![self.response(bhs, request, None, true)]))
            }
            None => Ok(LoginStep::Continue(vec![self.response(bhs, request, None, false)])),
        }
    }

    fn establish(
        &mut self,
        bhs: &Bhs,
        request: &Request,
        environment: &dyn Environment,
    ) -> Result<LoginStep, LoginFailure> {
        let State::Negotiating(login) = mem::replace(&mut self.state, State::Over) else {
            return Err(protocol("no login under way"));
        };
        let Negotiating { identity, portal_group_tag, security: Security::Done(authentication), negotiation, .. } =
            *login
        else {
            return Err(FailureReason::AuthenticationRequired.into());
        };
        let ConnectionKey { tsih, cid, .. } = request.connection;
        let tsih = environment.assign_tsih(&identity, tsih, cid).map_err(FailureReason::Refused)?;
        let parameters: Parameters = negotiation.finish();
        let response = self.response(bhs, request, Some(tsih), true);
        let header: &LoginResponseHeader = response.bhs.view();
        let established = Box::new(Established {
            identity,
            tsih,
            cid,
            parameters,
            next_stat_sn: header.stat_sn.get().wrapping_add(1),
            exp_cmd_sn: header.exp_cmd_sn.get(),
            max_cmd_sn: header.max_cmd_sn.get(),
            authentication,
            portal_group_tag,
        });
        Ok(LoginStep::Established { responses: vec![response], established })
    }

    /// A successful response with the next piece of what waits in the sender.
    fn response(&mut self, bhs: &Bhs, request: &Request, tsih: Option<u16>, transit: bool) -> OutPdu {
        const TRANSIT: u8 = 0x80;
        const CONTINUE: u8 = 0x40;
        let (piece, more) = self.sender.next_piece(MAX_LOGIN_DATA_BYTES);
        let stages = (request.stage as u8) << 2;
        let flags = match request.transit_to {
            Some(next) if transit => TRANSIT | stages | next as u8,
            _ if more => CONTINUE | stages,
            _ => stages,
        };
        let mut header = self.header(bhs, flags, LoginStatus::Success);
        if let Some(tsih) = tsih {
            header.tsih = tsih.into();
        }
        OutPdu::new(&header, piece)
    }

    fn fail(&mut self, bhs: &Bhs, reason: LoginFailure) -> LoginStep {
        self.state = State::Over;
        // Who has not begun a login gets no answer (RFC 7143, 4.2.3).
        let begun = self.numbers.is_some() || bhs.opcode() == Some(Opcode::LoginRequest);
        if !begun {
            return LoginStep::Failed { responses: Vec::new(), reason };
        }
        let mut out = TextWriter::default();
        if let FailureReason::Refused(Refusal::MovedTemporarily(address) | Refusal::MovedPermanently(address)) =
            &reason.reason
        {
            out.pair("TargetAddress", address);
        }
        const STAGE: u8 = 0x0c;
        let stage = if bhs.opcode() == Some(Opcode::LoginRequest) { bhs.0[1] & STAGE } else { 0 };
        let header = self.header(bhs, stage, reason.status);
        LoginStep::Failed { responses: vec![OutPdu::new(&header, out.finish())], reason }
    }

    /// The header of a response to `bhs`; counts StatSN on.
    fn header(&mut self, bhs: &Bhs, flags: u8, status: LoginStatus) -> LoginResponseHeader {
        let request: &LoginRequestHeader = bhs.view();
        let numbers = self.numbers.get_or_insert(Numbers {
            connection: ConnectionKey { isid: request.isid, tsih: request.tsih.get(), cid: request.cid.get() },
            stat_sn: request.exp_stat_sn.get(),
            exp_cmd_sn: request.cmd_sn.get(),
        });
        let ConnectionKey { isid, tsih, .. } = numbers.connection;
        let stat_sn = numbers.stat_sn;
        numbers.stat_sn = stat_sn.wrapping_add(1);
        let window = u32::from(self.config.command_window.max(1));
        LoginResponseHeader {
            opcode: Opcode::LoginResponse as u8,
            flags,
            version_max: 0,
            version_active: 0,
            total_ahs_length: 0,
            data_segment_length: [0; 3],
            isid,
            tsih: tsih.into(),
            initiator_task_tag: request.initiator_task_tag,
            reserved_20: 0.into(),
            stat_sn: stat_sn.into(),
            exp_cmd_sn: numbers.exp_cmd_sn.into(),
            max_cmd_sn: numbers.exp_cmd_sn.wrapping_add(window - 1).into(),
            status_class: status.class(),
            status_detail: status.detail(),
            reserved_38: 0.into(),
            reserved_end: [0; 8],
        }
    }
}

/// The pairs of one text, by whom they concern.
struct Keys<'a> {
    identity: IdentityKeys,
    auth_method: Option<&'a str>,
    chap: ChapKeys<'a>,
    others: Vec<Pair<'a>>,
    security: Vec<Pair<'a>>,
}

impl<'a> Keys<'a> {
    /// Sorts `pairs`, and refuses what came before in the same login (RFC 7143, 6.3).
    fn sort(pairs: Vec<Pair<'a>>, seen: &mut BTreeSet<String>) -> Result<Self, LoginFailure> {
        let mut keys = Self {
            identity: IdentityKeys::default(),
            auth_method: None,
            chap: ChapKeys::default(),
            others: Vec::new(),
            security: Vec::new(),
        };
        for pair in pairs {
            if keys.identity.take(&pair)? {
                continue;
            }
            if keys.chap.take(&pair)? {
                keys.security.push(pair);
                continue;
            }
            // This one may be declared anew at any time.
            if pair.key != "MaxRecvDataSegmentLength" && !seen.insert(pair.key.to_owned()) {
                return Err(TextError::DuplicateKey.into());
            }
            if seen.len() > MAX_PAIRS {
                return Err(TextError::TooManyPairs.into());
            }
            if pair.key == "AuthMethod" {
                keys.auth_method = Some(pair.value);
                keys.security.push(pair);
            } else {
                keys.others.push(pair);
            }
        }
        Ok(keys)
    }
}

/// An alias has at most 255 bytes (RFC 7143, 6.1).
fn shortened(alias: &str) -> &str {
    let end = alias.find('\0').unwrap_or(alias.len()).min(MAX_VALUE_BYTES);
    let end = (0..=end).rev().find(|&end| alias.is_char_boundary(end)).unwrap_or(0);
    &alias[..end]
}

#[cfg(test)]
mod tests;
