//! The data directory as a whole: who holds it, whose it is, and how it comes to be.
//!
//! ```text
//! DIR/lock         held with flock by the one process that serves the directory
//! DIR/format.new   while it is being made: the identity that it will have
//! DIR/data         one file, see device and format
//! DIR/catalogue/   RocksDB, see catalogue
//! DIR/format       the identity; renamed from format.new last, so that a directory without it holds nothing
//! ```
//!
//! Only a directory with a good `format.new`, which is durable before anything else is made, is cleaned of what an
//! interrupted creation left behind: a folder that merely holds something of the name `data` is somebody else's.
//!
//! Start in `open`. Whatever is refused is left as it is.

mod identity;

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) use self::identity::Identity;

use crate::error::{Context, IoContext, OpenError, corrupt};
use crate::ids::DiskUuid;

/// What [`open`] found.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A store.
    Store(Directory),
    /// Nothing; the store has still to be made.
    Empty(NewDirectory),
}

/// The directory of a store, this process's alone for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    identity: Identity,
    _lock: Option<File>,
}

/// A directory in which a store is being made: held, and without `data` and `catalogue`.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    path: PathBuf,
    identity: Identity,
    lock: File,
}

/// Takes the directory for this process, as node `node_id`, making it if it does not exist.
pub(crate) fn open(path: &Path, node_id: u64) -> Result<Opened, OpenError> {
    // A first look before anything is made, so that what is refused stays without a lock file, too.
    match read_identity(path)? {
        Some(identity) => check_node(path, identity, node_id)?,
        None => drop(Leftovers::find(path)?),
    }
    create_folders(path)?;
    let lock = take_lock(path, OpenOptions::new().write(true).create(true).truncate(false))?;
    // Again, now that nobody else can be making it.
    if let Some(identity) = read_identity(path)? {
        check_node(path, identity, node_id)?;
        check_complete(path)?;
        return Ok(Opened::Store(Directory { path: path.to_owned(), identity, _lock: Some(lock) }));
    }
    Leftovers::find(path)?.remove(path)?;
    let identity = Identity { uuid: DiskUuid(random()?), node_id };
    let new = path.join("format.new");
    let mut file = File::create(&new).context("create", &new)?;
    file.write_all(&identity.to_bytes()).context("write", &new)?;
    file.sync_all().context("sync", &new)?;
    sync_folder(path)?;
    Ok(Opened::Empty(NewDirectory { path: path.to_owned(), identity, lock }))
}

