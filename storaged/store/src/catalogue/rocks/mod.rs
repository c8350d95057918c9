//! The catalogue on RocksDB.
//!
//! A commit is one write batch, and the write-ahead log is synced before it returns. Start reading at
//! [`RocksCatalogue::commit`](Catalogue::commit); `options.rs` says how RocksDB is set up, `wal.rs` checks the log.
//!
//! **When the disk is full** RocksDB takes no more writes until it is opened again, so the commit after that opens it
//! again. Where even that finds no space, it is opened for reading only: reads always work.
//!
//! **When something is damaged** only what lies there is lost. Each block of a table has a checksum that covers its place
//! too, so a read finds damage, and says [`CatalogueError::Corrupt`] for the keys that would be there. A table that cannot
//! be opened, or a merge that meets damage, would end RocksDB: it is then opened again in a *lenient* way, without the
//! check of all tables and without merging, so that everything else stays readable and writable until the replicas that
//! need the damaged part have been rebuilt.
//!
//! What RocksDB cannot tell, and what stands in for it:
//!
//! - Of the log it takes the first bad record for the torn tail of a power cut and drops what follows. `wal.rs` looks
//!   first: a bad record with a later commit behind it is damage.
//! - The last commit in the log has none behind it, so damage there after a kill looks like a commit that never
//!   returned. The engine's journal shows that one was lost when it has gone on from there (`ScanError`).
//!   [`RocksCatalogue`] writes its memory to tables when it is dropped, so a catalogue that was closed has no such commit.
//! - A missing CURRENT file looks like a new database. A catalogue is created under another name and renamed, and
//!   only there: a directory that is there already is never taken for a new one.

mod options;
mod wal;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rocksdb::statistics::Ticker;
use rocksdb::{DB, ErrorKind, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions};

pub use self::options::RocksSettings;
use crate::catalogue::{Catalogue, CatalogueError, CatalogueStatistics, Changes, Visitor};

/// A range with at most so many keys is deleted key by key: a range deletion stays in the tables until they are merged,
/// and each read looks at all of them.
const FEW_KEYS: usize = 256;

/// The catalogue in one directory. One process at a time; opening it twice fails.
pub struct RocksCatalogue {
    dir: PathBuf,
    options: Options,
    lenient_options: Options,
    read_only: bool,
    /// Commits hold it for reading too: a write lock is taken only to open the database anew.
    database: RwLock<Option<DB>>,
    writer: Mutex<Writer>,
}

/// What the next commit has to do first.
struct Writer {
    condition: Condition,
    lenient: bool,
    commits: u64,
}

enum Condition {
    Good,
    /// RocksDB has met a full disk and takes no writes.
    Full,
    /// For good.
    Failed(String),
}

