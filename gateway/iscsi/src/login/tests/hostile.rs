use proptest::prelude::*;

use super::*;
use crate::environment::testing::chap_access;
use crate::text::MAX_TEXT_BYTES;

fn fails(text: Vec<u8>) -> LoginFailure {
    failure(login().receive(raw_request(OPERATIONAL_TO_FULL_FEATURE, text), &World::default()))
}

#[test]
fn malformed_text_then_initiator_error() {
    let with = |bytes: &[u8]| [identity_and("").replace(' ', "\0").as_bytes(), b"\0", bytes].concat();
    for (bytes, error) in [
        (&b"novalue\0"[..], TextError::NoEqualsSign),
        (b"=1\0", TextError::MalformedKey),
        (b"a b=1\0", TextError::MalformedKey),
        (b"X-a=\xff\xfe\0", TextError::NotUtf8),
    ] {
        assert_eq!(fails(with(bytes)).reason, FailureReason::Text(error));
    }
    let huge_key = format!("{}=1", "K".repeat(5000));
    assert_eq!(fails(with(huge_key.as_bytes())).reason, FailureReason::Text(TextError::MalformedKey));
    let many: String = (0..300).map(|n| format!("X-{n}=\0")).collect();
    assert_eq!(fails(with(many.as_bytes())).reason, FailureReason::Text(TextError::TooManyPairs));
}

#[test]
fn more_than_8192_bytes_in_one_request_then_refused() {
    assert_eq!(fails(vec![0; 8193]).status, LoginStatus::InitiatorError);
}

#[test]
fn text_without_end_then_refused_at_the_limit() {
    let (world, mut login) = (World::default(), login());
    let mut taken = 0;
    let refused = loop {
        match login.receive(raw_request(OPERATIONAL | C, vec![b'x'; 8192]), &world) {
            LoginStep::Continue(_) => taken += 8192,
            step => break failure(step),
        }
        assert!(taken <= MAX_TEXT_BYTES);
    };
    assert_eq!(refused.reason, FailureReason::Text(TextError::TooLong));
}

#[test]
fn requests_without_end_then_refused_at_the_limit() {
    for flags in [OPERATIONAL, OPERATIONAL | C] {
        let (world, mut login) = (World::default(), login());
        answer(&login.receive(request(OPERATIONAL, &identity_and("")), &world));
        let refused = (0..MAX_REQUESTS).find_map(|_| match login.receive(request(flags, ""), &world) {
            LoginStep::Continue(_) => None,
            step => Some(failure(step).status),
        });
        assert_eq!(refused, Some(LoginStatus::InitiatorError));
    }
}

#[test]
fn keys_over_many_requests_then_refused_at_the_limit() {
    let (world, mut login) = (World::default(), login());
    answer(&login.receive(request(OPERATIONAL, &identity_and("")), &world));
    let refused = (0..10).find_map(|round| {
        let pairs: Vec<_> = (0..100).map(|n| format!("X-{round}-{n}=1")).collect();
        match login.receive(request(OPERATIONAL, &pairs.join(" ")), &world) {
            LoginStep::Continue(_) => None,
            step => Some(failure(step).reason),
        }
    });
    assert_eq!(refused, Some(FailureReason::Text(TextError::TooManyPairs)));
}

/// Texts that come near to what is expected.
fn near_text() -> impl Strategy<Value = Vec<u8>> {
    let keys: Vec<&str> = crate::negotiation::table::KEYS.iter().map(|key| key.name).collect();
    let key = prop_oneof![
        8 => proptest::sample::select(keys),
        1 => Just("X-a"),
        1 => Just(""),
    ];
    let value = prop_oneof![
        Just(INITIATOR.to_owned()),
        Just(TARGET.to_owned()),
        Just("CHAP".to_owned()),
        Just("CHAP,None".to_owned()),
        Just("5".to_owned()),
        Just("0x4142434445464748494a4b4c4d4e4f50".to_owned()),
        "[0-9]{1,8}",
        "Yes|No|Normal|Discovery|user",
        "\\PC{0,30}",
    ];
    let pairs = proptest::collection::vec((key, value, prop_oneof![9 => Just("\0"), 1 => Just("")]), 0..8);
    pairs.prop_map(|pairs| {
        pairs.iter().map(|(key, value, end)| format!("{key}={value}{end}")).collect::<String>().into_bytes()
    })
}

