//! Opens the parts of a store for looking at them, as many as can be opened.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::finding::{Finding, Problem};
use super::report::Report;
use crate::catalogue::Catalogue;
use crate::catalogue::rocks::{RocksCatalogue, RocksSettings};
use crate::device::{DEVICE_ALIGN, Device, DeviceStatistics, DeviceTraits, DeviceWrite, FileDevice};
use crate::directory::{self, Directory, Identity};
use crate::error::{Context, IoContext, OpenError};

/// Keeps every other process away.
pub(super) enum Hold {
    /// A store that is complete.
    #[allow(dead_code, reason = "its lock is held")]
    Directory(Directory),
    /// One of which a part is missing or damaged; `None` without a lock file: then nobody serves it.
    #[allow(dead_code, reason = "it is held")]
    Lock(Option<File>),
}

/// What could be opened.
pub(super) struct Parts {
    #[allow(dead_code, reason = "it is held until the check is over")]
    pub(super) hold: Hold,
    pub(super) identity: Option<Identity>,
    pub(super) device: Option<Arc<dyn Device>>,
    pub(super) catalogue: Option<Arc<dyn Catalogue>>,
}

/// Opens what it can, and tells what it cannot. An error means that there is nothing to check: no store, or one in use.
pub(super) fn open(dir: &Path, report: &mut Report<'_>) -> Result<Parts, OpenError> {
    let (hold, identity) = match directory::open_read_only(dir) {
        Ok(directory) => {
            let identity = directory.identity();
            (Hold::Directory(directory), Some(identity))
        }
        Err(OpenError::Corrupt { path, detail }) => {
            let lock = lock(dir)?;
            let problem = match path.file_name().and_then(|name| name.to_str()) {
                Some("data") => Problem::DataFile,
                Some("catalogue") => Problem::Catalogue,
                _ => Problem::Identity,
            };
            report.found(Finding::new(problem, path.display().to_string(), detail));
            (Hold::Lock(lock), None)
        }
        Err(error) => return Err(error),
    };
    let (data, catalogue) = (dir.join("data"), dir.join("catalogue"));
    let device = if data.exists() { open_data(&data, report)? } else { None };
    let catalogue = if catalogue.exists() { open_catalogue(&catalogue, report) } else { None };
    Ok(Parts { hold, identity, device, catalogue })
}

fn lock(dir: &Path) -> Result<Option<File>, OpenError> {
    let path = dir.join("lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(IoContext { action: "open", path, source }.into()),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(IoContext { action: "lock", path, source }.into()),
    }
}

fn open_data(path: &Path, report: &mut Report<'_>) -> Result<Option<Arc<dyn Device>>, OpenError> {
    match FileDevice::open_read_only(path) {
        Ok(device) => Ok(Some(Arc::new(device))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            report.found(Finding::new(Problem::DataFile, path.display().to_string(), error.to_string()));
            let file = File::open(path).context("open", path)?;
            let len_bytes = file.metadata().context("read", path)?.len();
            Ok(Some(Arc::new(CutFile { file, len_bytes: len_bytes / DEVICE_ALIGN * DEVICE_ALIGN })))
        }
        Err(source) => Err(IoContext { action: "open", path: path.to_owned(), source }.into()),
    }
}

fn open_catalogue(path: &Path, report: &mut Report<'_>) -> Option<Arc<dyn Catalogue>> {
    let settings = RocksSettings::default();
    let error = match RocksCatalogue::open_read_only(path, &settings) {
        Ok(catalogue) => return Some(Arc::new(catalogue)),
        Err(error) => error,
    };
    report.found(Finding::new(Problem::Catalogue, path.display().to_string(), error.to_string()));
    // The rest is still worth a look, and what cannot be read of it says so itself.
    let left = RocksCatalogue::open_damaged(path, &settings).ok()?;
    Some(Arc::new(left))
}

/// A data file whose length is not one that a data file has: its whole pages, for reading.
struct CutFile {
    file: File,
    len_bytes: u64,
}

impl Device for CutFile {
    fn traits(&self) -> DeviceTraits {
        DeviceTraits { instant: false, direct: false, memory_align: 1 }
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }

    fn write(&self, _: &[DeviceWrite]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn write_durably(&self, _: &[DeviceWrite]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn grow(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn statistics(&self) -> DeviceStatistics {
        DeviceStatistics::default()
    }
}
