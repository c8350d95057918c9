use super::*;
use crate::chap::ChapError;
use crate::environment::testing::chap_access;
use crate::name::NameError;

fn status_of(flags: u8, pairs: &str, world: &World) -> LoginStatus {
    failure(login().receive(request(flags, pairs), world)).status
}

fn chap_required() -> World {
    World { target_access: Ok(chap_access("user", b"secret", None)), ..World::default() }
}

#[test]
fn first_request_without_what_it_needs_then_missing_parameter() {
    let world = World::default();
    for pairs in ["", "InitialR2T=No", &format!("TargetName={TARGET}"), "SessionType=Discovery"] {
        let failure = failure(login().receive(request(OPERATIONAL_TO_FULL_FEATURE, pairs), &world));
        assert_eq!(failure.reason, FailureReason::MissingKey("InitiatorName"), "{pairs}");
        assert_eq!(failure.status, LoginStatus::MissingParameter);
    }
    for session_type in ["", "SessionType=Normal"] {
        let pairs = format!("InitiatorName={INITIATOR} {session_type}");
        let failure = failure(login().receive(request(OPERATIONAL_TO_FULL_FEATURE, pairs.trim()), &world));
        assert_eq!(failure.reason, FailureReason::MissingKey("TargetName"));
    }
}

#[test]
fn first_request_with_bad_names_or_session_type_then_the_status_says_so() {
    let world = World::default();
    let pairs = format!("InitiatorName={INITIATOR} TargetName=disk0");
    assert_eq!(status_of(OPERATIONAL, &pairs, &world), LoginStatus::NotFound);
    let pairs = format!("InitiatorName={INITIATOR} TargetName=iqn.2026-11.io.holdfast:none");
    assert_eq!(status_of(OPERATIONAL, &pairs, &world), LoginStatus::NotFound);
    let pairs = format!("InitiatorName=me TargetName={TARGET}");
    let refused = failure(login().receive(request(OPERATIONAL, &pairs), &world));
    assert_eq!(refused.reason, FailureReason::Name { key: "InitiatorName", error: NameError::UnknownType });
    assert_eq!(refused.status, LoginStatus::InitiatorError);
    let long = format!("InitiatorName={INITIATOR}{} TargetName={TARGET}", "x".repeat(223));
    assert_eq!(status_of(OPERATIONAL, &long, &world), LoginStatus::InitiatorError);
    let pairs = identity_and("SessionType=Boot");
    assert_eq!(status_of(OPERATIONAL, &pairs, &world), LoginStatus::SessionTypeNotSupported);
    let pairs = identity_and(&format!("InitiatorAlias={}", "a".repeat(256)));
    assert_eq!(status_of(OPERATIONAL, &pairs, &world), LoginStatus::InitiatorError);
}

#[test]
fn names_in_upper_case_then_the_same_target() {
    let pairs = identity_and("").to_uppercase().replace("INITIATORNAME", "InitiatorName");
    let pairs = pairs.replace("TARGETNAME", "TargetName");
    let established = established(login().receive(request(OPERATIONAL_TO_FULL_FEATURE, &pairs), &World::default()));
    assert_eq!(established.identity.initiator.as_str(), INITIATOR);
}

#[test]
fn every_refusal_of_access_then_its_status() {
    for refusal in [
        Refusal::NotFound,
        Refusal::Forbidden,
        Refusal::Removed,
        Refusal::ServiceUnavailable,
        Refusal::OutOfResources,
        Refusal::TargetError,
    ] {
        let world = World { target_access: Err(refusal.clone()), ..World::default() };
        assert_eq!(status_of(SECURITY_TO_OPERATIONAL, &identity_and(""), &world), refusal.status());
        let world = World { discovery_access: Err(refusal.clone()), ..World::default() };
        let pairs = format!("InitiatorName={INITIATOR} SessionType=Discovery");
        assert_eq!(status_of(SECURITY_TO_OPERATIONAL, &pairs, &world), refusal.status());
        let world = World { tsih: Err(refusal.clone()), ..World::default() };
        assert_eq!(status_of(OPERATIONAL_TO_FULL_FEATURE, &identity_and(""), &world), refusal.status());
    }
}

#[test]
fn target_alias_then_sent_with_the_portal_group_tag_and_cut_at_a_character() {
    let alias = "\u{e4}".repeat(200);
    let access = Access { portal_group_tag: 65_535, target_alias: Some(alias), chap: None };
    let world = World { target_access: Ok(access), ..World::default() };
    let (flags, text) = answer(&login().receive(request(SECURITY, &identity_and("")), &world));
    assert_eq!(flags, SECURITY);
    assert_eq!(text, format!("TargetPortalGroupTag=65535 TargetAlias={}", "\u{e4}".repeat(127)));
}

