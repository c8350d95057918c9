//! The data directory as a whole: who holds it, what format it has, and how its files are made.
//!
//! `format`, 40 bytes, little-endian: magic "HFSTORE\0", version u32, reserved u32, disk uuid, reserved u32,
//! crc32c u32 of everything before it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Context, IoContext, OpenError, corrupt};

/// Version of the directory and of everything in it.
pub(crate) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"HFSTORE\0";

/// Made once for a directory: tells the bytes of this disk from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskUuid(pub(crate) [u8; 16]);

/// A directory that this process alone serves, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    uuid: Option<DiskUuid>,
    _lock: File,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Format {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    uuid: [u8; 16],
    reserved_2: U32,
    crc: U32,
}

impl Directory {
    /// Takes the directory for this process, making it if it does not exist. Whatever is refused is left as it is.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        if read_format(path)?.is_none() {
            refuse_foreign(path)?;
            fs::create_dir_all(path).context("create", path)?;
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.context("open", &lock_path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(error).context("lock", &lock_path)?,
        }
        // Again, now that nobody else can be making it.
        let uuid = read_format(path)?;
        Ok(Self { path: path.to_owned(), uuid, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `None` as long as the directory has not been [marked as complete](Self::complete).
    pub(crate) fn uuid(&self) -> Option<DiskUuid> {
        self.uuid
    }

    /// Writes the format file: the last step of making a store.
    pub(crate) fn complete(&self, uuid: DiskUuid) -> Result<(), IoContext> {
        let mut format = Format {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            reserved: 0.into(),
            uuid: uuid.0,
            reserved_2: 0.into(),
            crc: 0.into(),
        };
        format.crc = seal(format.as_bytes()).into();
        let path = self.path.join("format");
        write_durably(&path, format.as_bytes())?;
        if let Some(parent) = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        Ok(())
    }
}

fn read_format(dir: &Path) -> Result<Option<DiskUuid>, OpenError> {
    let path = dir.join("format");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("read", &path)?,
    };
    let (format, _) = Format::read_from_prefix(&bytes).map_err(|_| corrupt(&path, "it is too short"))?;
    if format.magic != MAGIC {
        return Err(corrupt(&path, "it does not begin with HFSTORE"));
    }
    // A later release may have another layout behind the version.
    if format.version.get() > FORMAT_VERSION {
        let version = format.version.get();
        return Err(OpenError::NewerFormat { path, version, known: FORMAT_VERSION });
    }
    if seal(format.as_bytes()) != format.crc.get() || bytes.len() != size_of::<Format>() {
        return Err(corrupt(&path, "its checksum is wrong"));
    }
    Ok(Some(DiskUuid(format.uuid)))
}

/// A directory without a format file may only hold what an interrupted creation leaves behind.
fn refuse_foreign(dir: &Path) -> Result<(), OpenError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("read", dir)?,
    };
    for entry in entries {
        let entry = entry.context("read", dir)?;
        let name = entry.file_name();
        let ours = match name.to_str() {
            Some("lock" | "format.new" | "journal" | "journal.new") => true,
            Some("volumes") => fs::read_dir(entry.path()).is_ok_and(|mut volumes| volumes.next().is_none()),
            _ => false,
        };
        if !ours {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::NotAStore { dir: dir.to_owned(), found });
        }
    }
    Ok(())
}

/// The crc of a structure whose last four bytes are to hold it.
pub(crate) fn seal(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default())
}

/// Writes a new file under another name, syncs it, renames it and syncs the directory.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), IoContext> {
    let new = path.with_extension("new");
    let mut file = File::create(&new).context("create", &new)?;
    file.write_all(bytes).context("write", &new)?;
    file.sync_all().context("sync", &new)?;
    rename_durably(&new, path)
}

/// Renames and syncs the directory that holds both names.
pub(crate) fn rename_durably(from: &Path, to: &Path) -> Result<(), IoContext> {
    fs::rename(from, to).context("rename", from)?;
    match to.parent() {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Makes creations and renames in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), IoContext> {
    File::open(path).and_then(|dir| dir.sync_all()).context("sync", path)
}

/// Bytes from the system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], IoContext> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).context("read", path)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn format_when_written_then_exact_bytes() {
        let dir = tempfile::tempdir().unwrap();
        Directory::lock(dir.path()).unwrap().complete(DiskUuid(*b"0123456789abcdef")).unwrap();
        let bytes = fs::read(dir.path().join("format")).unwrap();
        assert_eq!(&bytes[..36], b"HFSTORE\0\x01\0\0\0\0\0\0\x000123456789abcdef\0\0\0\0");
        assert_eq!(bytes[36..], GOLDEN_CRC.to_le_bytes());
        assert_eq!(names(dir.path()), ["format", "lock"]);
        let again = Directory::lock(dir.path()).unwrap();
        assert_eq!(again.uuid(), Some(DiskUuid(*b"0123456789abcdef")));
    }

    /// From an independent implementation of CRC32C.
    const GOLDEN_CRC: u32 = 0x3b5e_8e35;

    #[test]
    fn lock_when_held_then_a_second_is_refused_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::lock(dir.path()).unwrap();
        assert!(matches!(Directory::lock(dir.path()), Err(OpenError::InUse(path)) if path == dir.path()));
        drop(first);
        Directory::lock(dir.path()).unwrap();
    }

    #[test]
    fn lock_when_the_format_is_newer_then_refused_and_nothing_changed() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = b"HFSTORE\0\x02\0\0\0".to_vec();
        bytes.resize(100, 0);
        fs::write(dir.path().join("format"), &bytes).unwrap();
        let error = Directory::lock(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::NewerFormat { version: 2, known: 1, .. }), "{error}");
        assert_eq!(names(dir.path()), ["format"]);
        assert_eq!(fs::read(dir.path().join("format")).unwrap(), bytes);
    }

    #[test]
    fn lock_when_any_bit_of_the_format_is_flipped_or_any_byte_missing_then_refused() {
        let dir = tempfile::tempdir().unwrap();
        Directory::lock(dir.path()).unwrap().complete(DiskUuid([7; 16])).unwrap();
        let path = dir.path().join("format");
        let good = fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            let error = Directory::lock(dir.path()).unwrap_err();
            assert!(matches!(error, OpenError::Corrupt { .. } | OpenError::NewerFormat { .. }), "bit {bit}: {error}");
        }
        for len in 0..good.len() {
            fs::write(&path, &good[..len]).unwrap();
            assert!(matches!(Directory::lock(dir.path()), Err(OpenError::Corrupt { .. })), "{len} bytes");
        }
    }

    #[test]
    fn lock_when_the_directory_holds_something_else_then_refused_and_nothing_changed() {
        for foreign in ["notes.txt", "volumes"] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join(foreign).join("1")).unwrap();
            assert!(matches!(Directory::lock(dir.path()), Err(OpenError::NotAStore { found, .. }) if found == foreign));
            assert_eq!(names(dir.path()), [foreign]);
        }
    }
}
