//! The text of login and text PDUs (RFC 7143, 6.1): `key=value` pairs, each ended by a zero byte, and their
//! continuation over several PDUs (C bit, 6.2). Knows nothing of what keys mean: that is [`crate::negotiation`].

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Longest key name in bytes (RFC 7143, 6.1).
pub const MAX_KEY_BYTES: usize = 63;

/// Longest plain text value in bytes (RFC 7143, 6.1). Names are shorter, binary values may be longer.
pub const MAX_VALUE_BYTES: usize = 255;

/// Most pairs in one negotiation: several times what the RFCs define, so that a hostile text stays cheap to answer.
pub const MAX_PAIRS: usize = 256;

/// Most text taken in one negotiation, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Why a text cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// More than [`MAX_TEXT_BYTES`].
    #[error("more than {MAX_TEXT_BYTES} bytes of text")]
    TooLong,
    /// More than [`MAX_PAIRS`].
    #[error("more than {MAX_PAIRS} keys")]
    TooManyPairs,
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// A pair without `=`.
    #[error("a key without a value")]
    NoEqualsSign,
    /// No key before the `=`, or one of more than [`MAX_KEY_BYTES`] or with characters that no key has.
    #[error("a malformed key")]
    MalformedKey,
    /// The same key twice in one negotiation (RFC 7143, 6.2).
    #[error("a key came twice")]
    DuplicateKey,
}

/// One `key=value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key: 1 to 63 printable ASCII characters.
    pub key: &'a str,
    /// The value; may be empty.
    pub value: &'a str,
}

/// The pairs of a whole text, in order.
///
/// Empty pairs are skipped and a missing last zero byte is forgiven: both come from initiators that count padding into
/// DataSegmentLength, or forget the end.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    let text = std::str::from_utf8(text).map_err(|_| TextError::NotUtf8)?;
    let mut pairs = Vec::new();
    for pair in text.split('\0').filter(|pair| !pair.is_empty()) {
        if pairs.len() == MAX_PAIRS {
            return Err(TextError::TooManyPairs);
        }
        let (key, value) = pair.split_once('=').ok_or(TextError::NoEqualsSign)?;
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TextError::MalformedKey);
        }
        pairs.push(Pair { key, value });
    }
    Ok(pairs)
}

/// Collects a text that comes in several PDUs.
#[derive(Debug, Default)]
pub struct TextCollector {
    pending: BytesMut,
    total_bytes: usize,
}

impl TextCollector {
    /// Adds the data segment of a PDU. With `more` (the C bit) the text goes on in the next PDU and nothing is
    /// returned yet. All texts of one collector together are limited to [`MAX_TEXT_BYTES`].
    pub fn add(&mut self, data: &Bytes, more: bool) -> Result<Option<Bytes>, TextError> {
        self.total_bytes = self.total_bytes.saturating_add(data.len());
        if self.total_bytes > MAX_TEXT_BYTES {
            return Err(TextError::TooLong);
        }
        if more {
            self.pending.extend_from_slice(data);
            return Ok(None);
        }
        if self.pending.is_empty() {
            return Ok(Some(data.clone()));
        }
        self.pending.extend_from_slice(data);
        Ok(Some(self.pending.split().freeze()))
    }

