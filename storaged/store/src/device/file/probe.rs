//! What the file system below a file can do.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fstatfs, statx};
use rustix::io::Errno;

use super::transfer::{is_refused_direct, read_some};
use crate::device::{DEVICE_ALIGN, PAGE_LEN};

/// `f_type` of file systems that lie in memory (linux/magic.h).
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Alignment of memory that every device takes, for kernels that do not say (statx DIOALIGN came with Linux 6.1).
const SAFE_MEMORY_ALIGN: usize = 4096;

pub(super) fn lies_in_memory(file: &File) -> io::Result<bool> {
    // The width and sign of the field differ between architectures; the magic numbers are 32 bits.
    #[allow(clippy::useless_conversion, reason = "the type of f_type depends on the architecture")]
    let magic = i64::from(fstatfs(file)?.f_type) & 0xffff_ffff;
    Ok(magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
}

/// The same file once more for direct I/O, and the alignment of memory it wants; `None` where there is none.
pub(super) fn open_direct(path: &Path, file: &File, read_only: bool) -> io::Result<Option<(File, usize)>> {
    let Some(memory_align) = memory_align(file)? else { return Ok(None) };
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(|_| Errno::INVAL)?;
    let direct = match OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path) {
        Ok(direct) => direct,
        // open(2): EINVAL, the file system does not support O_DIRECT.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !is_same_file(file, &direct)? {
        return Err(io::Error::other("the file was replaced while it was being opened"));
    }
    // Some file systems take the flag and refuse the I/O.
    match read_some(&direct, 0, PAGE_LEN, memory_align) {
        Ok(_) => Ok(Some((direct, memory_align))),
        Err(error) if is_refused_direct(&error) => Ok(None),
        // A sick disk must not be mistaken for one without direct I/O; whoever reads this page gets the same error.
        Err(_) => Ok(Some((direct, memory_align))),
    }
}

/// What the kernel says of direct I/O: `None` when there is none that our alignment of offsets would do for.
fn memory_align(file: &File) -> io::Result<Option<usize>> {
    let stat = match statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) => stat,
        Err(Errno::NOSYS | Errno::PERM) => return Ok(Some(SAFE_MEMORY_ALIGN)),
        Err(error) => return Err(error.into()),
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Some(SAFE_MEMORY_ALIGN));
    }
    let (memory, offset) = (stat.stx_dio_mem_align, u64::from(stat.stx_dio_offset_align));
    if memory == 0 || offset == 0 || !DEVICE_ALIGN.is_multiple_of(offset) {
        return Ok(None);
    }
    let memory = usize::try_from(memory).map_err(|_| Errno::OVERFLOW)?;
    Ok(memory.is_power_of_two().then_some(memory))
}

fn is_same_file(one: &File, other: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
