use proptest::prelude::*;

use super::*;
use crate::environment::testing::{World, chap_access, credential};

const SECRET: &[u8] = b"initiator's secret";
const TARGET_SECRET: &[u8] = b"the target's secret";

fn chap(target_secret: Option<&[u8]>) -> Chap {
    Chap::new(chap_access("user", SECRET, target_secret).chap.unwrap())
}

fn algorithms(list: &str) -> ChapKeys<'_> {
    ChapKeys { algorithms: Some(list), ..ChapKeys::default() }
}

/// A challenge of `algorithm`, whose identifier is 0x40 and whose bytes count up from 0x41.
fn challenged(chap: Chap, algorithm: ChapAlgorithm) -> Challenge {
    chap.choose_algorithm(&algorithms(&algorithm.number().to_string()), &World::default()).unwrap().0
}

fn response_to(challenge: &Challenge, secret: &[u8]) -> String {
    let secret = credential("", secret).secret;
    encode_hex(challenge.algorithm.respond(challenge.identifier, &secret, &challenge.challenge).as_bytes())
}

#[test]
fn choose_algorithm_then_the_first_of_the_initiators_list_that_is_spoken() {
    for (list, number) in
        [("5", 5), ("7", 7), ("8", 8), ("8,7,6,5", 8), ("6,7,5", 7), ("6,5", 5), ("1,2,99,x,,0x5", 5), ("0x08", 8)]
    {
        let (challenge, answer) = chap(None).choose_algorithm(&algorithms(list), &World::default()).unwrap();
        assert_eq!(challenge.algorithm.number(), number, "{list}");
        assert_eq!(answer[0], ("CHAP_A", number.to_string()));
        assert_eq!(answer[1], ("CHAP_I", "64".to_owned()));
        let (key, value) = &answer[2];
        assert_eq!((*key, decode_binary(value).unwrap().len()), ("CHAP_C", challenge.algorithm.digest_bytes()));
    }
}

#[test]
fn choose_algorithm_when_nothing_is_common_or_sha_1_alone_then_refused() {
    for list in ["6", "", "Reject", "4,6,9", "5 ", "-5"] {
        let refused = chap(None).choose_algorithm(&algorithms(list), &World::default()).err();
        assert_eq!(refused, Some(ChapError::NoCommonAlgorithm), "{list}");
    }
    let long = format!("5,{}", "9,".repeat(200));
    let refused = chap(None).choose_algorithm(&algorithms(&long), &World::default()).err();
    assert_eq!(refused, Some(ChapError::Malformed("CHAP_A")));
}

#[test]
fn choose_algorithm_when_keys_are_missing_or_early_then_refused() {
    let refused = |keys: ChapKeys<'_>| chap(None).choose_algorithm(&keys, &World::default()).err();
    assert_eq!(refused(ChapKeys::default()), Some(ChapError::Missing("CHAP_A")));
    assert_eq!(refused(ChapKeys { response: Some("0x00"), ..algorithms("5") }), Some(ChapError::OutOfPlace("CHAP_R")));
    assert_eq!(refused(ChapKeys { challenge: Some("0x00"), ..algorithms("5") }), Some(ChapError::OutOfPlace("CHAP_C")));
}

#[test]
fn verify_right_secret_with_each_algorithm_then_authenticated_one_way() {
    for algorithm in ChapAlgorithm::ALL {
        let challenge = challenged(chap(None), algorithm);
        let response = response_to(&challenge, SECRET);
        let keys = ChapKeys { name: Some("user"), response: Some(&response), ..ChapKeys::default() };
        let authenticated = challenge.verify(&keys).unwrap();
        assert_eq!(authenticated, Authenticated { algorithm, user: "user".to_owned(), answer: None });
    }
}

#[test]
fn verify_wrong_secret_name_or_length_then_refused() {
    for algorithm in ChapAlgorithm::ALL {
        let right = response_to(&challenged(chap(None), algorithm), SECRET);
        let longer = format!("{right}00");
        for (name, response, error) in [
            ("user", response_to(&challenged(chap(None), algorithm), b"wrong"), ChapError::WrongCredentials),
            ("User", right.clone(), ChapError::WrongCredentials),
            ("", right.clone(), ChapError::WrongCredentials),
            ("user", longer, ChapError::WrongCredentials),
            ("user", right[..right.len() - 2].to_owned(), ChapError::WrongCredentials),
            ("user", "0x".to_owned(), ChapError::Malformed("CHAP_R")),
            ("user", "plain".to_owned(), ChapError::Malformed("CHAP_R")),
        ] {
            let keys = ChapKeys { name: Some(name), response: Some(&response), ..ChapKeys::default() };
            assert_eq!(challenged(chap(None), algorithm).verify(&keys), Err(error), "{name} {response}");
        }
    }
}