    /// Whether a text has begun whose end is still to come.
    pub fn is_collecting(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Writes pairs.
#[derive(Debug, Default)]
pub struct TextWriter(BytesMut);

impl TextWriter {
    /// Adds a pair with its zero byte.
    pub fn pair(&mut self, key: &str, value: &str) {
        debug_assert!(!value.contains('\0'), "a value holds no zero byte");
        self.0.reserve(key.len() + value.len() + 2);
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"=");
        self.0.extend_from_slice(value.as_bytes());
        self.0.extend_from_slice(b"\0");
    }

    /// The text.
    pub fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// A text on its way out in pieces.
#[derive(Debug, Default)]
pub struct TextSender(Bytes);

impl TextSender {
    /// Queues `text`; nothing may be left of the text before.
    pub fn start(&mut self, text: Bytes) {
        debug_assert!(self.0.is_empty(), "the text before is not sent yet");
        self.0 = text;
    }

    /// The next piece of at most `max_bytes`, and whether more follow (the C bit).
    pub fn next_piece(&mut self, max_bytes: usize) -> (Bytes, bool) {
        let piece = self.0.split_to(self.0.len().min(max_bytes));
        (piece, self.is_sending())
    }

    /// Bytes left to be sent.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Whether something is left to be sent.
    pub fn is_sending(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &[u8]) -> Result<Vec<(String, String)>, TextError> {
        Ok(parse(text)?.into_iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect())
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn parse_pairs_then_split_at_the_first_equals_sign() {
        assert_eq!(
            pairs(b"InitialR2T=No\0SendTargets=\0X-a.b=c=d\0"),
            Ok(owned(&[("InitialR2T", "No"), ("SendTargets", ""), ("X-a.b", "c=d")]))
        );
        assert_eq!(pairs(b""), Ok(vec![]));
    }

    #[test]
    fn parse_padding_or_no_last_zero_then_forgiven() {
        assert_eq!(pairs(b"A=1\0\0\0\0"), Ok(owned(&[("A", "1")])));
        assert_eq!(pairs(b"A=1\0B=2"), Ok(owned(&[("A", "1"), ("B", "2")])));
    }

    #[test]
    fn parse_malformed_then_says_why() {
        assert_eq!(pairs(b"A\0"), Err(TextError::NoEqualsSign));
        assert_eq!(pairs(b"=1\0"), Err(TextError::MalformedKey));
        assert_eq!(pairs(b"A B=1\0"), Err(TextError::MalformedKey));
        assert_eq!(pairs("\u{c4}=1\0".as_bytes()), Err(TextError::MalformedKey));
        assert_eq!(pairs(b"A=\xff\0"), Err(TextError::NotUtf8));
        let key = "K".repeat(MAX_KEY_BYTES);
        assert!(pairs(format!("{key}=1").as_bytes()).is_ok());
        assert_eq!(pairs(format!("{key}K=1").as_bytes()), Err(TextError::MalformedKey));
        assert!(pairs("A=1\0".repeat(MAX_PAIRS).as_bytes()).is_ok());
        assert_eq!(pairs("A=1\0".repeat(MAX_PAIRS + 1).as_bytes()), Err(TextError::TooManyPairs));
    }

    #[test]
    fn collector_when_text_comes_in_pieces_then_whole_at_the_end() {
        let mut collector = TextCollector::default();
        assert_eq!(collector.add(&Bytes::from_static(b"Init"), true), Ok(None));
        assert!(collector.is_collecting());
        assert_eq!(collector.add(&Bytes::from_static(b"ialR2T=N"), true), Ok(None));
        assert_eq!(collector.add(&Bytes::from_static(b"o\0"), false), Ok(Some(Bytes::from_static(b"InitialR2T=No\0"))));
        assert!(!collector.is_collecting());
        assert_eq!(collector.add(&Bytes::from_static(b"A=1\0"), false), Ok(Some(Bytes::from_static(b"A=1\0"))));
    }

    #[test]
    fn collector_when_the_total_is_too_long_then_refused() {
        let mut collector = TextCollector::default();
        let piece = Bytes::from(vec![b'x'; MAX_TEXT_BYTES / 4]);
        for more in [true, false, true, true] {
            assert!(collector.add(&piece, more).is_ok());
        }
        assert_eq!(collector.add(&Bytes::from_static(b"x"), true), Err(TextError::TooLong));
    }

    #[test]
    fn sender_when_text_is_longer_than_a_pdu_then_pieces_with_the_last_one_marked() {
        let mut sender = TextSender::default();
        assert_eq!(sender.next_piece(4), (Bytes::new(), false));
        sender.start(Bytes::from_static(b"0123456789"));
        assert_eq!(sender.next_piece(4), (Bytes::from_static(b"0123"), true));
        assert_eq!(sender.next_piece(4), (Bytes::from_static(b"4567"), true));
        assert_eq!(sender.next_piece(4), (Bytes::from_static(b"89"), false));
        sender.start(Bytes::from_static(b"0123"));
        assert_eq!(sender.next_piece(4), (Bytes::from_static(b"0123"), false));
    }

    proptest! {
        #[test]
        fn parse_random_bytes_then_no_panic(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(pairs) = parse(&text) {
                prop_assert!(pairs.iter().all(|pair| pair.key.len() <= MAX_KEY_BYTES));
            }
        }

        #[test]
        fn parse_what_the_writer_wrote_then_the_same(
            pairs in proptest::collection::vec(("[A-Za-z][A-Za-z0-9.+@_-]{0,62}", "[^\0]{0,40}"), 0..20),
        ) {
            let mut writer = TextWriter::default();
            for (key, value) in &pairs {
                writer.pair(key, value);
            }
            let text = writer.finish();
            let parsed: Vec<_> = parse(&text).unwrap().iter().map(|p| (p.key.to_owned(), p.value.to_owned())).collect();
            prop_assert_eq!(parsed, pairs);
        }
    }
}
