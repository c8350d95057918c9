//! Cuts gRPC messages out of HTTP/2 DATA frames.
//!
//! Each message has a prefix of five bytes (compression flag, length) and may begin and end anywhere in a frame. What lies
//! in a frame stays there: a message is the list of its pieces. Only pieces below [`SMALL_PIECE_BYTES`] are copied
//! together, so that a peer cannot make many tiny pieces pin much memory.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

use super::wire::GRPC_PREFIX_BYTES;

/// A piece of a message shorter than this is gathered with its neighbours.
pub const SMALL_PIECE_BYTES: usize = 1024;

/// Why the bytes of a stream are not gRPC messages this side takes.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReaderError {
    /// The message is compressed: never negotiated here.
    #[error("compression flag is {flag}, only 0 is supported")]
    Compressed {
        /// The first byte of the prefix.
        flag: u8,
    },
    /// The message is longer than this side takes.
    #[error("message of {len_bytes} bytes is longer than {max_bytes}")]
    TooLong {
        /// Announced length in bytes.
        len_bytes: usize,
        /// Longest length taken, in bytes.
        max_bytes: usize,
    },
}

/// Splits a stream of frames into messages. Feed it with [`MessageReader::push`], then call [`MessageReader::next`] until
/// there is no more.
#[derive(Debug)]
pub struct MessageReader {
    max_message_bytes: usize,
    /// Frames that are not taken apart yet.
    input: VecDeque<Bytes>,
    prefix: [u8; GRPC_PREFIX_BYTES],
    prefix_len: usize,
    /// Bytes of the present message that are still missing, once its prefix is complete.
    missing: usize,
    pieces: Vec<Bytes>,
    /// Small pieces after `pieces`.
    gathered: BytesMut,
}

impl MessageReader {
    /// A reader that refuses messages longer than this many bytes.
    pub fn new(max_message_bytes: usize) -> Self {
        Self {
            max_message_bytes,
            input: VecDeque::new(),
            prefix: [0; GRPC_PREFIX_BYTES],
            prefix_len: 0,
            missing: 0,
            pieces: Vec::new(),
            gathered: BytesMut::new(),
        }
    }

    /// Takes the payload of the next DATA frame.
    pub fn push(&mut self, frame: Bytes) {
        if !frame.is_empty() {
            self.input.push_back(frame);
        }
    }

    /// Whether a message has begun that is not complete: the stream must not end here.
    pub fn is_mid_message(&self) -> bool {
        self.prefix_len > 0 || !self.input.is_empty()
    }

