use proptest::prelude::*;

use super::table::KEYS;
use super::*;
use crate::text;

/// Answers `asked` (pairs separated by blanks) on a negotiation; the target's own declaration is left away.
fn answers(negotiation: &mut Negotiation, asked: &str) -> Vec<String> {
    let asked = asked.replace(' ', "\0");
    let pairs = text::parse(asked.as_bytes()).unwrap();
    let mut out = TextWriter::default();
    negotiation.answer(&pairs, &mut out).unwrap();
    let out = out.finish();
    text::parse(&out)
        .unwrap()
        .iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .filter(|pair| !pair.starts_with("MaxRecvDataSegmentLength="))
        .collect()
}

fn normal() -> Negotiation {
    Negotiation::new(Offered::default(), false, true)
}

/// The answer to one pair on a fresh negotiation, and the parameters after it.
fn one(asked: &str) -> (String, Parameters) {
    let mut negotiation = normal();
    let answer = answers(&mut negotiation, asked).join(" ");
    (answer, negotiation.finish())
}

/// Defaults with this target's MaxRecvDataSegmentLength declared.
fn defaults() -> Parameters {
    Parameters { max_recv_data_segment_length: 262_144, ..Parameters::default() }
}

#[test]
fn answer_every_number_then_minimum_or_maximum_inside_the_range() {
    for (asked, answer) in [
        ("MaxConnections=1", "MaxConnections=1"),
        ("MaxConnections=65535", "MaxConnections=1"),
        ("MaxConnections=0", "MaxConnections=Reject"),
        ("MaxConnections=65536", "MaxConnections=Reject"),
        ("MaxBurstLength=512", "MaxBurstLength=512"),
        ("MaxBurstLength=0x40000", "MaxBurstLength=262144"),
        ("MaxBurstLength=16777215", "MaxBurstLength=1048576"),
        ("MaxBurstLength=511", "MaxBurstLength=Reject"),
        ("MaxBurstLength=16777216", "MaxBurstLength=Reject"),
        ("MaxBurstLength=4294968296", "MaxBurstLength=Reject"),
        ("MaxBurstLength=many", "MaxBurstLength=Reject"),
        ("MaxBurstLength=", "MaxBurstLength=Reject"),
        ("FirstBurstLength=512", "FirstBurstLength=512"),
        ("FirstBurstLength=262144", "FirstBurstLength=65536"),
        ("FirstBurstLength=511", "FirstBurstLength=Reject"),
        ("DefaultTime2Wait=0", "DefaultTime2Wait=2"),
        ("DefaultTime2Wait=3600", "DefaultTime2Wait=3600"),
        ("DefaultTime2Wait=3601", "DefaultTime2Wait=Reject"),
        ("DefaultTime2Retain=3600", "DefaultTime2Retain=0"),
        ("DefaultTime2Retain=3601", "DefaultTime2Retain=Reject"),
        ("MaxOutstandingR2T=1", "MaxOutstandingR2T=1"),
        ("MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"),
        ("MaxOutstandingR2T=0", "MaxOutstandingR2T=Reject"),
        ("ErrorRecoveryLevel=0", "ErrorRecoveryLevel=0"),
        ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
        ("ErrorRecoveryLevel=3", "ErrorRecoveryLevel=Reject"),
        ("iSCSIProtocolLevel=0", "iSCSIProtocolLevel=0"),
        ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
        ("iSCSIProtocolLevel=31", "iSCSIProtocolLevel=1"),
        ("iSCSIProtocolLevel=32", "iSCSIProtocolLevel=Reject"),
    ] {
        assert_eq!(one(asked).0, answer);
    }
}

#[test]
fn answer_every_boolean_then_and_or_or() {
    for (asked, answer) in [
        ("InitialR2T=Yes", "InitialR2T=Yes"),
        ("InitialR2T=No", "InitialR2T=No"),
        ("InitialR2T=yes", "InitialR2T=Reject"),
        ("ImmediateData=Yes", "ImmediateData=Yes"),
        ("ImmediateData=No", "ImmediateData=No"),
        ("ImmediateData=", "ImmediateData=Reject"),
        ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
        ("DataPDUInOrder=Yes", "DataPDUInOrder=Yes"),
        ("DataSequenceInOrder=No", "DataSequenceInOrder=Yes"),
        ("DataSequenceInOrder=Yes", "DataSequenceInOrder=Yes"),
    ] {
        assert_eq!(one(asked).0, answer);
    }
}

#[test]
fn answer_every_list_then_the_first_common_value_or_reject() {
    for (asked, answer) in [
        ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
        ("HeaderDigest=None,CRC32C", "HeaderDigest=None"),
        ("HeaderDigest=CRC32C", "HeaderDigest=CRC32C"),
        ("HeaderDigest=None", "HeaderDigest=None"),
        ("HeaderDigest=CRC-64", "HeaderDigest=Reject"),
        ("DataDigest=CRC-64,CRC32C,None", "DataDigest=CRC32C"),
        ("DataDigest=", "DataDigest=Reject"),
        ("TaskReporting=FastAbort,ResponseFence,RFC3720", "TaskReporting=RFC3720"),
        ("TaskReporting=FastAbort", "TaskReporting=Reject"),
    ] {
        assert_eq!(one(asked).0, answer);
    }
}