#[test]
fn chap_is_required_but_the_operational_stage_comes_first_then_refused() {
    let world = chap_required();
    assert_eq!(status_of(OPERATIONAL_TO_FULL_FEATURE, &identity_and(""), &world), LoginStatus::AuthenticationFailure);
    assert!(world.asked.borrow().is_empty());
}

#[test]
fn chap_is_required_but_not_offered_then_refused() {
    for offer in ["AuthMethod=None", "AuthMethod=", "AuthMethod=KRB5,None", "AuthMethod=chap"] {
        let refused = failure(login().receive(request(SECURITY, &identity_and(offer)), &chap_required()));
        assert_eq!(refused.reason, FailureReason::AuthenticationRequired, "{offer}");
        assert_eq!(refused.status, LoginStatus::AuthenticationFailure);
    }
    for flags in [SECURITY_TO_OPERATIONAL, SECURITY_TO_FULL_FEATURE] {
        assert_eq!(status_of(flags, &identity_and(""), &chap_required()), LoginStatus::AuthenticationFailure);
    }
}

#[test]
fn chap_is_not_required_then_none_is_chosen_where_it_is_offered() {
    for offer in ["AuthMethod=CHAP,None", "AuthMethod=None", "AuthMethod=None,CHAP", "AuthMethod=SRP,KRB5,None"] {
        let step = login().receive(request(SECURITY_TO_OPERATIONAL, &identity_and(offer)), &World::default());
        let (flags, text) = answer(&step);
        assert_eq!(
            (flags, text.as_str()),
            (SECURITY_TO_OPERATIONAL, "TargetPortalGroupTag=1 AuthMethod=None"),
            "{offer}"
        );
    }
    let refused = failure(login().receive(request(SECURITY, &identity_and("AuthMethod=CHAP")), &World::default()));
    assert_eq!(refused.reason, FailureReason::NoCommonAuthMethod);
}

#[test]
fn discovery_with_chap_of_its_own_then_authenticated_by_that() {
    let world = World { discovery_access: Ok(chap_access("finder", b"other secret", None)), ..World::default() };
    let pairs = format!("InitiatorName={INITIATOR} SessionType=Discovery");
    assert_eq!(status_of(OPERATIONAL_TO_FULL_FEATURE, &pairs, &world), LoginStatus::AuthenticationFailure);
    let mut login = login();
    let pairs = format!("{pairs} AuthMethod=CHAP");
    assert_eq!(answer(&login.receive(request(SECURITY, &pairs), &world)), (SECURITY, "AuthMethod=CHAP".to_owned()));
    answer(&login.receive(request(SECURITY, "CHAP_A=5"), &world));
    let secret = crate::environment::Secret::new(b"other secret").unwrap();
    let challenge: Vec<u8> = (0x41..0x51).collect();
    let response = crate::chap::encode_hex(ChapAlgorithm::Md5.respond(0x40, &secret, &challenge).as_bytes());
    let pairs = format!("CHAP_N=finder CHAP_R={response}");
    let established = established(login.receive(request(SECURITY_TO_FULL_FEATURE, &pairs), &world));
    assert!(matches!(established.authentication, Authentication::Chap { mutual: false, .. }));
    assert_eq!(established.identity.target, None);
}

#[test]
fn chap_keys_out_of_place_then_refused() {
    for pairs in ["AuthMethod=CHAP CHAP_A=5", "CHAP_A=5", "AuthMethod=CHAP CHAP_N=user CHAP_R=0x00"] {
        assert_eq!(
            status_of(SECURITY, &identity_and(pairs), &chap_required()),
            LoginStatus::AuthenticationFailure,
            "{pairs}"
        );
    }
    let (world, mut login) = (World::default(), login());
    answer(&login.receive(request(SECURITY, &identity_and("AuthMethod=None")), &world));
    let refused = failure(login.receive(request(SECURITY, "CHAP_A=5"), &world));
    assert_eq!(refused.reason, FailureReason::Chap(ChapError::OutOfPlace("CHAP_A")));
}

#[test]
fn chap_half_done_then_no_way_around_it() {
    for (flags, pairs) in [
        (SECURITY_TO_OPERATIONAL, ""),
        (SECURITY_TO_FULL_FEATURE, ""),
        (SECURITY, "AuthMethod=None"),
        (SECURITY, "CHAP_N=user CHAP_R=0x00"),
        (OPERATIONAL_TO_FULL_FEATURE, ""),
        (OPERATIONAL, ""),
    ] {
        for answered in [false, true] {
            let (world, mut login) = (chap_required(), login());
            answer(&login.receive(request(SECURITY, &identity_and("AuthMethod=CHAP")), &world));
            if answered {
                answer(&login.receive(request(SECURITY, "CHAP_A=7"), &world));
            }
            failure(login.receive(request(flags, pairs), &world));
            assert!(world.asked.borrow().is_empty());
        }
    }
}

