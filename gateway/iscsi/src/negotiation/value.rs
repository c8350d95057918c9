//! The kinds of values and the result functions of RFC 7143, 6.1 and 6.2.

use crate::text::MAX_VALUE_BYTES;

/// A number: decimal, or hexadecimal after `0x` (RFC 7143, 6.1), up to 64 bits. `None` for anything else.
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    let all_digits = digits.bytes().all(|byte| char::from(byte).is_digit(radix));
    if all_digits { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// `Yes` or `No`.
pub fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// How a boolean is written.
pub fn boolean(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The first value of the initiator's list that is also in `own` (RFC 7143, 6.2.1). `None` if there is none, or if the
/// list is too long to be one.
pub fn first_common<'a>(list: &str, own: &[&'a str]) -> Option<&'a str> {
    if list.len() > MAX_VALUE_BYTES {
        return None;
    }
    list.split(',').find_map(|value| own.iter().copied().find(|&own| own == value))
}

/// The result function of a numerical key (RFC 7143, 6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberResult {
    /// The lower of both values.
    Minimum,
    /// The higher of both values.
    Maximum,
}

impl NumberResult {
    /// The outcome.
    pub fn of(self, proposed: u32, own: u32) -> u32 {
        match self {
            Self::Minimum => proposed.min(own),
            Self::Maximum => proposed.max(own),
        }
    }
}

/// The result function of a boolean key (RFC 7143, 6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BooleanResult {
    /// Yes if both say Yes.
    And,
    /// Yes if either says Yes.
    Or,
}

impl BooleanResult {
    /// The outcome.
    pub fn of(self, proposed: bool, own: bool) -> bool {
        match self {
            Self::And => proposed && own,
            Self::Or => proposed || own,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_number_decimal_and_hexadecimal_then_value() {
        for (text, number) in [
            ("0", 0),
            ("007", 7),
            ("65535", 65_535),
            ("0x0", 0),
            ("0xFf", 255),
            ("0X10", 16),
            ("18446744073709551615", u64::MAX),
            ("0xffffffffffffffff", u64::MAX),
        ] {
            assert_eq!(parse_number(text), Some(number), "{text}");
        }
    }

    #[test]
    fn parse_number_malformed_then_none() {
        for text in
            ["", "0x", "+1", "-1", "0x+1", " 1", "1 ", "1.0", "1,2", "1~2", "f", "0xg", "18446744073709551616", "Yes"]
        {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    #[test]
    fn parse_boolean_then_exactly_yes_or_no() {
        assert_eq!(parse_boolean("Yes"), Some(true));
        assert_eq!(parse_boolean("No"), Some(false));
        for text in ["", "yes", "NO", "1", "Yes,No", "Reject"] {
            assert_eq!(parse_boolean(text), None, "{text}");
        }
    }

    #[test]
    fn first_common_then_the_initiators_order_decides() {
        let own = ["CRC32C", "None"];
        assert_eq!(first_common("None,CRC32C", &own), Some("None"));
        assert_eq!(first_common("X-sum,CRC32C,None", &own), Some("CRC32C"));
        assert_eq!(first_common("crc32c", &own), None);
        assert_eq!(first_common("", &own), None);
        assert_eq!(first_common(&format!("None,{}", "x".repeat(260)), &own), None);
    }

    #[test]
    fn boolean_results_then_the_truth_tables() {
        for (proposed, own, and, or) in [
            (false, false, false, false),
            (false, true, false, true),
            (true, false, false, true),
            (true, true, true, true),
        ] {
            assert_eq!(BooleanResult::And.of(proposed, own), and);
            assert_eq!(BooleanResult::Or.of(proposed, own), or);
        }
    }

    proptest! {
        #[test]
        fn number_results_then_one_of_both_and_the_right_one(proposed: u32, own: u32) {
            prop_assert_eq!(NumberResult::Minimum.of(proposed, own), if proposed < own { proposed } else { own });
            prop_assert_eq!(NumberResult::Maximum.of(proposed, own), if proposed > own { proposed } else { own });
        }

        #[test]
        fn parse_number_of_any_number_then_the_same(number: u64) {
            prop_assert_eq!(parse_number(&number.to_string()), Some(number));
            prop_assert_eq!(parse_number(&format!("{number:#x}")), Some(number));
        }
    }
}
