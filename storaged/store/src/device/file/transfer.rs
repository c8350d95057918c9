//! Reads and writes that are complete when they return: calls that were interrupted or did a part go on.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IoSlice};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, pwritev};

use crate::device::buffer::is_aligned;
use crate::device::{Buffer, DEVICE_ALIGN, DeviceWrite};

/// Most pieces that one call takes (UIO_MAXIOV).
const MAX_PIECES: usize = 1024;

/// Exactly `len` bytes.
pub(super) fn read_exact(file: &File, offset: u64, len: usize, memory_align: usize) -> io::Result<Bytes> {
    let bytes = read_some(file, offset, len, memory_align)?;
    if bytes.len() < len {
        let detail = format!("the file ends at {}: it was cut while it was open", offset + bytes.len() as u64);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, detail));
    }
    Ok(bytes)
}

/// `len` bytes, or fewer at the end of the file.
pub(super) fn read_some(file: &File, offset: u64, len: usize, memory_align: usize) -> io::Result<Bytes> {
    if memory_align > 1 { read_aligned(file, offset, len, memory_align) } else { read_anywhere(file, offset, len) }
}

/// Direct I/O wants an aligned address and length, so the memory has to be there (as zeros) before.
fn read_aligned(file: &File, offset: u64, len: usize, memory_align: usize) -> io::Result<Bytes> {
    let mut buffer = Buffer::zeroed(memory_align, len);
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => continue,
            // Where the file ends inside a page, going on from there is not aligned any more.
            Err(Errno::INVAL) if !(done as u64).is_multiple_of(DEVICE_ALIGN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    buffer.resize_zeroed(done.min(len));
    Ok(buffer.freeze())
}

/// Into memory that nobody has filled before.
fn read_anywhere(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more than was asked for.
    bytes.truncate(len);
    Ok(bytes.into())
}

/// All bytes of the write.
pub(super) fn write_fully(file: &File, write: &DeviceWrite, memory_align: usize) -> io::Result<()> {
    let pieces = aligned_pieces(&write.pieces, memory_align);
    let mut slices: Vec<_> = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    let mut offset = write.offset;
    while !rest.is_empty() {
        let call = rest.get(..MAX_PIECES).unwrap_or(rest);
        match pwritev(file, call, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut rest, written);
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The pieces in memory that direct I/O takes: copied only where they have to be.
fn aligned_pieces(pieces: &[Bytes], memory_align: usize) -> Cow<'_, [Bytes]> {
    if pieces.iter().all(|piece| is_direct(piece, memory_align)) {
        return Cow::Borrowed(pieces);
    }
    let mut left: usize = pieces.iter().map(Bytes::len).sum();
    let (mut aligned, mut copied) = (Vec::with_capacity(pieces.len()), Buffer::with_capacity(memory_align, 0));
    for piece in pieces {
        // After a copy of odd length the next piece's place in the file would be odd.
        if is_direct(piece, memory_align) && (copied.len() as u64).is_multiple_of(DEVICE_ALIGN) {
            let before = std::mem::replace(&mut copied, Buffer::with_capacity(memory_align, 0));
            aligned.extend([before.freeze(), piece.clone()]);
        } else {
            if copied.is_empty() {
                copied = Buffer::with_capacity(memory_align, left);
            }
            copied.extend_from_slice(piece);
        }
        left -= piece.len();
    }
    aligned.push(copied.freeze());
    Cow::Owned(aligned)
}

/// Address and length: a piece whose length is no multiple of the alignment makes the next one's place in the file odd.
fn is_direct(piece: &Bytes, memory_align: usize) -> bool {
    memory_align <= 1 || (is_aligned(piece, memory_align) && (piece.len() as u64).is_multiple_of(DEVICE_ALIGN))
}

/// Whether an error of the first read says "not with O_DIRECT".
pub(super) fn is_refused_direct(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
