//! Bytes to PDUs and back (RFC 7143, 11.1 and 11.2): lengths, padding and digests, nothing of what a PDU means.
//!
//! [`Decoder`] takes bytes in as they come and gives whole PDUs; [`WriteQueue`] takes PDUs and gives slices for
//! vectored writes. Neither touches a socket. What both may hold is bounded: the decoder by one PDU of the declared
//! MaxRecvDataSegmentLength, the queue by what its owner pushes ([`WriteQueue::len_bytes`]).

mod decode;
mod encode;

pub use decode::{Decoder, FrameError};
pub use encode::WriteQueue;

/// Bytes that pad a segment of `len_bytes` to a multiple of four (RFC 7143, 11.1).
fn padding(len_bytes: usize) -> usize {
    len_bytes.wrapping_neg() & 3
}