#[test]
fn operational_keys_in_the_security_stage_then_rejected() {
    let step = login().receive(request(SECURITY, &identity_and("InitialR2T=No X-a=1")), &World::default());
    assert_eq!(answer(&step).1, "TargetPortalGroupTag=1 InitialR2T=Reject X-a=NotUnderstood");
}

#[test]
fn operational_stage_in_several_requests_then_each_answered_and_declared_once() {
    let (world, mut login) = (World::default(), login());
    let step = login.receive(request(OPERATIONAL, &identity_and("InitialR2T=No")), &world);
    let expected = "TargetPortalGroupTag=1 InitialR2T=No MaxRecvDataSegmentLength=262144";
    assert_eq!(answer(&step), (OPERATIONAL, expected.to_owned()));
    let step = login.receive(request(OPERATIONAL, "ImmediateData=No"), &world);
    assert_eq!(answer(&step), (OPERATIONAL, "ImmediateData=No".to_owned()));
    let step = login.receive(request(OPERATIONAL_TO_FULL_FEATURE, ""), &world);
    assert_eq!(answer(&step), (OPERATIONAL_TO_FULL_FEATURE, String::new()));
    let established = established(step);
    assert_eq!((established.next_stat_sn, established.exp_cmd_sn), (10, 100));
    assert!(!established.parameters.initial_r2t && !established.parameters.immediate_data);
}

#[test]
fn a_key_twice_then_initiator_error() {
    for pairs in ["InitialR2T=No InitialR2T=No", "X-a=1 X-a=2", "TargetAlias=a TargetAlias=a", "CHAP_A=5 CHAP_A=5"] {
        assert_eq!(
            status_of(OPERATIONAL, &identity_and(pairs), &World::default()),
            LoginStatus::InitiatorError,
            "{pairs}"
        );
    }
    let twice = identity_and(&format!("InitiatorName={INITIATOR}"));
    assert_eq!(status_of(OPERATIONAL, &twice, &World::default()), LoginStatus::InitiatorError);
    let (world, mut login) = (World::default(), login());
    answer(&login.receive(request(OPERATIONAL, &identity_and("MaxBurstLength=4096")), &world));
    let refused = failure(login.receive(request(OPERATIONAL, "MaxBurstLength=4096"), &world));
    assert_eq!(refused.reason, FailureReason::Text(TextError::DuplicateKey));
}

#[test]
fn max_recv_data_segment_length_twice_then_the_last_holds() {
    let (world, mut login) = (World::default(), login());
    answer(&login.receive(request(OPERATIONAL, &identity_and("MaxRecvDataSegmentLength=4096")), &world));
    let step = login.receive(request(OPERATIONAL_TO_FULL_FEATURE, "MaxRecvDataSegmentLength=1024"), &world);
    assert_eq!(established(step).parameters.max_send_data_segment_length, 1024);
}

#[test]
fn identity_declared_again_then_only_the_same() {
    for (pairs, allowed) in [
        (format!("InitiatorName={INITIATOR} TargetName={TARGET} SessionType=Normal"), true),
        (format!("TargetName={}", TARGET.to_uppercase()), true),
        ("InitiatorName=iqn.2001-04.com.example:other".to_owned(), false),
        ("TargetName=iqn.2001-04.com.example:other".to_owned(), false),
        ("SessionType=Discovery".to_owned(), false),
    ] {
        let (world, mut login) = (World::default(), login());
        answer(&login.receive(request(SECURITY_TO_OPERATIONAL, &identity_and("")), &world));
        let step = login.receive(request(OPERATIONAL_TO_FULL_FEATURE, &pairs), &world);
        assert_eq!(matches!(step, LoginStep::Established { .. }), allowed, "{pairs}");
    }
}

#[test]
fn isid_tsih_or_cid_changed_then_initiator_error() {
    for byte in [8, 13, 15, 21] {
        let (world, mut login) = (World::default(), login());
        answer(&login.receive(request(OPERATIONAL, &identity_and("")), &world));
        let mut pdu = request(OPERATIONAL_TO_FULL_FEATURE, "");
        pdu.bhs.0[byte] ^= 1;
        assert_eq!(failure(login.receive(pdu, &world)).status, LoginStatus::InitiatorError, "byte {byte}");
    }
}

#[test]
fn stage_changed_without_agreement_then_initiator_error() {
    let world = World::default();
    let mut backwards = login();
    answer(&backwards.receive(request(OPERATIONAL, &identity_and("")), &world));
    assert_eq!(failure(backwards.receive(request(SECURITY, ""), &world)).status, LoginStatus::InitiatorError);
    let mut ahead = login();
    answer(&ahead.receive(request(SECURITY, &identity_and("")), &world));
    assert_eq!(failure(ahead.receive(request(OPERATIONAL, ""), &world)).status, LoginStatus::InitiatorError);
}