#[test]
fn answer_obsolete_markers_then_no_or_reject_and_never_not_understood() {
    for (asked, answer) in [
        ("IFMarker=No", "IFMarker=No"),
        ("IFMarker=Yes", "IFMarker=No"),
        ("OFMarker=Yes", "OFMarker=No"),
        ("IFMarkInt=2048~4096", "IFMarkInt=Reject"),
        ("OFMarkInt=2048", "OFMarkInt=Reject"),
    ] {
        assert_eq!(one(asked), (answer.to_owned(), defaults()));
    }
}

#[test]
fn answer_unknown_keys_then_not_understood() {
    for key in ["X-org.example.foo", "RDMAExtensions", "headerdigest", "Y-sum", "KRB_AP_REQ"] {
        assert_eq!(one(&format!("{key}=1")), (format!("{key}=NotUnderstood"), defaults()));
    }
}

#[test]
fn answer_keys_that_have_no_place_in_the_stage_then_reject() {
    for key in [
        "SendTargets",
        "TargetAlias",
        "TargetAddress",
        "TargetPortalGroupTag",
        "AuthMethod",
        "CHAP_A",
        "CHAP_I",
        "CHAP_C",
        "CHAP_N",
        "CHAP_R",
    ] {
        assert_eq!(one(&format!("{key}=1")), (format!("{key}=Reject"), defaults()));
    }
}

#[test]
fn answer_declarations_then_none() {
    for asked in ["X#NodeArchitecture=Linux,6.1", "InitiatorAlias=host", "SessionType=Normal"] {
        assert_eq!(one(asked), (String::new(), defaults()));
    }
    let (answer, parameters) = one("MaxRecvDataSegmentLength=65536");
    assert_eq!((answer.as_str(), parameters.max_send_data_segment_length), ("", 65_536));
}

#[test]
fn answer_in_the_security_stage_then_operational_keys_are_rejected_and_change_nothing() {
    let mut negotiation = normal();
    for key in KEYS {
        let pair = Pair { key: key.name, value: "1" };
        let answer = negotiation.answer_in_security_stage(&pair).unwrap();
        let expected = match key.name {
            "TargetName" | "InitiatorName" | "InitiatorAlias" | "SessionType" | "X#NodeArchitecture" => None,
            _ => Some(REJECT.to_owned()),
        };
        assert_eq!(answer, expected, "{}", key.name);
    }
    let pair = Pair { key: "X-a", value: "" };
    assert_eq!(negotiation.answer_in_security_stage(&pair), Ok(Some(NOT_UNDERSTOOD.to_owned())));
    assert_eq!(negotiation.finish(), Parameters::default());
}

#[test]
fn answer_then_the_own_max_recv_data_segment_length_is_declared_once() {
    let mut negotiation = normal();
    let mut out = TextWriter::default();
    negotiation.answer(&[], &mut out).unwrap();
    assert_eq!(&out.finish()[..], b"MaxRecvDataSegmentLength=262144\0");
    let mut out = TextWriter::default();
    negotiation.answer(&[], &mut out).unwrap();
    assert!(out.finish().is_empty());
    assert_eq!(negotiation.finish(), defaults());
    assert_eq!(normal().finish(), Parameters::default());
}

#[test]
fn answer_on_a_discovery_session_then_what_concerns_commands_is_irrelevant() {
    let mut negotiation = Negotiation::new(Offered::default(), true, true);
    let irrelevant = [
        "MaxConnections=1",
        "InitialR2T=No",
        "ImmediateData=Yes",
        "MaxBurstLength=262144",
        "FirstBurstLength=65536",
        "MaxOutstandingR2T=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "TaskReporting=RFC3720",
        "iSCSIProtocolLevel=1",
    ];
    for asked in irrelevant {
        let key = asked.split('=').next().unwrap();
        assert_eq!(answers(&mut negotiation, asked), [format!("{key}=Irrelevant")]);
    }
    assert_eq!(
        answers(&mut negotiation, "HeaderDigest=CRC32C DefaultTime2Wait=5 DefaultTime2Retain=0 ErrorRecoveryLevel=0"),
        ["HeaderDigest=CRC32C", "DefaultTime2Wait=5", "DefaultTime2Retain=0", "ErrorRecoveryLevel=0"]
    );
    let expected = Parameters { header_digest: true, default_time2wait: 5, default_time2retain: 0, ..defaults() };
    assert_eq!(negotiation.finish(), expected);
}

#[test]
fn answer_on_a_later_connection_then_leading_only_keys_are_rejected() {
    for key in KEYS.iter().filter(|key| key.leading_only && key.usage == table::Use::Operational) {
        let mut negotiation = Negotiation::new(Offered::default(), false, false);
        assert_eq!(answers(&mut negotiation, &format!("{}=1", key.name)), [format!("{}=Reject", key.name)]);
    }
    let mut negotiation = Negotiation::new(Offered::default(), false, false);
    assert_eq!(answers(&mut negotiation, "HeaderDigest=CRC32C"), ["HeaderDigest=CRC32C"]);
}

