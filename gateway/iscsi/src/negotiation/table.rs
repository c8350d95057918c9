//! The keys of RFC 7143, section 13, as one table: who may send each, when, and how it is answered. The keys of
//! authentication (section 12) are here too, so that their place is known; their values belong to [`crate::chap`].

use super::offered::Offered;
use super::value::{BooleanResult, NumberResult};
use crate::params::Parameters;

/// Where in the life of a connection a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// SecurityNegotiation of login.
    Security,
    /// LoginOperationalNegotiation of login.
    Operational,
    /// Text requests of the full feature phase.
    FullFeature,
}

/// Stages in which the initiator may send a key ("Use" in the RFC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Only the target sends it.
    ByTarget,
    /// In the security stage.
    Security,
    /// In the operational stage.
    Operational,
    /// In both stages of login ("any-stage").
    Login,
    /// In the operational stage and in the full feature phase.
    OperationalAndFullFeature,
    /// Always.
    Always,
    /// In the full feature phase only (FFPO).
    FullFeature,
}

impl Use {
    /// Whether the initiator may send the key in `stage`.
    pub fn allows(self, stage: Stage) -> bool {
        match self {
            Self::ByTarget => false,
            Self::Always => true,
            Self::Security => stage == Stage::Security,
            Self::Operational => stage == Stage::Operational,
            Self::Login => stage != Stage::FullFeature,
            Self::OperationalAndFullFeature => stage != Stage::Security,
            Self::FullFeature => stage == Stage::FullFeature,
        }
    }
}

/// On which sessions a key means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relevance {
    /// On all.
    Always,
    /// Not on discovery sessions.
    NormalSession,
    /// Not on discovery sessions, nor where neither immediate nor unsolicited data is allowed.
    UnsolicitedData,
}

/// What is done with a value.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A number of both sides; outside the range it is answered with Reject.
    Number {
        /// Result function.
        result: NumberResult,
        /// Lowest value allowed.
        min: u32,
        /// Highest value allowed.
        max: u32,
        /// This target's value.
        own: fn(&Offered, &Parameters) -> u32,
        /// Keeps the result.
        set: fn(&mut Parameters, u32),
    },
    /// A boolean of both sides.
    Boolean {
        /// Result function.
        result: BooleanResult,
        /// This target's value.
        own: fn(&Offered) -> bool,
        /// Keeps the result.
        set: fn(&mut Parameters, bool),
    },
    /// A list of the initiator's, of which one value is chosen.
    List {
        /// What this target can do.
        own: fn(&Offered) -> &'static [&'static str],
        /// Keeps the result.
        set: fn(&mut Parameters, &str),
    },
    /// MaxRecvDataSegmentLength: each side declares its own, no answer.
    MaxRecvDataSegmentLength,
    /// Declared by the initiator and taken by the login, no answer.
    Identity,
    /// Declared for information, no answer.
    Ignored,
    /// Belongs to authentication.
    Authentication,
    /// SendTargets: answered by [`crate::text_request`].
    SendTargets,
    /// Sent by targets only.
    Target,
    /// Markers: obsolete, always No (RFC 7143, 13.25).
    Marker,
    /// Marker intervals: obsolete, always Reject (RFC 7143, 13.25).
    MarkerInterval,
}

/// A row of the table.
pub struct Key {
    /// As the RFC spells it.
    pub name: &'static str,
    /// When the initiator may send it.
    pub usage: Use,
    /// Only on the leading connection of a session (LO).
    pub leading_only: bool,
    /// On which sessions it means anything.
    pub relevance: Relevance,
    /// What is done with its value.
    pub kind: Kind,
}

/// Highest value of the lengths: 2^24 - 1.
pub const MAX_LENGTH: u32 = 0x00ff_ffff;
/// Lowest value of the lengths.
pub const MIN_LENGTH: u32 = 512;

const LEADING: bool = true;
const EACH: bool = false;

/// The row of a key; `None` for keys that are not understood.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

const fn key(name: &'static str, usage: Use, leading_only: bool, relevance: Relevance, kind: Kind) -> Key {
    Key { name, usage, leading_only, relevance, kind }
}

const fn number(
    result: NumberResult,
    (min, max): (u32, u32),
    own: fn(&Offered, &Parameters) -> u32,
    set: fn(&mut Parameters, u32),
) -> Kind {
    Kind::Number { result, min, max, own, set }
}

const fn boolean(result: BooleanResult, own: fn(&Offered) -> bool, set: fn(&mut Parameters, bool)) -> Kind {
    Kind::Boolean { result, own, set }
}