#[test]
fn version_1_only_then_unsupported_version() {
    let mut pdu = request(OPERATIONAL_TO_FULL_FEATURE, &identity_and(""));
    (pdu.bhs.0[2], pdu.bhs.0[3]) = (1, 1);
    assert_eq!(failure(login().receive(pdu, &World::default())).status, LoginStatus::UnsupportedVersion);
}

#[test]
fn another_pdu_first_then_no_answer_and_later_then_invalid_during_login() {
    let world = World::default();
    let mut nop_out = request(0x80, "");
    nop_out.bhs.0[0] = 0x40;
    let step = login().receive(nop_out.clone(), &world);
    assert!(matches!(step, LoginStep::Failed { responses, .. } if responses.is_empty()));
    let mut login = login();
    answer(&login.receive(request(SECURITY, &identity_and("")), &world));
    assert_eq!(failure(login.receive(nop_out, &world)).status, LoginStatus::InvalidDuringLogin);
}

#[test]
fn after_the_end_then_nothing_more_is_sent() {
    let (world, mut login) = (World::default(), login());
    established(login.receive(request(OPERATIONAL_TO_FULL_FEATURE, &identity_and("")), &world));
    let step = login.receive(request(OPERATIONAL_TO_FULL_FEATURE, &identity_and("")), &world);
    assert!(matches!(step, LoginStep::Failed { responses, .. } if responses.is_empty()));
    assert_eq!(world.asked.borrow().len(), 1);
}

#[test]
fn a_later_connection_of_a_session_then_leading_only_keys_are_rejected_and_the_tsih_is_kept() {
    let world = World { tsih: Ok(0x0909), ..World::default() };
    let mut pdu = request(OPERATIONAL_TO_FULL_FEATURE, &identity_and("MaxBurstLength=4096 HeaderDigest=CRC32C"));
    pdu.bhs.0[14..16].copy_from_slice(&[0x09, 0x09]);
    let step = login().receive(pdu, &world);
    assert!(answer(&step).1.contains("MaxBurstLength=Reject HeaderDigest=CRC32C"));
    let established = established(step);
    assert_eq!((established.tsih, established.cid), (0x0909, 5));
    assert_eq!(world.asked.borrow()[0].1, 0x0909);
}

#[test]
fn long_answer_then_sent_in_pieces_and_the_stage_changes_with_the_last() {
    let (world, mut login) = (World::default(), login());
    let pairs: Vec<_> = (0..200).map(|n| format!("X-{n:0>50}=1")).collect();
    let (first, second) = pairs.split_at(100);
    let text = request(0, &identity_and(&pairs.join(" "))).data.to_vec();
    assert!(text.len() > 8192 && first.len() == second.len());
    let step = login.receive(raw_request(OPERATIONAL | C, text[..8000].to_vec()), &world);
    assert_eq!(answer(&step), (OPERATIONAL, String::new()));
    let (flags, mut whole) = {
        let step = login.receive(raw_request(OPERATIONAL_TO_FULL_FEATURE, text[8000..].to_vec()), &world);
        let LoginStep::Continue(responses) = step else { panic!("not yet") };
        assert_eq!(responses[0].data.len(), 8192);
        (responses[0].bhs.0[1], responses[0].data.to_vec())
    };
    assert_eq!(flags, OPERATIONAL | C);
    let step = login.receive(request(OPERATIONAL_TO_FULL_FEATURE, ""), &world);
    let LoginStep::Established { responses, .. } = step else { panic!("{step:?}") };
    assert_eq!(responses[0].bhs.0[1], OPERATIONAL_TO_FULL_FEATURE);
    whole.extend_from_slice(&responses[0].data);
    let whole = String::from_utf8(whole).unwrap();
    assert_eq!(whole.matches("=NotUnderstood\0").count(), 200);
    assert!(whole.ends_with("MaxRecvDataSegmentLength=262144\0"));
}

#[test]
fn new_text_while_a_long_answer_is_not_over_then_refused() {
    let (world, mut login) = (World::default(), login());
    let pairs: Vec<_> = (0..130).map(|n| format!("X-{n:0>50}=1")).collect();
    let step = login.receive(request(OPERATIONAL, &identity_and(&pairs.join(" "))), &world);
    let LoginStep::Continue(responses) = step else { panic!("{step:?}") };
    assert_eq!(responses[0].bhs.0[1], OPERATIONAL | C);
    assert_eq!(
        failure(login.receive(request(OPERATIONAL, "InitialR2T=No"), &world)).status,
        LoginStatus::InitiatorError
    );
}