#[test]
fn verify_when_keys_are_missing_or_late_then_refused() {
    let challenge = || challenged(chap(Some(TARGET_SECRET)), ChapAlgorithm::Md5);
    let response = response_to(&challenge(), SECRET);
    let whole = ChapKeys { name: Some("user"), response: Some(&response), ..ChapKeys::default() };
    for (keys, error) in [
        (ChapKeys { name: None, ..whole }, ChapError::Missing("CHAP_N")),
        (ChapKeys { response: None, ..whole }, ChapError::Missing("CHAP_R")),
        (ChapKeys { algorithms: Some("5"), ..whole }, ChapError::OutOfPlace("CHAP_A")),
        (ChapKeys { identifier: Some("1"), ..whole }, ChapError::Missing("CHAP_C")),
        (ChapKeys { challenge: Some("0x01"), ..whole }, ChapError::Missing("CHAP_I")),
        (ChapKeys { identifier: Some("256"), challenge: Some("0x01"), ..whole }, ChapError::Malformed("CHAP_I")),
        (ChapKeys { identifier: Some("1"), challenge: Some("01"), ..whole }, ChapError::Malformed("CHAP_C")),
    ] {
        assert_eq!(challenge().verify(&keys), Err(error));
    }
    let long = "n".repeat(256);
    let keys = ChapKeys { name: Some(&long), ..whole };
    assert_eq!(challenge().verify(&keys), Err(ChapError::Malformed("CHAP_N")));
}

#[test]
fn verify_when_no_credential_is_set_up_then_nobody_gets_in() {
    let mut access = chap_access("user", SECRET, None).chap.unwrap();
    access.initiator_credentials.clear();
    let challenge = challenged(Chap::new(access), ChapAlgorithm::Md5);
    let response = response_to(&challenge, SECRET);
    let keys = ChapKeys { name: Some("user"), response: Some(&response), ..ChapKeys::default() };
    assert_eq!(challenge.verify(&keys), Err(ChapError::WrongCredentials));
}

#[test]
fn verify_when_there_are_several_credentials_then_any_of_them_but_not_mixed() {
    let mut access = chap_access("user", SECRET, None).chap.unwrap();
    access.initiator_credentials.push(credential("other", b"other secret"));
    access.initiator_credentials.push(credential("other", b"secret after rotation"));
    for (name, secret, right) in [
        ("user", SECRET, true),
        ("other", b"other secret", true),
        ("other", b"secret after rotation", true),
        ("user", b"other secret", false),
        ("other", SECRET, false),
    ] {
        let challenge = challenged(Chap::new(access.clone()), ChapAlgorithm::Sha256);
        let response = response_to(&challenge, secret);
        let keys = ChapKeys { name: Some(name), response: Some(&response), ..ChapKeys::default() };
        assert_eq!(challenge.verify(&keys).is_ok(), right, "{name}");
    }
}

#[test]
fn verify_mutual_then_the_initiators_challenge_is_answered_with_the_targets_secret() {
    for algorithm in ChapAlgorithm::ALL {
        let challenge = challenged(chap(Some(TARGET_SECRET)), algorithm);
        let response = response_to(&challenge, SECRET);
        for (identifier, byte) in [("0", 0), ("255", 255), ("0xA", 10)] {
            let keys = ChapKeys {
                identifier: Some(identifier),
                challenge: Some("0bZm9vYmFy"),
                name: Some("user"),
                response: Some(&response),
                algorithms: None,
            };
            let answer = challenged(chap(Some(TARGET_SECRET)), algorithm).verify(&keys).unwrap().answer.unwrap();
            let expected = algorithm.respond(byte, &credential("", TARGET_SECRET).secret, b"foobar");
            assert_eq!(answer, [("CHAP_N", "holdfast".to_owned()), ("CHAP_R", encode_hex(expected.as_bytes()))]);
        }
    }
}

