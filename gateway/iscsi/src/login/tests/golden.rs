//! Logins as they look on the wire. The files were written by a script that packs the headers by RFC 7143, 11.12 and
//! 11.13, and computes CHAP with Python's hashlib; nothing in them came from this crate. The texts are those of the
//! initiators named.
//!
//! `>` is a request, `<` the response expected: a header of 48 bytes, then the text, with `|` for zero bytes.

use super::*;
use crate::environment::testing::chap_access;

struct Line {
    from_initiator: bool,
    bhs: Bhs,
    text: Vec<u8>,
}

fn read(script: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in script.lines().filter(|line| !line.starts_with('#')) {
        if let Some(text) = line.strip_prefix("    ") {
            lines.last_mut().unwrap().text.extend(text.replace('|', "\0").bytes());
            continue;
        }
        let (arrow, header) = line.split_at(2);
        let digits = header.replace(' ', "");
        let mut bhs = Bhs([0; 48]);
        assert_eq!(digits.len(), 96);
        for (index, byte) in bhs.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
        }
        lines.push(Line { from_initiator: arrow == "> ", bhs, text: Vec::new() });
    }
    lines
}

/// Plays a script and returns the last step.
fn play(script: &str, world: &World) -> LoginStep {
    let mut login = Login::new(LoginConfig { command_window: 32, ..LoginConfig::default() });
    let mut last = None;
    let mut sent = Vec::new();
    for mut line in read(script) {
        assert_eq!(line.bhs.data_segment_bytes(), line.text.len(), "the script itself");
        if line.from_initiator {
            assert!(sent.is_empty(), "responses nobody expected");
            let pdu = Pdu { bhs: line.bhs, ahs: Bytes::new(), data: line.text.into(), data_digest_ok: true };
            let step = login.receive(pdu, world);
            sent = match &step {
                LoginStep::Continue(responses)
                | LoginStep::Failed { responses, .. }
                | LoginStep::Established { responses, .. } => responses.clone(),
            };
            last = Some(step);
        } else {
            let response = sent.remove(0);
            // Filled in by the encoder.
            line.bhs.0[5..8].fill(0);
            assert_eq!(String::from_utf8_lossy(&response.data), String::from_utf8_lossy(&line.text));
            assert_eq!(response.bhs, line.bhs);
        }
    }
    assert!(sent.is_empty(), "responses nobody expected");
    last.unwrap()
}

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("golden/", $name, ".txt"))
    };
}

fn chap_world(target_secret: Option<&[u8]>) -> World {
    World { target_access: Ok(chap_access("user", b"secret of the host", target_secret)), ..World::default() }
}

#[test]
fn libiscsi_without_chap_then_established() {
    let world = World::default();
    let established = established(play(script!("libiscsi"), &world));
    assert_eq!(
        established,
        Established {
            identity: SessionIdentity {
                initiator: "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq".parse().unwrap(),
                initiator_alias: None,
                isid: [0x80, 0, 0, 0, 0, 1],
                target: Some(TARGET.parse().unwrap()),
            },
            tsih: 0x0102,
            cid: 0,
            parameters: Parameters {
                header_digest: false,
                data_digest: false,
                max_recv_data_segment_length: 262_144,
                max_send_data_segment_length: 262_144,
                max_burst_length: 262_144,
                first_burst_length: 65_536,
                initial_r2t: false,
                immediate_data: true,
                max_outstanding_r2t: 1,
                default_time2wait: 2,
                default_time2retain: 0,
                data_pdu_in_order: true,
                data_sequence_in_order: true,
                error_recovery_level: 0,
                max_connections: 1,
            },
            next_stat_sn: 2,
            exp_cmd_sn: 0x6b8b_4567,
            max_cmd_sn: 0x6b8b_4567 + 31,
            authentication: Authentication::None,
            portal_group_tag: 1,
        }
    );
    assert_eq!(*world.asked.borrow(), [(established.identity, 0, 0)]);
}

#[test]
fn libiscsi_with_mutual_chap_then_established() {
    let step = play(script!("libiscsi_mutual_chap"), &chap_world(Some(b"secret of the target")));
    let established = established(step);
    let user = "user".to_owned();
    let expected = Authentication::Chap { algorithm: ChapAlgorithm::Md5, user, mutual: true };
    assert_eq!(established.authentication, expected);
    assert_eq!(established.next_stat_sn, 5);
}

#[test]
fn libiscsi_discovery_then_established_without_target() {
    let established = established(play(script!("libiscsi_discovery"), &World::default()));
    assert_eq!((established.identity.target, established.portal_group_tag), (None, 0));
    assert_eq!((established.exp_cmd_sn, established.max_cmd_sn), (u32::MAX, 30));
}

#[test]
fn open_iscsi_with_chap_then_sha3_256_and_header_digest() {
    let established = established(play(script!("open_iscsi_chap"), &chap_world(None)));
    let user = "user".to_owned();
    let expected = Authentication::Chap { algorithm: ChapAlgorithm::Sha3_256, user, mutual: false };
    assert_eq!(established.authentication, expected);
    assert_eq!(established.identity.initiator_alias.as_deref(), Some("host.example.com"));
    assert!(established.parameters.header_digest && !established.parameters.data_digest);
    assert_eq!(established.parameters.max_burst_length, 1_048_576);
}

#[test]
fn security_straight_to_full_feature_then_all_parameters_are_defaults() {
    let established = established(play(script!("chap_sha256_base64"), &chap_world(None)));
    let user = "user".to_owned();
    let expected = Authentication::Chap { algorithm: ChapAlgorithm::Sha256, user, mutual: false };
    assert_eq!(established.authentication, expected);
    assert_eq!((established.cid, established.parameters), (3, Parameters::default()));
}

#[test]
fn windows_then_established_with_data_digest() {
    let established = established(play(script!("windows"), &World::default()));
    assert_eq!(established.parameters.max_send_data_segment_length, 65_536);
    assert_eq!(established.parameters.max_outstanding_r2t, 8);
    assert!(!established.parameters.header_digest && established.parameters.data_digest);
}

#[test]
fn text_in_three_requests_with_odd_keys_then_established() {
    let established = established(play(script!("continued"), &World::default()));
    assert_eq!(established.identity.initiator.as_str(), "iqn.1998-01.com.vmware:esx01-4fd3a2b1");
}

#[test]
fn wrong_secret_then_authentication_failure() {
    let failure = failure(play(script!("wrong_secret"), &chap_world(None)));
    assert_eq!(failure.reason, FailureReason::Chap(crate::chap::ChapError::WrongCredentials));
}

#[test]
fn moved_target_then_redirect_with_address() {
    let moved = Refusal::MovedTemporarily("[2001:db8::1]:3260".to_owned());
    let world = World { target_access: Err(moved.clone()), ..World::default() };
    assert_eq!(failure(play(script!("redirect"), &world)).reason, FailureReason::Refused(moved));
}

#[test]
fn joining_a_session_that_is_not_there_then_refused_and_the_numbers_were_asked() {
    let world = World { tsih: Err(Refusal::SessionDoesNotExist), ..World::default() };
    assert_eq!(failure(play(script!("joining_nothing"), &world)).status, LoginStatus::SessionDoesNotExist);
    assert_eq!((world.asked.borrow()[0].1, world.asked.borrow()[0].2), (0x0777, 2));
}