    /// The pieces of the next whole message, if it is there. After an error the stream cannot be understood any more.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator would say that the end was reached; here more may come"
    )]
    pub fn next(&mut self) -> Result<Option<Vec<Bytes>>, ReaderError> {
        while let Some(frame) = self.input.front_mut() {
            if self.prefix_len < GRPC_PREFIX_BYTES {
                let room = self.prefix.get_mut(self.prefix_len..).unwrap_or_default();
                let count = room.len().min(frame.len());
                frame.copy_to_slice(room.get_mut(..count).unwrap_or_default());
                self.prefix_len += count;
                if self.prefix_len == GRPC_PREFIX_BYTES {
                    self.missing = self.message_len()?;
                }
            } else {
                let piece = frame.split_to(self.missing.min(frame.len()));
                self.missing -= piece.len();
                self.take_piece(piece);
            }
            if self.input.front().is_some_and(Bytes::is_empty) {
                self.input.pop_front();
            }
            if self.prefix_len == GRPC_PREFIX_BYTES && self.missing == 0 {
                return Ok(Some(self.finish_message()));
            }
        }
        Ok(None)
    }

    fn message_len(&self) -> Result<usize, ReaderError> {
        let [flag, a, b, c, d] = self.prefix;
        if flag != 0 {
            return Err(ReaderError::Compressed { flag });
        }
        let len_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        if len_bytes > self.max_message_bytes {
            return Err(ReaderError::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        Ok(len_bytes)
    }

    fn take_piece(&mut self, piece: Bytes) {
        let is_whole = self.missing == 0 && self.pieces.is_empty() && self.gathered.is_empty();
        if piece.len() < SMALL_PIECE_BYTES && !is_whole {
            self.gathered.extend_from_slice(&piece);
            return;
        }
        self.flush_gathered();
        self.pieces.push(piece);
    }

    fn flush_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.pieces.push(self.gathered.split().freeze());
        }
    }

    fn finish_message(&mut self) -> Vec<Bytes> {
        self.flush_gathered();
        self.prefix_len = 0;
        std::mem::take(&mut self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for message in messages {
            stream.push(0);
            stream.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
            stream.extend_from_slice(message);
        }
        stream
    }

    fn drain(reader: &mut MessageReader) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(pieces) = reader.next().expect("well formed") {
            messages.push(pieces.concat());
        }
        messages
    }

    #[test]
    fn message_when_in_one_frame_then_is_not_copied() {
        let message = vec![7; 100];
        let frame = Bytes::from(framed(std::slice::from_ref(&message)));
        let begin = frame.as_ptr() as usize;
        let mut reader = MessageReader::new(1000);
        reader.push(frame);
        let pieces = reader.next().expect("well formed").expect("whole");
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].as_ptr() as usize, begin + GRPC_PREFIX_BYTES);
        assert!(!reader.is_mid_message());
    }

    #[test]
    fn large_message_when_over_frames_then_pieces_point_into_the_frames() {
        let stream = Bytes::from(framed(&[vec![9; 100_000]]));
        let mut reader = MessageReader::new(1 << 20);
        let mut at = 0;
        while at < stream.len() {
            let end = (at + 16_384).min(stream.len());
            reader.push(stream.slice(at..end));
            at = end;
        }
        let pieces = reader.next().expect("well formed").expect("whole");
        assert_eq!(pieces.len(), 7);
        assert_eq!(pieces[0].as_ptr() as usize, stream.as_ptr() as usize + GRPC_PREFIX_BYTES);
    }

    #[test]
    fn large_message_when_in_tiny_frames_then_few_pieces() {
        let stream = Bytes::from(framed(&[vec![9; 50_000]]));
        let mut reader = MessageReader::new(1 << 20);
        let mut messages = Vec::new();
        for at in 0..stream.len() {
            reader.push(stream.slice(at..=at));
            messages.extend(reader.next().expect("well formed"));
        }
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].len(), 1);
        assert_eq!(messages[0][0].len(), 50_000);
    }

    #[test]
    fn empty_message_when_read_then_has_no_pieces() {
        let mut reader = MessageReader::new(10);
        reader.push(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5]));
        assert_eq!(reader.next(), Ok(Some(Vec::new())));
        assert_eq!(reader.next(), Ok(Some(vec![Bytes::from_static(&[5])])));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn length_when_beyond_the_limit_then_refused_before_any_byte_of_it() {
        let mut reader = MessageReader::new(10);
        reader.push(Bytes::from_static(&[0, 0, 0, 0, 11]));
        assert_eq!(reader.next(), Err(ReaderError::TooLong { len_bytes: 11, max_bytes: 10 }));
        let mut reader = MessageReader::new(10);
        reader.push(Bytes::from_static(&[0, 255, 255, 255, 255]));
        assert!(matches!(reader.next(), Err(ReaderError::TooLong { len_bytes: 0xffff_ffff, .. })));
    }

    #[test]
    fn compression_flag_when_set_then_refused() {
        let mut reader = MessageReader::new(10);
        reader.push(Bytes::from_static(&[1, 0, 0, 0, 1]));
        assert_eq!(reader.next(), Err(ReaderError::Compressed { flag: 1 }));
    }

    #[test]
    fn stream_when_cut_anywhere_then_mid_message_unless_between_messages() {
        let stream = Bytes::from(framed(&[vec![1; 3], vec![2; 4]]));
        for end in 0..=stream.len() {
            let mut reader = MessageReader::new(10);
            reader.push(stream.slice(..end));
            while reader.next().expect("well formed").is_some() {}
            assert_eq!(reader.is_mid_message(), ![0, 8, 17].contains(&end), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn messages_when_cut_into_any_frames_then_come_out_whole(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..5000), 0..6),
            cuts in proptest::collection::vec(1_usize..3000, 1..20),
        ) {
            let stream = Bytes::from(framed(&messages));
            let mut reader = MessageReader::new(5000);
            let mut seen = Vec::new();
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                if at == stream.len() {
                    break;
                }
                let end = (at + cut).min(stream.len());
                reader.push(stream.slice(at..end));
                at = end;
                seen.extend(drain(&mut reader));
            }
            prop_assert_eq!(seen, messages);
            prop_assert!(!reader.is_mid_message());
        }

        #[test]
        fn random_bytes_when_read_then_no_panic_and_bounded(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..40),
        ) {
            let mut reader = MessageReader::new(100);
            'frames: for frame in frames {
                reader.push(frame.into());
                loop {
                    match reader.next() {
                        Ok(Some(pieces)) => prop_assert!(pieces.concat().len() <= 100),
                        Ok(None) => break,
                        Err(_) => break 'frames,
                    }
                }
            }
        }
    }
}