impl std::fmt::Debug for RocksCatalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksCatalogue").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl RocksCatalogue {
    /// Opens the catalogue in `dir`; makes an empty one when there is no such directory.
    pub fn open(dir: &Path, settings: &RocksSettings) -> Result<Self, CatalogueError> {
        if !dir.try_exists().map_err(|error| io_error("look for", dir, &error))? {
            create(dir, settings)?;
        }
        wal::check(dir)?;
        let (options, lenient_options) = (options::normal(settings), options::lenient(settings));
        let (database, lenient) = match DB::open(&options, dir) {
            Ok(database) => (database, false),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                tracing::error!(%error, dir = %dir.display(), "the catalogue is damaged; opening what is left of it");
                (DB::open(&lenient_options, dir).map_err(|error| classify(&error))?, true)
            }
            Err(error) => return Err(classify(&error)),
        };
        let writer = Writer { condition: Condition::Good, lenient, commits: 0 };
        Ok(Self::new(dir, (options, lenient_options), false, database, writer))
    }

    /// Opens the catalogue in `dir` without changing a byte there, for looking at it; commits fail.
    pub fn open_read_only(dir: &Path, settings: &RocksSettings) -> Result<Self, CatalogueError> {
        Self::open_to_look(dir, settings, &options::normal(settings))
    }

    /// The same of one that [`open_read_only`](Self::open_read_only) finds damaged: what is left of it, as
    /// [`open`](Self::open) would.
    pub fn open_damaged(dir: &Path, settings: &RocksSettings) -> Result<Self, CatalogueError> {
        Self::open_to_look(dir, settings, &options::lenient(settings))
    }

    fn open_to_look(dir: &Path, settings: &RocksSettings, with: &Options) -> Result<Self, CatalogueError> {
        wal::check(dir)?;
        let (options, lenient_options) = (options::normal(settings), options::lenient(settings));
        let database = DB::open_for_read_only(with, dir, false).map_err(|error| classify(&error))?;
        let condition = Condition::Failed("it was opened for reading only".into());
        let writer = Writer { condition, lenient: false, commits: 0 };
        Ok(Self::new(dir, (options, lenient_options), true, database, writer))
    }

    fn new(dir: &Path, options: (Options, Options), read_only: bool, database: DB, writer: Writer) -> Self {
        Self {
            dir: dir.to_owned(),
            options: options.0,
            lenient_options: options.1,
            read_only,
            database: RwLock::new(Some(database)),
            writer: Mutex::new(writer),
        }
    }

    fn database(&self) -> RwLockReadGuard<'_, Option<DB>> {
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn database_mut(&self) -> RwLockWriteGuard<'_, Option<DB>> {
        self.database.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opening takes a second or so when RocksDB has failed, and reads wait for it: not before it has a chance. It needs
    /// room for what is in the log, as a table, and for the commit.
    fn look_for_room(&self, changes: &Changes) -> Result<(), CatalogueError> {
        let log_bytes: u64 = wal::files(&self.dir)
            .and_then(|files| files.iter().map(|file| Ok(fs::metadata(file)?.len())).sum())
            .map_err(|error| io_error("list", &self.dir, &error))?;
        let stat = rustix::fs::statvfs(&self.dir).map_err(|error| io_error("look at", &self.dir, &error.into()))?;
        let (free, needed) = (stat.f_bavail.saturating_mul(stat.f_frsize), log_bytes + changes.len_bytes());
        if free > needed {
            return Ok(());
        }
        Err(CatalogueError::NoSpace {
            detail: format!("{} has {free} bytes free, {needed} needed", self.dir.display()),
        })
    }

    /// Closes the database and opens it again, for reading only where it cannot be opened for writing.
    fn reopen(&self, lenient: bool) -> Result<(), CatalogueError> {
        let mut database = self.database_mut();
        *database = None;
        let options = if lenient { &self.lenient_options } else { &self.options };
        match DB::open(options, &self.dir) {
            Ok(opened) => {
                *database = Some(opened);
                Ok(())
            }
            Err(error) => {
                let error = classify(&error);
                match DB::open_for_read_only(options, &self.dir, false) {
                    Ok(opened) => *database = Some(opened),
                    Err(second) => {
                        tracing::error!(%error, %second, dir = %self.dir.display(), "the catalogue cannot be opened again");
                    }
                }
                Err(error)
            }
        }
    }

    /// One attempt. What is not [`CatalogueError::NoSpace`] or [`CatalogueError::Corrupt`] is final.
    fn write(&self, changes: &Changes) -> Result<(), CatalogueError> {
        let database = self.database();
        let database = database.as_ref().ok_or_else(not_open)?;
        let batch = batch_of(database, changes);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        database.write_opt(batch, &synced).map_err(|error| classify(&error))
    }
}

impl Catalogue for RocksCatalogue {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        let database = self.database();
        let database = database.as_ref().ok_or_else(not_open)?;
        database.get(key).map_err(|error| damaged_read(&error))
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, CatalogueError> {
        let database = self.database();
        let database = database.as_ref().ok_or_else(not_open)?;
        database.multi_get(keys).into_iter().map(|value| value.map_err(|error| damaged_read(&error))).collect()
    }

