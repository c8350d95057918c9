//! Large binary values in text (RFC 7143, 6.1): `0x` and hexadecimal digits, or `0b` and Base64.

use thiserror::Error;

/// Longest binary value that CHAP has, in bytes (RFC 7143, 12.1.3).
pub const MAX_BINARY_BYTES: usize = 1024;

/// A text is no binary value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BinaryError {
    /// Neither `0x` nor `0b` in front.
    #[error("a binary value begins with 0x or 0b")]
    Prefix,
    /// No digits, a wrong one, or padding that does not fit.
    #[error("a wrong digit or a wrong number of digits")]
    Digits,
    /// More than [`MAX_BINARY_BYTES`].
    #[error("more than {MAX_BINARY_BYTES} bytes")]
    TooLong,
}

/// Reads either encoding. An odd number of hexadecimal digits has a leading zero left away.
pub fn decode_binary(text: &str) -> Result<Vec<u8>, BinaryError> {
    let (prefix, digits) = text.split_at_checked(2).ok_or(BinaryError::Prefix)?;
    let bytes = match prefix {
        "0x" | "0X" => decode_hex(digits.as_bytes())?,
        "0b" | "0B" => decode_base64(digits.as_bytes())?,
        _ => return Err(BinaryError::Prefix),
    };
    if bytes.len() > MAX_BINARY_BYTES { Err(BinaryError::TooLong) } else { Ok(bytes) }
}

/// `0x` and lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for &byte in bytes {
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}

fn decode_hex(digits: &[u8]) -> Result<Vec<u8>, BinaryError> {
    if digits.is_empty() {
        return Err(BinaryError::Digits);
    }
    if digits.len() > 2 * MAX_BINARY_BYTES {
        return Err(BinaryError::TooLong);
    }
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    for &digit in odd {
        bytes.push(hex_digit(digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        bytes.push(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?);
    }
    Ok(bytes)
}

fn hex_digit(digit: u8) -> Result<u8, BinaryError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BinaryError::Digits),
    }
}

fn decode_base64(text: &[u8]) -> Result<Vec<u8>, BinaryError> {
    if text.len() > MAX_BINARY_BYTES.div_ceil(3) * 4 {
        return Err(BinaryError::TooLong);
    }
    let padding = text.iter().rev().take_while(|&&digit| digit == b'=').count();
    let digits = &text[..text.len() - padding];
    if digits.is_empty() || !text.len().is_multiple_of(4) || padding > 2 {
        return Err(BinaryError::Digits);
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            bits = bits << 6 | u32::from(base64_digit(digit)?);
        }
        // A last group of two or three digits carries one or two bytes; the bits left over must be zero.
        let (value, len_bytes) = match group.len() {
            4 => (bits, 3),
            3 if bits & 0x03 == 0 => (bits << 6, 2),
            2 if bits & 0x0f == 0 => (bits << 12, 1),
            _ => return Err(BinaryError::Digits),
        };
        bytes.extend_from_slice(&value.to_be_bytes()[1..=len_bytes]);
    }
    Ok(bytes)
}

fn base64_digit(digit: u8) -> Result<u8, BinaryError> {
    match digit {
        b'A'..=b'Z' => Ok(digit - b'A'),
        b'a'..=b'z' => Ok(digit - b'a' + 26),
        b'0'..=b'9' => Ok(digit - b'0' + 52),
        b'+' => Ok(62),
        b'/' => Ok(63),
        _ => Err(BinaryError::Digits),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decode_hex_then_bytes() {
        assert_eq!(decode_binary("0x00ff10"), Ok(vec![0x00, 0xff, 0x10]));
        assert_eq!(decode_binary("0XaBcD"), Ok(vec![0xab, 0xcd]));
        assert_eq!(decode_binary("0x123"), Ok(vec![0x01, 0x23]));
    }

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn decode_base64_vectors_of_rfc_4648_then_bytes() {
        for (text, bytes) in [
            ("0bZg==", &b"f"[..]),
            ("0bZm8=", b"fo"),
            ("0bZm9v", b"foo"),
            ("0bZm9vYg==", b"foob"),
            ("0bZm9vYmE=", b"fooba"),
            ("0BZm9vYmFy", b"foobar"),
            ("0b+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(decode_binary(text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn decode_malformed_then_refused() {
        for text in ["", "0", "12", "x", "\u{e4}0"] {
            assert_eq!(decode_binary(text), Err(BinaryError::Prefix), "{text}");
        }
        for text in [
            "0x",
            "0xg0",
            "0x0g",
            "0x 0",
            "0b",
            "0b=",
            "0b====",
            "0bZ",
            "0bZg",
            "0bZg=",
            "0bZh==",
            "0bZm9=",
            "0bZm8",
            "0bZ===",
            "0bZm=v",
            "0bZm-_",
            "0b\u{e4}\u{e4}",
        ] {
            assert_eq!(decode_binary(text), Err(BinaryError::Digits), "{text}");
        }
    }

    #[test]
    fn decode_at_and_above_1024_bytes_then_the_limit_holds() {
        let hex = |len: usize| format!("0x{}", "a5".repeat(len));
        assert_eq!(decode_binary(&hex(1024)).map(|bytes| bytes.len()), Ok(1024));
        assert_eq!(decode_binary(&hex(1025)), Err(BinaryError::TooLong));
        assert_eq!(decode_binary(&hex(60_000)), Err(BinaryError::TooLong));
        assert_eq!(decode_binary(&format!("0b{}AA==", "AAAA".repeat(341))).map(|bytes| bytes.len()), Ok(1024));
        assert_eq!(decode_binary(&format!("0b{}", "AAAA".repeat(342))), Err(BinaryError::TooLong));
        assert_eq!(decode_binary(&format!("0b{}", "AAAA".repeat(9000))), Err(BinaryError::TooLong));
    }

    proptest! {
        #[test]
        fn decode_what_encode_wrote_then_the_same(bytes in proptest::collection::vec(any::<u8>(), 1..1024)) {
            prop_assert_eq!(decode_binary(&encode_hex(&bytes)), Ok(bytes));
        }

        #[test]
        fn decode_anything_then_no_panic(text in "(0x|0b|0)?\\PC{0,40}") {
            if let Ok(bytes) = decode_binary(&text) {
                prop_assert!(bytes.len() <= MAX_BINARY_BYTES);
            }
        }
    }
}
