//! Login requests (RFC 7143, 11.12): the header checked once and turned into what the login decides upon.

use super::status::{FailureReason, LoginFailure};
use crate::pdu::{LoginRequestHeader, Opcode, Pdu};

/// Longest data segment of a login PDU in bytes: the default of MaxRecvDataSegmentLength, which holds for both
/// directions until the full feature phase (RFC 7143, 13.12).
pub(super) const MAX_LOGIN_DATA_BYTES: usize = 8192;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// Stages of a connection as CSG and NSG count them (RFC 7143, 11.12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoginStage {
    Security = 0,
    Operational = 1,
    FullFeature = 3,
}

impl LoginStage {
    fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0x03 {
            0 => Some(Self::Security),
            1 => Some(Self::Operational),
            3 => Some(Self::FullFeature),
            _ => None,
        }
    }
}

/// A login request whose header is in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// CSG: security or operational.
    pub(super) stage: LoginStage,
    /// T bit and NSG: a later stage than `stage`.
    pub(super) transit_to: Option<LoginStage>,
    /// C bit: the text goes on in the next request. Never together with T.
    pub(super) continued: bool,
    /// What all requests of one login have in common.
    pub(super) connection: ConnectionKey,
    pub(super) cmd_sn: u32,
    pub(super) exp_stat_sn: u32,
}

/// The fields that stay the same through a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub(super) isid: [u8; 6],
    pub(super) tsih: u16,
    pub(super) cid: u16,
}

impl Request {
    pub(super) fn parse(pdu: &Pdu) -> Result<Self, LoginFailure> {
        if pdu.bhs.opcode() != Some(Opcode::LoginRequest) {
            return Err(FailureReason::NotALoginRequest { opcode: pdu.bhs.0[0] & 0x3f }.into());
        }
        let header: &LoginRequestHeader = pdu.bhs.view();
        let (min, max) = (header.version_min, header.version_max);
        if min > 0 {
            return Err(FailureReason::Version { min, max }.into());
        }
        if !pdu.ahs.is_empty() {
            return Err(protocol("a login request with an additional header segment"));
        }
        if pdu.data.len() > MAX_LOGIN_DATA_BYTES {
            return Err(protocol("a login request with more than 8192 bytes of text"));
        }
        let transit = header.flags & TRANSIT != 0;
        let continued = header.flags & CONTINUE != 0;
        let stage = match LoginStage::from_bits(header.flags >> 2) {
            Some(stage @ (LoginStage::Security | LoginStage::Operational)) => stage,
            _ => return Err(protocol("a login request in a stage that login does not have")),
        };
        let transit_to = match (transit, continued) {
            (true, true) => return Err(protocol("a login request with both T and C")),
            (false, _) => None,
            (true, false) => match LoginStage::from_bits(header.flags) {
                Some(next) if next > stage => Some(next),
                _ => return Err(protocol("a login request to a stage that does not follow")),
            },
        };
        Ok(Self {
            stage,
            transit_to,
            continued,
            connection: ConnectionKey { isid: header.isid, tsih: header.tsih.get(), cid: header.cid.get() },
            cmd_sn: header.cmd_sn.get(),
            exp_stat_sn: header.exp_stat_sn.get(),
        })
    }
}

pub(super) fn protocol(problem: &'static str) -> LoginFailure {
    FailureReason::Protocol(problem).into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::login::LoginStatus;
    use crate::pdu::Bhs;

    fn with_flags(flags: u8) -> Pdu {
        let mut bhs = Bhs([0; 48]);
        bhs.0[0] = 0x43;
        bhs.0[1] = flags;
        Pdu { bhs, ahs: Bytes::new(), data: Bytes::new(), data_digest_ok: true }
    }

    #[test]
    fn parse_every_combination_of_flags_then_only_the_transitions_of_the_rfc() {
        use LoginStage::{FullFeature, Operational, Security};
        let allowed = [
            (0b1000_0001, Security, Some(Operational)),
            (0b1000_0011, Security, Some(FullFeature)),
            (0b1000_0111, Operational, Some(FullFeature)),
        ];
        for flags in 0..=255_u8 {
            let parsed = Request::parse(&with_flags(flags));
            let stage = match flags >> 2 & 3 {
                0 => Some(Security),
                1 => Some(Operational),
                _ => None,
            };
            let expected = match (flags & TRANSIT != 0, stage) {
                (false, Some(stage)) => Some((stage, None)),
                (true, _) => allowed.iter().find(|row| row.0 == flags & 0xcf).map(|row| (row.1, row.2)),
                (false, None) => None,
            };
            assert_eq!(parsed.as_ref().ok().map(|request| (request.stage, request.transit_to)), expected, "{flags:#x}");
            if let Ok(request) = parsed {
                assert_eq!(request.continued, flags & CONTINUE != 0);
            }
        }
    }

    #[test]
    fn parse_versions_then_zero_must_be_spoken() {
        let versions = |max, min| {
            let mut pdu = with_flags(0x87);
            (pdu.bhs.0[2], pdu.bhs.0[3]) = (max, min);
            Request::parse(&pdu).map(|_| ()).map_err(|failure| failure.status)
        };
        assert_eq!(versions(0, 0), Ok(()));
        assert_eq!(versions(3, 0), Ok(()));
        assert_eq!(versions(1, 1), Err(LoginStatus::UnsupportedVersion));
    }

    #[test]
    fn parse_other_pdus_ahs_and_long_text_then_refused() {
        let mut pdu = with_flags(0x87);
        pdu.bhs.0[0] = 0x01;
        assert_eq!(Request::parse(&pdu).unwrap_err().status, LoginStatus::InvalidDuringLogin);
        let mut pdu = with_flags(0x87);
        pdu.ahs = Bytes::from_static(&[0; 4]);
        assert_eq!(Request::parse(&pdu).unwrap_err().status, LoginStatus::InitiatorError);
        let mut pdu = with_flags(0x87);
        pdu.data = vec![0; MAX_LOGIN_DATA_BYTES].into();
        assert!(Request::parse(&pdu).is_ok());
        pdu.data = vec![0; MAX_LOGIN_DATA_BYTES + 1].into();
        assert_eq!(Request::parse(&pdu).unwrap_err().status, LoginStatus::InitiatorError);
    }
}