/// The ranges below fit; a value that did not would be held at the top.
fn narrow(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

const LENGTH: (u32, u32) = (MIN_LENGTH, MAX_LENGTH);
const COUNT: (u32, u32) = (1, 65_535);
const SECONDS: (u32, u32) = (0, 3600);

/// Every key of sections 12 and 13. In the order of the RFC.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    // Section 12: authentication.
    key("AuthMethod", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    key("CHAP_A", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    key("CHAP_I", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    key("CHAP_C", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    key("CHAP_N", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    key("CHAP_R", Use::Security, EACH, Relevance::Always, Kind::Authentication),
    // 13.1
    key("HeaderDigest", Use::Operational, EACH, Relevance::Always,
        Kind::List { own: |o| digests(o.header_digest), set: |p, value| p.header_digest = value == "CRC32C" }),
    key("DataDigest", Use::Operational, EACH, Relevance::Always,
        Kind::List { own: |o| digests(o.data_digest), set: |p, value| p.data_digest = value == "CRC32C" }),
    // 13.2
    key("MaxConnections", Use::Operational, LEADING, Relevance::NormalSession,
        number(NumberResult::Minimum, COUNT, |o, _| o.max_connections.into(), |p, n| p.max_connections = narrow(n))),
    // 13.3
    key("SendTargets", Use::FullFeature, EACH, Relevance::Always, Kind::SendTargets),
    // 13.4 and 13.5
    key("TargetName", Use::Login, EACH, Relevance::Always, Kind::Identity),
    key("InitiatorName", Use::Login, EACH, Relevance::Always, Kind::Identity),
    // 13.6
    key("TargetAlias", Use::ByTarget, EACH, Relevance::Always, Kind::Target),
    // 13.7
    key("InitiatorAlias", Use::Always, EACH, Relevance::Always, Kind::Identity),
    // 13.8 and 13.9
    key("TargetAddress", Use::ByTarget, EACH, Relevance::Always, Kind::Target),
    key("TargetPortalGroupTag", Use::ByTarget, EACH, Relevance::Always, Kind::Target),
    // 13.10 and 13.11
    key("InitialR2T", Use::Operational, LEADING, Relevance::NormalSession,
        boolean(BooleanResult::Or, |o| o.initial_r2t, |p, yes| p.initial_r2t = yes)),
    key("ImmediateData", Use::Operational, LEADING, Relevance::NormalSession,
        boolean(BooleanResult::And, |o| o.immediate_data, |p, yes| p.immediate_data = yes)),
    // 13.12
    key("MaxRecvDataSegmentLength", Use::OperationalAndFullFeature, EACH, Relevance::Always,
        Kind::MaxRecvDataSegmentLength),
    // 13.13 and 13.14
    key("MaxBurstLength", Use::Operational, LEADING, Relevance::NormalSession,
        number(NumberResult::Minimum, LENGTH, |o, _| o.max_burst_length, |p, n| p.max_burst_length = n)),
    key("FirstBurstLength", Use::Operational, LEADING, Relevance::UnsolicitedData,
        number(NumberResult::Minimum, LENGTH, |o, p| o.first_burst_length.min(p.max_burst_length),
            |p, n| p.first_burst_length = n)),
    // 13.15 and 13.16
    key("DefaultTime2Wait", Use::Operational, LEADING, Relevance::Always,
        number(NumberResult::Maximum, SECONDS, |o, _| o.default_time2wait.into(),
            |p, n| p.default_time2wait = narrow(n))),
    key("DefaultTime2Retain", Use::Operational, LEADING, Relevance::Always,
        number(NumberResult::Minimum, SECONDS, |o, _| o.default_time2retain.into(),
            |p, n| p.default_time2retain = narrow(n))),
    // 13.17
    key("MaxOutstandingR2T", Use::Operational, LEADING, Relevance::NormalSession,
        number(NumberResult::Minimum, COUNT, |o, _| o.max_outstanding_r2t.into(),
            |p, n| p.max_outstanding_r2t = narrow(n))),
    // 13.18 and 13.19
    key("DataPDUInOrder", Use::Operational, LEADING, Relevance::NormalSession,
        boolean(BooleanResult::Or, |o| o.data_pdu_in_order, |p, yes| p.data_pdu_in_order = yes)),
    key("DataSequenceInOrder", Use::Operational, LEADING, Relevance::NormalSession,
        boolean(BooleanResult::Or, |o| o.data_sequence_in_order, |p, yes| p.data_sequence_in_order = yes)),
    // 13.20: level 0 is all there is.
    key("ErrorRecoveryLevel", Use::Operational, LEADING, Relevance::Always,
        number(NumberResult::Minimum, (0, 2), |_, _| 0, |p, _| p.error_recovery_level = 0)),
    // 13.21
    key("SessionType", Use::Login, LEADING, Relevance::Always, Kind::Identity),
    // 13.23: only the semantics that every target has.
    key("TaskReporting", Use::Operational, LEADING, Relevance::NormalSession,
        Kind::List { own: |_| &["RFC3720"], set: |_, _| {} }),
    // 13.24: 1 is RFC 7143 itself; 2 would be RFC 7144.
    key("iSCSIProtocolLevel", Use::Operational, LEADING, Relevance::NormalSession,
        number(NumberResult::Minimum, (0, 31), |_, _| 1, |_, _| {})),
    // 13.25
    key("IFMarker", Use::Operational, EACH, Relevance::Always, Kind::Marker),
    key("OFMarker", Use::Operational, EACH, Relevance::Always, Kind::Marker),
    key("IFMarkInt", Use::Operational, EACH, Relevance::Always, Kind::MarkerInterval),
    key("OFMarkInt", Use::Operational, EACH, Relevance::Always, Kind::MarkerInterval),
    // 13.26
    key("X#NodeArchitecture", Use::Login, LEADING, Relevance::Always, Kind::Ignored),
];

fn digests(crc32c: bool) -> &'static [&'static str] {
    if crc32c { &["CRC32C", "None"] } else { &["None"] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_then_each_once() {
        let names: BTreeSet<_> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), KEYS.len());
        assert!(find("HeaderDigest").is_some());
        assert!(find("headerdigest").is_none());
    }

    #[test]
    fn uses_then_allow_exactly_their_stages() {
        for (usage, security, operational, full_feature) in [
            (Use::ByTarget, false, false, false),
            (Use::Security, true, false, false),
            (Use::Operational, false, true, false),
            (Use::Login, true, true, false),
            (Use::OperationalAndFullFeature, false, true, true),
            (Use::Always, true, true, true),
            (Use::FullFeature, false, false, true),
        ] {
            assert_eq!(usage.allows(Stage::Security), security, "{usage:?}");
            assert_eq!(usage.allows(Stage::Operational), operational, "{usage:?}");
            assert_eq!(usage.allows(Stage::FullFeature), full_feature, "{usage:?}");
        }
    }
}