    fn range(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), CatalogueError> {
        if from >= to {
            return Ok(());
        }
        let database = self.database();
        let database = database.as_ref().ok_or_else(not_open)?;
        for row in database.iterator_opt(IteratorMode::Start, bounded(from, to)) {
            let (key, value) = row.map_err(|error| damaged_read(&error))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, changes: &Changes) -> Result<(), CatalogueError> {
        let mut writer = self.writer();
        if let Condition::Failed(detail) = &writer.condition {
            return Err(CatalogueError::Failed { detail: detail.clone() });
        }
        let mut result = match writer.condition {
            Condition::Full => self.look_for_room(changes).and_then(|()| self.reopen(writer.lenient)),
            Condition::Good | Condition::Failed(_) => Ok(()),
        };
        if result.is_ok() {
            result = self.write(changes);
        }
        if matches!(result, Err(CatalogueError::Corrupt { .. })) && !writer.lenient {
            // A merge has met damage. It has stopped RocksDB before it took this batch, and the same twice is the same.
            tracing::error!(dir = %self.dir.display(), ?result, "the catalogue is damaged; going on without merging its tables");
            writer.lenient = true;
            result = self.reopen(true).and_then(|()| self.write(changes));
        }
        match &result {
            Ok(()) => {
                writer.condition = Condition::Good;
                writer.commits += 1;
            }
            Err(CatalogueError::NoSpace { .. }) => writer.condition = Condition::Full,
            Err(error) => writer.condition = Condition::Failed(error.to_string()),
        }
        result
    }

    fn statistics(&self) -> CatalogueStatistics {
        let ticker = |ticker: fn() -> Ticker| {
            self.options.get_ticker_count(ticker()) + self.lenient_options.get_ticker_count(ticker())
        };
        CatalogueStatistics {
            commits: self.writer().commits,
            wal_bytes: ticker(|| Ticker::WalFileBytes),
            flushed_bytes: ticker(|| Ticker::FlushWriteBytes),
            compacted_bytes: ticker(|| Ticker::CompactWriteBytes),
            syncs: ticker(|| Ticker::WalFileSynced),
            disk_bytes: disk_bytes(&self.dir),
        }
    }
}

impl Drop for RocksCatalogue {
    fn drop(&mut self) {
        if self.read_only || !matches!(self.writer().condition, Condition::Good) {
            return;
        }
        // Everything is durable already; but in tables damage is found wherever it is.
        if let Some(Err(error)) = self.database().as_ref().map(DB::flush) {
            tracing::warn!(%error, dir = %self.dir.display(), "the catalogue was closed without writing its tables");
        }
    }
}

/// Makes an empty catalogue under another name and renames it: it is there whole, or not at all.
fn create(dir: &Path, settings: &RocksSettings) -> Result<(), CatalogueError> {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = dir.with_file_name(name);
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &new, &error)),
        _ => {}
    }
    // RocksDB would make missing parents as well.
    fs::create_dir(&new).map_err(|error| io_error("create", &new, &error))?;
    let mut options = options::normal(settings);
    options.create_if_missing(true);
    options.set_error_if_exists(true);
    drop(DB::open(&options, &new).map_err(|error| classify(&error))?);
    sync_directory(&new)?;
    fs::rename(&new, dir).map_err(|error| io_error("rename", &new, &error))?;
    sync_directory(dir.parent().unwrap_or(dir))
}

fn sync_directory(dir: &Path) -> Result<(), CatalogueError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|file| file.sync_all()).map_err(|error| io_error("sync", dir, &error))
}

/// Operations of a batch take effect in its order.
fn batch_of(database: &DB, changes: &Changes) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (from, to) in changes.delete_ranges.iter().filter(|(from, to)| from < to) {
        match few_keys(database, from, to) {
            Some(keys) => keys.iter().for_each(|key| batch.delete(key)),
            None => batch.delete_range(from, to),
        }
    }
    changes.deletes.iter().for_each(|key| batch.delete(key));
    changes.puts.iter().for_each(|(key, value)| batch.put(key, value));
    batch
}

/// The keys of a range; `None` when there are many, or when they cannot be read.
fn few_keys(database: &DB, from: &[u8], to: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let mut keys = Vec::new();
    for row in database.iterator_opt(IteratorMode::Start, bounded(from, to)) {
        let (key, _) = row.ok()?;
        if keys.len() == FEW_KEYS {
            return None;
        }
        keys.push(key);
    }
    Some(keys)
}

fn bounded(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    // A long scan would push out what single reads want again.
    options.fill_cache(false);
    options
}

fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

/// What an error of opening or writing means.
fn classify(error: &rocksdb::Error) -> CatalogueError {
    let detail = error.to_string();
    let full = detail.contains("No space left on device") || detail.contains("Disk quota exceeded");
    // After a sync that failed nobody knows what the disk holds, whatever the reason it gave (hazard C2).
    let sync = ["While fdatasync", "While fsync", "While sync_file_range"].iter().any(|what| detail.contains(what));
    match error.kind() {
        ErrorKind::Corruption => CatalogueError::Corrupt { detail },
        ErrorKind::IOError if full && !sync => CatalogueError::NoSpace { detail },
        _ => CatalogueError::Failed { detail },
    }
}

/// What an error of reading means: whatever the reason, these keys cannot be told, and others may be.
fn damaged_read(error: &rocksdb::Error) -> CatalogueError {
    CatalogueError::Corrupt { detail: error.to_string() }
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> CatalogueError {
    let detail = format!("cannot {what} {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CatalogueError::NoSpace { detail },
        _ => CatalogueError::Failed { detail },
    }
}

fn not_open() -> CatalogueError {
    CatalogueError::Failed { detail: "it could not be opened again".into() }
}

#[cfg(test)]
mod tests;
