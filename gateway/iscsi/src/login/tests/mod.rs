//! Tests of whole logins. [`golden`] holds exchanges as bytes, [`rules`] the rules of stages, keys and statuses,
//! [`hostile`] what no honest initiator sends.

mod golden;
mod hostile;
mod rules;

use bytes::Bytes;

use super::*;
use crate::environment::testing::{TARGET, World};

const INITIATOR: &str = "iqn.2001-04.com.example:host";

/// Security to operational, operational to full feature, and so on: T, CSG and NSG.
const SECURITY: u8 = 0x00;
const SECURITY_TO_OPERATIONAL: u8 = 0x81;
const SECURITY_TO_FULL_FEATURE: u8 = 0x83;
const OPERATIONAL: u8 = 0x04;
const OPERATIONAL_TO_FULL_FEATURE: u8 = 0x87;
const C: u8 = 0x40;

/// A login request with `pairs`, in which blanks stand for the zero bytes.
fn request(flags: u8, pairs: &str) -> Pdu {
    let mut text = pairs.replace(' ', "\0").into_bytes();
    if !text.is_empty() {
        text.push(0);
    }
    raw_request(flags, text)
}

fn raw_request(flags: u8, text: Vec<u8>) -> Pdu {
    let mut bhs = Bhs([0; 48]);
    bhs.0[0] = 0x43;
    bhs.0[1] = flags;
    bhs.0[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 9]);
    bhs.0[19] = 0x77; // Initiator Task Tag
    bhs.0[21] = 5; // CID
    bhs.0[27] = 100; // CmdSN
    bhs.0[31] = 7; // ExpStatSN
    Pdu { bhs, ahs: Bytes::new(), data: text.into(), data_digest_ok: true }
}

fn identity_and(pairs: &str) -> String {
    format!("InitiatorName={INITIATOR} TargetName={TARGET} {pairs}").trim().to_owned()
}

fn login() -> Login {
    Login::new(LoginConfig::default())
}

/// The response of a step that goes on or ends well: flags and text with blanks for zero bytes.
fn answer(step: &LoginStep) -> (u8, String) {
    let responses = match step {
        LoginStep::Continue(responses) | LoginStep::Established { responses, .. } => responses,
        LoginStep::Failed { reason, .. } => panic!("{reason}"),
    };
    let [response] = &responses[..] else { panic!("one response, not {}", responses.len()) };
    (response.bhs.0[1], String::from_utf8(response.data.to_vec()).unwrap().replace('\0', " ").trim_end().to_owned())
}

fn failure(step: LoginStep) -> LoginFailure {
    match step {
        LoginStep::Failed { responses, reason } => {
            let [response] = &responses[..] else { panic!("one response, not {}", responses.len()) };
            assert_eq!(response.bhs.0[0], 0x23);
            assert_eq!(response.bhs.0[36..38], [reason.status.class(), reason.status.detail()]);
            assert_eq!(response.bhs.0[1] & 0xc0, 0, "neither T nor C on a failure");
            reason
        }
        other => panic!("{other:?}"),
    }
}

fn established(step: LoginStep) -> Established {
    match step {
        LoginStep::Established { established, .. } => *established,
        other => panic!("{other:?}"),
    }
}