/// Takes the directory of a store for looking at it, whichever node's it is. Changes nothing, and works on a read-only file
/// system. A directory without a lock file is served by nobody, and none is made.
pub(crate) fn open_read_only(path: &Path) -> Result<Directory, OpenError> {
    let lock = match take_lock(path, OpenOptions::new().read(true)) {
        Ok(lock) => Some(lock),
        Err(OpenError::Io(error)) if error.source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(identity) = read_identity(path)? else {
        Leftovers::find(path)?;
        let source = io::Error::new(io::ErrorKind::NotFound, "there is no store");
        return Err(IoContext { action: "open", path: path.to_owned(), source }.into());
    };
    check_complete(path)?;
    Ok(Directory { path: path.to_owned(), identity, _lock: lock })
}

impl Directory {
    /// Whose it is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The file of journal and slots.
    pub(crate) fn data_path(&self) -> PathBuf {
        data_path(&self.path)
    }

    /// The folder of the catalogue.
    pub(crate) fn catalogue_path(&self) -> PathBuf {
        catalogue_path(&self.path)
    }
}

impl NewDirectory {
    /// Whose it will be; the disk's uuid is new.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Where the file of journal and slots is to be made.
    pub(crate) fn data_path(&self) -> PathBuf {
        data_path(&self.path)
    }

    /// Where the catalogue is to be made.
    pub(crate) fn catalogue_path(&self) -> PathBuf {
        catalogue_path(&self.path)
    }

    /// The last step of making a store, once data and catalogue are there and synced: from now on it is one.
    pub(crate) fn complete(self) -> Result<Directory, OpenError> {
        check_complete(&self.path)?;
        let (new, format) = (self.path.join("format.new"), self.path.join("format"));
        sync_folder(&self.path)?;
        fs::rename(&new, &format).context("rename", &new)?;
        sync_folder(&self.path)?;
        Ok(Directory { path: self.path, identity: self.identity, _lock: Some(self.lock) })
    }
}

/// What is in a directory without a `format` file, all of it ours.
#[derive(Debug, Default)]
struct Leftovers {
    names: Vec<&'static str>,
}

impl Leftovers {
    /// Refuses what is not ours.
    fn find(dir: &Path) -> Result<Self, OpenError> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).context("read", dir)?,
        };
        // Until it is good, nothing else was made.
        let begun = fs::read(dir.join("format.new")).is_ok_and(|bytes| Identity::parse(&bytes).is_ok());
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.context("read", dir)?;
            let name = entry.file_name();
            let kind = entry.file_type().context("read", &entry.path())?;
            match name.to_str() {
                Some("lock") if kind.is_file() => {}
                // An interrupted write of it left any beginning of it.
                Some("format.new") if kind.is_file() && (begun || is_cut_identity(&entry.path())) => {
                    names.push("format.new");
                }
                Some("data") if kind.is_file() && begun => names.push("data"),
                Some("catalogue") if kind.is_dir() && begun => names.push("catalogue"),
                Some("catalogue.new") if kind.is_dir() && begun => names.push("catalogue.new"),
                _ => {
                    let found = name.to_string_lossy().into_owned();
                    return Err(OpenError::NotAStore { dir: dir.to_owned(), found });
                }
            }
        }
        // Last, because the others are only ours as long as it is there.
        names.sort_unstable_by_key(|name| *name == "format.new");
        Ok(Self { names })
    }

    fn remove(self, dir: &Path) -> Result<(), IoContext> {
        for name in self.names {
            let path = dir.join(name);
            if name == "format.new" {
                sync_folder(dir)?;
            }
            if name.starts_with("catalogue") { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
                .context("remove", &path)?;
        }
        Ok(())
    }
}

/// Whether a file can be what a power cut left of an identity: shorter, or zeros that were never written.
fn is_cut_identity(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| Identity::is_cut(&bytes))
}

fn read_identity(dir: &Path) -> Result<Option<Identity>, OpenError> {
    let path = dir.join("format");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("open", &path)?,
    };
    let mut bytes = Vec::new();
    file.take(identity::MAX_BYTES).read_to_end(&mut bytes).context("read", &path)?;
    Identity::parse(&bytes).map(Some).map_err(|error| error.at(dir, &path))
}

fn check_node(dir: &Path, identity: Identity, expected: u64) -> Result<(), OpenError> {
    if identity.node_id == expected {
        return Ok(());
    }
    Err(OpenError::WrongNode { dir: dir.to_owned(), expected, found: identity.node_id })
}

/// A store without its data is damaged, not empty: nothing is made in their place.
fn check_complete(dir: &Path) -> Result<(), OpenError> {
    for path in [data_path(dir), catalogue_path(dir)] {
        match fs::metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(corrupt(&path, "it is missing")),
            Err(error) => return Err(error).context("read", &path)?,
        }
    }
    Ok(())
}

fn take_lock(dir: &Path, options: &OpenOptions) -> Result<File, OpenError> {
    let path = dir.join("lock");
    let lock = options.open(&path).context("open", &path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(error).context("lock", &path)?,
    }
    // A lock on a file that somebody has removed meanwhile keeps nobody out.
    let (held, named) = (lock.metadata().context("read", &path)?, fs::metadata(&path).context("read", &path)?);
    if (held.dev(), held.ino()) != (named.dev(), named.ino()) {
        return Err(OpenError::InUse(dir.to_owned()));
    }
    Ok(lock)
}

/// The folders on the way, and the names of those that are new made durable.
fn create_folders(dir: &Path) -> Result<(), IoContext> {
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).collect();
    fs::create_dir_all(dir).context("create", dir)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

fn data_path(dir: &Path) -> PathBuf {
    dir.join("data")
}

fn catalogue_path(dir: &Path) -> PathBuf {
    dir.join("catalogue")
}

/// Makes creations and renames in a folder durable. An empty path is the current one.
fn sync_folder(path: &Path) -> Result<(), IoContext> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|dir| dir.sync_all()).context("sync", path)
}

/// Bytes from the system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], IoContext> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).context("read", path)?;
    Ok(bytes)
}