fn any_pdu() -> impl Strategy<Value = Pdu> {
    let flags = prop_oneof![
        4 => proptest::sample::select(vec![
            SECURITY, SECURITY_TO_OPERATIONAL, SECURITY_TO_FULL_FEATURE, OPERATIONAL, OPERATIONAL_TO_FULL_FEATURE,
            SECURITY | C, OPERATIONAL | C,
        ]),
        1 => any::<u8>(),
    ];
    let text = prop_oneof![
        8 => near_text(),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => Just(Vec::new()),
    ];
    let first = prop_oneof![
        2 => Just(format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0").into_bytes()),
        1 => Just(Vec::new()),
    ];
    let header = proptest::option::weighted(0.1, proptest::array::uniform32(any::<u8>()));
    (flags, first, text, header).prop_map(|(flags, first, text, header)| {
        let mut pdu = raw_request(flags, [first, text].concat());
        if let Some(header) = header {
            pdu.bhs.0[..32].copy_from_slice(&header);
        }
        pdu
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever comes: no panic, one response at most that fits into a login PDU, an end that stays the end, and
    /// nobody in a session whose secret they do not know.
    #[test]
    fn random_pdus_then_bounded_answers_and_no_session_without_the_secret(
        pdus in proptest::collection::vec(any_pdu(), 1..12),
        required: bool,
    ) {
        let mut world = World::default();
        if required {
            world.target_access = Ok(chap_access("user", b"secret", Some(b"another")));
            world.discovery_access = world.target_access.clone();
        }
        let mut login = login();
        let mut over = false;
        for pdu in pdus {
            let (responses, ends) = match login.receive(pdu, &world) {
                LoginStep::Continue(responses) => (responses, false),
                LoginStep::Failed { responses, .. } => (responses, true),
                LoginStep::Established { responses, .. } => {
                    prop_assert!(!required);
                    (responses, true)
                }
            };
            prop_assert!(responses.len() <= 1 && !(over && (!responses.is_empty() || !ends)));
            for response in &responses {
                prop_assert!(response.data.len() <= 8192);
                prop_assert_eq!(response.bhs.0[0], 0x23);
            }
            over |= ends;
        }
        prop_assert!(world.asked.borrow().len() <= 1);
    }

    /// The same text cut anywhere gives the same session.
    #[test]
    fn text_cut_anywhere_then_the_same_login(cuts in proptest::collection::vec(0_usize..200, 0..6)) {
        let pairs = identity_and("InitialR2T=No HeaderDigest=CRC32C MaxBurstLength=8192 FirstBurstLength=512 X-a=b");
        let text = request(0, &pairs).data.to_vec();
        let whole = established(login().receive(raw_request(OPERATIONAL_TO_FULL_FEATURE, text.clone()), &World::default()));
        let (world, mut login) = (World::default(), login());
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut begin = 0;
        for cut in cuts {
            let step = login.receive(raw_request(OPERATIONAL | C, text[begin..cut].to_vec()), &world);
            prop_assert_eq!(answer(&step), (OPERATIONAL, String::new()));
            begin = cut;
        }
        let last = login.receive(raw_request(OPERATIONAL_TO_FULL_FEATURE, text[begin..].to_vec()), &world);
        let pieces = established(last);
        prop_assert_eq!(pieces.parameters, whole.parameters);
        prop_assert_eq!(pieces.identity, whole.identity);
    }
}