#[test]
fn verify_mutual_when_the_target_has_no_credential_then_refused() {
    let challenge = challenged(chap(None), ChapAlgorithm::Md5);
    let response = response_to(&challenge, SECRET);
    let keys = ChapKeys {
        identifier: Some("1"),
        challenge: Some("0x0102"),
        name: Some("user"),
        response: Some(&response),
        algorithms: None,
    };
    assert_eq!(challenge.verify(&keys), Err(ChapError::NoTargetCredential));
}

#[test]
fn verify_mutual_when_the_initiator_is_wrong_then_the_targets_secret_is_not_used() {
    let challenge = challenged(chap(Some(TARGET_SECRET)), ChapAlgorithm::Md5);
    let response = response_to(&challenge, b"wrong");
    let keys = ChapKeys {
        identifier: Some("1"),
        challenge: Some("0x0102"),
        name: Some("user"),
        response: Some(&response),
        algorithms: None,
    };
    assert_eq!(challenge.verify(&keys), Err(ChapError::WrongCredentials));
}

#[test]
fn verify_when_our_challenge_or_our_response_comes_back_then_refused() {
    let challenge = challenged(chap(Some(TARGET_SECRET)), ChapAlgorithm::Md5);
    let (own, right) = (encode_hex(&challenge.challenge), response_to(&challenge, SECRET));
    let keys = ChapKeys {
        identifier: Some("64"),
        challenge: Some(&own),
        name: Some("user"),
        response: Some(&right),
        algorithms: None,
    };
    assert_eq!(challenge.verify(&keys), Err(ChapError::Reflected));

    // What the target itself would answer, with or without a challenge beside it.
    let challenge = challenged(chap(Some(TARGET_SECRET)), ChapAlgorithm::Md5);
    let reflected = response_to(&challenge, TARGET_SECRET);
    let keys = ChapKeys { name: Some("user"), response: Some(&reflected), ..ChapKeys::default() };
    assert_eq!(challenge.verify(&keys), Err(ChapError::Reflected));
}

#[test]
fn verify_when_both_directions_have_one_secret_then_refused() {
    let challenge = challenged(chap(Some(SECRET)), ChapAlgorithm::Sha256);
    let response = response_to(&challenge, SECRET);
    let keys = ChapKeys { name: Some("user"), response: Some(&response), ..ChapKeys::default() };
    assert_eq!(challenge.verify(&keys), Err(ChapError::Reflected));
}

#[test]
fn take_when_a_key_comes_twice_then_refused() {
    let mut keys = ChapKeys::default();
    assert_eq!(keys.first(), None);
    assert_eq!(keys.take(&Pair { key: "CHAP_X", value: "1" }), Ok(false));
    assert_eq!(keys.take(&Pair { key: "CHAP_I", value: "1" }), Ok(true));
    assert_eq!(keys.take(&Pair { key: "CHAP_I", value: "2" }), Err(TextError::DuplicateKey));
    assert_eq!(keys.first(), Some("CHAP_I"));
}

proptest! {
    #[test]
    fn verify_any_secret_then_right_gets_in_and_any_other_does_not(
        secret in proptest::collection::vec(any::<u8>(), 1..=255),
        other in proptest::collection::vec(any::<u8>(), 1..=255),
        which in 0_usize..3,
    ) {
        let access = chap_access("user", &secret, None).chap.unwrap();
        let algorithm = ChapAlgorithm::ALL[which];
        for (tried, right) in [(&secret, true), (&other, secret == other)] {
            let challenge = challenged(Chap::new(access.clone()), algorithm);
            let response = response_to(&challenge, tried);
            let keys = ChapKeys { name: Some("user"), response: Some(&response), ..ChapKeys::default() };
            prop_assert_eq!(challenge.verify(&keys).is_ok(), right);
        }
    }

    #[test]
    fn verify_any_text_then_no_panic_and_nobody_gets_in(
        fields in proptest::array::uniform4(proptest::option::of("(0x|0b)?\\PC{0,20}")),
    ) {
        let [identifier, challenge, name, response] = &fields;
        let keys = ChapKeys {
            algorithms: None,
            identifier: identifier.as_deref(),
            challenge: challenge.as_deref(),
            name: name.as_deref(),
            response: response.as_deref(),
        };
        prop_assert!(challenged(chap(Some(TARGET_SECRET)), ChapAlgorithm::Md5).verify(&keys).is_err());
    }
}