#[test]
fn answer_first_burst_length_without_unsolicited_data_then_irrelevant_wherever_it_stands() {
    for asked in [
        "FirstBurstLength=65536 InitialR2T=Yes ImmediateData=No",
        "InitialR2T=Yes FirstBurstLength=65536 ImmediateData=No",
        "ImmediateData=No FirstBurstLength=65536",
    ] {
        assert!(one(asked).0.ends_with("FirstBurstLength=Irrelevant"), "{asked}");
    }
    for asked in ["FirstBurstLength=65536 InitialR2T=No ImmediateData=No", "FirstBurstLength=65536 InitialR2T=Yes"] {
        assert!(one(asked).0.ends_with("FirstBurstLength=65536"), "{asked}");
    }
}

#[test]
fn answer_first_burst_length_then_never_above_max_burst_length() {
    let (answer, parameters) = one("FirstBurstLength=65536 MaxBurstLength=4096");
    assert_eq!(answer, "MaxBurstLength=4096 FirstBurstLength=4096");
    assert_eq!((parameters.max_burst_length, parameters.first_burst_length), (4096, 4096));

    let (_, parameters) = one("MaxBurstLength=4096");
    assert_eq!((parameters.max_burst_length, parameters.first_burst_length), (4096, 4096));

    let mut negotiation = normal();
    answers(&mut negotiation, "FirstBurstLength=65536");
    let late = [Pair { key: "MaxBurstLength", value: "4096" }];
    assert!(negotiation.answer(&late, &mut TextWriter::default()).is_err());
}

#[test]
fn answer_bad_max_recv_data_segment_length_then_an_error() {
    for value in ["511", "16777216", "0", "", "Reject", "4294967808"] {
        let pair = [Pair { key: "MaxRecvDataSegmentLength", value }];
        let error = normal().answer(&pair, &mut TextWriter::default()).unwrap_err();
        assert_eq!(error.key, "MaxRecvDataSegmentLength", "{value}");
    }
}

#[test]
fn answer_when_digests_are_not_offered_then_none_only() {
    let offered = Offered { header_digest: false, data_digest: false, ..Offered::default() };
    let mut negotiation = Negotiation::new(offered, false, true);
    assert_eq!(
        answers(&mut negotiation, "HeaderDigest=CRC32C,None DataDigest=CRC32C"),
        ["HeaderDigest=None", "DataDigest=Reject"]
    );
    assert_eq!(negotiation.finish(), defaults());
}

#[test]
fn answer_when_own_values_are_out_of_range_then_brought_into_it() {
    let offered = Offered {
        max_recv_data_segment_length: 0,
        max_burst_length: u32::MAX,
        first_burst_length: 0,
        max_outstanding_r2t: 0,
        max_connections: 0,
        default_time2wait: 60_000,
        ..Offered::default()
    };
    let mut negotiation = Negotiation::new(offered, false, true);
    assert_eq!(
        answers(
            &mut negotiation,
            "MaxBurstLength=16777215 FirstBurstLength=4096 MaxOutstandingR2T=4 MaxConnections=2 DefaultTime2Wait=1"
        ),
        [
            "MaxBurstLength=16777215",
            "MaxOutstandingR2T=1",
            "MaxConnections=1",
            "DefaultTime2Wait=3600",
            "FirstBurstLength=512"
        ]
    );
    assert_eq!(negotiation.finish().max_recv_data_segment_length, 512);
}

proptest! {
    /// Whatever is proposed: one answer to each pair at most, and parameters inside the RFC's ranges.
    #[test]
    fn answer_any_values_then_parameters_stay_in_range(
        values in proptest::collection::vec((0..KEYS.len(), "([0-9]{1,9}|Yes|No|CRC32C|None|0x[0-9a-f]{1,8}|\\PC{0,10})"), 0..30),
        discovery: bool,
        leading: bool,
    ) {
        let mut negotiation = Negotiation::new(Offered::default(), discovery, leading);
        for (key, value) in &values {
            let pair = [Pair { key: KEYS[*key].name, value }];
            let mut out = TextWriter::default();
            if negotiation.answer(&pair, &mut out).is_err() {
                break;
            }
            prop_assert!(text::parse(&out.finish()).unwrap().len() <= 2);
        }
        let p = negotiation.finish();
        let lengths = MIN_LENGTH..=MAX_LENGTH;
        prop_assert!(lengths.contains(&p.max_send_data_segment_length));
        prop_assert!(lengths.contains(&p.max_burst_length) && lengths.contains(&p.first_burst_length));
        prop_assert!(p.first_burst_length <= p.max_burst_length);
        prop_assert!((1..=8).contains(&p.max_outstanding_r2t) && p.max_connections == 1);
        prop_assert!(p.default_time2wait <= 3600 && p.error_recovery_level == 0);
        prop_assert!(p.data_pdu_in_order && p.data_sequence_in_order);
    }
}
