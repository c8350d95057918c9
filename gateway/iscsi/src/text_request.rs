//! Text requests of the full feature phase (RFC 7143, 11.10 and 11.11, appendix C): SendTargets and the few keys that
//! may be declared anew, with continuation of long texts in both directions.
//!
//! One exchange is under way at a time on a connection; a request with the reserved Target Transfer Tag begins
//! another and forgets the one before (RFC 7143, 11.10.4).

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::environment::{Environment, TargetRecord};
use crate::login::SessionIdentity;
use crate::name::IscsiName;
use crate::negotiation::table::{self, Kind, Stage};
use crate::negotiation::{NOT_UNDERSTOOD, REJECT, parse_max_recv_data_segment_length};
use crate::params::Parameters;
use crate::pdu::{RESERVED_TAG, RejectReason, TextRequestHeader};
use crate::text::{self, TextCollector, TextSender, TextWriter};

const FINAL: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// How a text request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOutcome {
    /// By a text response with these fields.
    Respond {
        /// F bit: the exchange is over.
        final_bit: bool,
        /// C bit: the text goes on in the next response.
        continue_bit: bool,
        /// Target Transfer Tag, with which the initiator goes on; reserved when the exchange is over.
        target_transfer_tag: u32,
        /// Data segment, at most as long as the initiator takes.
        data: Bytes,
    },
    /// By a Reject. The exchange is forgotten.
    Reject(RejectReason),
}

/// The text exchange of one connection.
#[derive(Debug)]
pub struct TextExchange {
    current: Option<Exchange>,
    next_tag: u32,
}

#[derive(Debug)]
struct Exchange {
    initiator_task_tag: u32,
    target_transfer_tag: u32,
    collector: TextCollector,
    sender: TextSender,
}

impl Default for TextExchange {
    fn default() -> Self {
        Self { current: None, next_tag: 1 }
    }
}

impl TextExchange {
    /// Nothing under way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles one text request. Keys that change `parameters` take effect at once.
    pub fn receive(
        &mut self,
        header: &TextRequestHeader,
        data: &Bytes,
        parameters: &mut Parameters,
        identity: &SessionIdentity,
        environment: &dyn Environment,
    ) -> TextOutcome {
        let outcome = self.try_receive(header, data, parameters, identity, environment);
        outcome.unwrap_or_else(|reason| {
            self.current = None;
            TextOutcome::Reject(reason)
        })
    }

    fn try_receive(
        &mut self,
        header: &TextRequestHeader,
        data: &Bytes,
        parameters: &mut Parameters,
        identity: &SessionIdentity,
        environment: &dyn Environment,
    ) -> Result<TextOutcome, RejectReason> {
        let is_final = header.flags & FINAL != 0;
        let continued = header.flags & CONTINUE != 0;
        if is_final && continued {
            return Err(RejectReason::ProtocolError);
        }
        let mut exchange = self.exchange(header)?;
        if exchange.sender.is_sending() {
            // The initiator fetches the rest of a long response by empty requests (RFC 7143, 6.2).
            if !data.is_empty() || continued {
                return Err(RejectReason::ProtocolError);
            }
        } else {
            let text = exchange.collector.add(data, continued).map_err(|_| RejectReason::ProtocolError)?;
            if let Some(text) = text {
                exchange.sender.start(answer(&text, parameters, identity, environment)?);
            }
        }
        let max_bytes = usize::try_from(parameters.max_send_data_segment_length).unwrap_or(usize::MAX);
        let (piece, more) = exchange.sender.next_piece(max_bytes);
        let target_transfer_tag = exchange.target_transfer_tag;
        let over = is_final && !more;
        self.current = if over { None } else { Some(exchange) };
        Ok(TextOutcome::Respond {
            final_bit: over,
            continue_bit: more,
            target_transfer_tag: if over { RESERVED_TAG } else { target_transfer_tag },
            data: piece,
        })
    }

    /// The exchange that a request belongs to: a new one, or the one under way.
    fn exchange(&mut self, header: &TextRequestHeader) -> Result<Exchange, RejectReason> {
        let current = self.current.take();
        let (initiator_task_tag, tag) = (header.initiator_task_tag.get(), header.target_transfer_tag.get());
        if tag == RESERVED_TAG {
            let target_transfer_tag = self.next_tag;
            self.next_tag = if target_transfer_tag == RESERVED_TAG - 1 { 1 } else { target_transfer_tag + 1 };
            let (collector, sender) = (TextCollector::default(), TextSender::default());
            return Ok(Exchange { initiator_task_tag, target_transfer_tag, collector, sender });
        }
        current
            .filter(|exchange| exchange.target_transfer_tag == tag && exchange.initiator_task_tag == initiator_task_tag)
            .ok_or(RejectReason::InvalidPduField)
    }
}

/// The response to a whole text.
fn answer(
    text: &[u8],
    parameters: &mut Parameters,
    identity: &SessionIdentity,
    environment: &dyn Environment,
) -> Result<Bytes, RejectReason> {
    let mut out = TextWriter::default();
    let mut seen = BTreeSet::new();
    for pair in text::parse(text).map_err(|_| RejectReason::ProtocolError)? {
        if !seen.insert(pair.key) {
            return Err(RejectReason::ProtocolError);
        }
        match table::find(pair.key) {
            None => out.pair(pair.key, NOT_UNDERSTOOD),
            Some(key) if !key.usage.allows(Stage::FullFeature) => out.pair(pair.key, REJECT),
            Some(key) => match key.kind {
                Kind::SendTargets => send_targets(pair.value, identity, environment, &mut out),
                Kind::MaxRecvDataSegmentLength => {
                    parameters.max_send_data_segment_length =
                        parse_max_recv_data_segment_length(pair.value).map_err(|_| RejectReason::ProtocolError)?;
                }
                // InitiatorAlias: for people, who have seen the one of the login.
                _ => {}
            },
        }
    }
    Ok(out.finish())
}

/// SendTargets (RFC 7143, appendix C): `All` on discovery sessions only, a name, or nothing for the target of a
/// normal session, which learns of no other.
fn send_targets(value: &str, identity: &SessionIdentity, environment: &dyn Environment, out: &mut TextWriter) {
    let wanted = match (value, &identity.target) {
        ("All", None) => None,
        ("", Some(own)) => Some(own.clone()),
        ("All", Some(_)) | ("", None) => return out.pair("SendTargets", REJECT),
        (name, own) => match IscsiName::parse(name) {
            Ok(name) if own.as_ref().is_none_or(|own| *own == name) => Some(name),
            _ => return out.pair("SendTargets", REJECT),
        },
    };
    for TargetRecord { name, addresses } in environment.targets(&identity.initiator) {
        if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        out.pair("TargetName", name.as_str());
        for (address, portal_group_tag) in addresses {
            out.pair("TargetAddress", &format!("{address},{portal_group_tag}"));
        }
    }
}

#[cfg(test)]
mod tests;
