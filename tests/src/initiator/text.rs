//! Text keys: `key=value` pairs that end in a zero byte each (RFC 7143, 6.1), and binary values as hex or base64.

use anyhow::{Context, Result, bail};

/// The data segment for these pairs.
pub fn encode<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in pairs {
        bytes.extend_from_slice(key.as_ref().as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_ref().as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The pairs of a whole data segment, in order.
pub fn decode(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for pair in bytes.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
        let pair = std::str::from_utf8(pair).context("text that is not UTF-8")?;
        let (key, value) = pair.split_once('=').with_context(|| format!("no value in {pair:?}"))?;
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// How a binary value is written (RFC 7143, 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryForm {
    /// `0x` and hexadecimal digits.
    Hex,
    /// `0b` and base64.
    Base64,
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes a binary value.
pub fn encode_binary(bytes: &[u8], form: BinaryForm) -> String {
    match form {
        BinaryForm::Hex => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }
        BinaryForm::Base64 => {
            let mut text = String::from("0b");
            for group in bytes.chunks(3) {
                let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
                let word = at(0) << 16 | at(1) << 8 | at(2);
                for position in 0..4 {
                    if position <= group.len() {
                        let digit = (word >> (18 - 6 * position)) & 0x3f;
                        text.push(char::from(BASE64[digit as usize]));
                    } else {
                        text.push('=');
                    }
                }
            }
            text
        }
    }
}

/// Reads a binary value in either form.
pub fn decode_binary(text: &str) -> Result<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        if digits.len() % 2 == 1 {
            return decode_binary(&format!("0x0{digits}"));
        }
        let pairs = digits.as_bytes().chunks(2);
        return pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect();
    }
    let Some(digits) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) else {
        bail!("neither hex nor base64: {text:?}");
    };
    let mut bytes = Vec::new();
    for group in digits.trim_end_matches('=').as_bytes().chunks(4) {
        let mut word = 0_u32;
        for digit in group {
            let value = BASE64.iter().position(|known| known == digit).context("not a base64 digit")?;
            word = word << 6 | u32::try_from(value)?;
        }
        word <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    Ok(bytes)
}

/// The value of `key`, when it is there.
pub fn find<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_when_pairs_are_encoded_then_the_same_pairs() {
        let pairs = [("A", "b=c"), ("D", "")];
        let bytes = encode(&pairs);
        assert_eq!(bytes, b"A=b=c\0D=\0");
        assert_eq!(decode(&bytes).unwrap()[0], ("A".to_owned(), "b=c".to_owned()));
        assert!(decode(b"no value\0").is_err());
    }

    #[test]
    fn binary_when_written_as_base64_then_the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("f", "0bZg=="),
            ("fo", "0bZm8="),
            ("foo", "0bZm9v"),
            ("foob", "0bZm9vYg=="),
            ("fooba", "0bZm9vYmE="),
            ("foobar", "0bZm9vYmFy"),
        ] {
            assert_eq!(encode_binary(bytes.as_bytes(), BinaryForm::Base64), text);
            assert_eq!(decode_binary(text).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn binary_when_written_as_hex_then_read_back() {
        assert_eq!(encode_binary(&[0, 0xab, 9], BinaryForm::Hex), "0x00ab09");
        assert_eq!(decode_binary("0X00aB09").unwrap(), [0, 0xab, 9]);
        assert_eq!(decode_binary("0xabc").unwrap(), [0x0a, 0xbc]);
        assert!(decode_binary("12").is_err());
    }
}
