//! Which volumes there are: a directory for each, made under another name and renamed when it is complete.
//!
//! `record`, 128 bytes, little-endian: magic "HFVOLUME", version u32, block size u32, id u64, naa u64, size_bytes u64,
//! kind u8 (0 disk, 1 null), read_only u8, length of the name u8, reserved u8, name 63 bytes padded with zeros,
//! reserved 17 bytes, crc32c u32 of everything before it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use holdfast_proto::ids::{VolumeId, VolumeName};
use holdfast_proto::units::BlockSize;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::directory::{FORMAT_VERSION, random, rename_durably, seal, sync_directory, write_durably};
use crate::error::{Context, IoContext, OpenError, VolumeError, corrupt};
use crate::store::{Kind, NewVolume, VolumeRecord};
use crate::volume::VolumeFiles;

/// Largest volume: 1 PiB, in 128 data files.
pub const MAX_VOLUME_BYTES: u64 = 1 << 50;

const MAGIC: [u8; 8] = *b"HFVOLUME";

/// Top four bits of a locally assigned NAA identifier (SPC-4, section 7.8.6.6.4).
const NAA_LOCAL: u64 = 3 << 60;

/// The volumes of one store.
pub(crate) struct Catalogue {
    /// DIR/volumes
    dir: PathBuf,
    volumes: RwLock<BTreeMap<VolumeId, Arc<Volume>>>,
    /// One creation at a time.
    creating: Mutex<()>,
}

/// A volume that is open.
pub(crate) struct Volume {
    pub(crate) record: VolumeRecord,
    /// `None` for a null volume.
    pub(crate) files: Option<Arc<VolumeFiles>>,
}

impl Volume {
    fn open(dir: &Path, record: VolumeRecord) -> Result<Self, IoContext> {
        let files = match record.kind {
            Kind::Disk => Some(Arc::new(VolumeFiles::open(dir, record.id, record.size_bytes)?)),
            Kind::Null => None,
        };
        Ok(Self { record, files })
    }
}

impl Catalogue {
    /// Makes the directory of a new store.
    pub(crate) fn create(dir: &Path) -> Result<(), IoContext> {
        let volumes = dir.join("volumes");
        match fs::create_dir(&volumes) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).context("create", &volumes),
            _ => sync_directory(dir),
        }
    }

    /// Opens all volumes, and removes what interrupted creations left.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let dir = dir.join("volumes");
        let mut volumes = BTreeMap::new();
        for entry in fs::read_dir(&dir).context("read", &dir)? {
            let path = entry.context("read", &dir)?.path();
            if path.extension().is_some_and(|extension| extension == "new") {
                fs::remove_dir_all(&path).context("remove", &path)?;
                continue;
            }
            let record = read_record(&path.join("record"))?;
            if path.file_name().and_then(|name| name.to_str()) != Some(record.id.to_string().as_str()) {
                return Err(corrupt(&path, format!("it holds the record of volume {}", record.id)));
            }
            volumes.insert(record.id, Arc::new(Volume::open(&path, record)?));
        }
        Ok(Self { dir, volumes: RwLock::new(volumes), creating: Mutex::new(()) })
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.volumes().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        self.volumes().values().cloned().collect()
    }

    /// Makes a volume, durable when this returns.
    pub(crate) fn create_volume(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        let NewVolume { name, size_bytes, block_size, kind, read_only } = new;
        let block_bytes = block_size.bytes();
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) || size_bytes > MAX_VOLUME_BYTES {
            return Err(VolumeError::BadSize { size_bytes, block_size: block_bytes, max_bytes: MAX_VOLUME_BYTES });
        }
        let _one_at_a_time = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        if self.volumes().values().any(|volume| volume.record.name == name) {
            return Err(VolumeError::NameTaken(name));
        }
        // Volumes are never removed, so that the highest id is the last one given away.
        let id = VolumeId(self.volumes().keys().next_back().map_or(1, |last| last.0 + 1));
        let record = VolumeRecord { id, name, naa: self.new_naa()?, size_bytes, block_size, kind, read_only };
        let volume = self.make(record.clone())?;
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(volume));
        Ok(record)
    }

    fn make(&self, record: VolumeRecord) -> Result<Volume, IoContext> {
        let path = self.dir.join(record.id.to_string());
        let new = path.with_extension("new");
        // Left by a creation that failed in this process.
        discard(&path, &new)?;
        fs::create_dir(&new).context("create", &new)?;
        if record.kind == Kind::Disk {
            VolumeFiles::create(&new, record.size_bytes)?;
        }
        // This also syncs the names of the files made before.
        write_durably(&new.join("record"), &encode(&record))?;
        let opened = rename_durably(&new, &path).and_then(|()| Volume::open(&path, record));
        if opened.is_err()
            && let Err(error) = discard(&path, &new)
        {
            tracing::warn!(%error, "cannot remove a volume whose creation failed; the next creation tries again");
        }
        opened
    }

    fn new_naa(&self) -> Result<u64, IoContext> {
        loop {
            let naa = NAA_LOCAL | (u64::from_ne_bytes(random()?) >> 4);
            if self.volumes().values().all(|volume| volume.record.naa != naa) {
                return Ok(naa);
            }
        }
    }

    fn volumes(&self) -> RwLockReadGuard<'_, BTreeMap<VolumeId, Arc<Volume>>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what a failed creation left, whether it had its name `path` yet or not: a volume that nobody was told of.
fn discard(path: &Path, new: &Path) -> Result<(), IoContext> {
    let remove_new = || match fs::remove_dir_all(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", new),
        _ => Ok(()),
    };
    remove_new()?;
    match fs::rename(path, new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.context("rename", path)?,
    }
    path.parent().map_or(Ok(()), sync_directory)?;
    remove_new()
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Encoded {
    magic: [u8; 8],
    version: U32,
    block_size: U32,
    id: U64,
    naa: U64,
    size_bytes: U64,
    kind: u8,
    read_only: u8,
    name_len: u8,
    reserved: u8,
    name: [u8; VolumeName::MAX_BYTES],
    reserved_2: [u8; 17],
    crc: U32,
}

fn encode(record: &VolumeRecord) -> [u8; size_of::<Encoded>()] {
    let text = record.name.as_str().as_bytes();
    let mut name = [0; VolumeName::MAX_BYTES];
    name.iter_mut().zip(text).for_each(|(into, byte)| *into = *byte);
    let mut encoded = Encoded {
        magic: MAGIC,
        version: FORMAT_VERSION.into(),
        block_size: record.block_size.bytes().into(),
        id: record.id.0.into(),
        naa: record.naa.into(),
        size_bytes: record.size_bytes.into(),
        kind: match record.kind {
            Kind::Disk => 0,
            Kind::Null => 1,
        },
        read_only: record.read_only.into(),
        name_len: u8::try_from(text.len()).unwrap_or(u8::MAX),
        reserved: 0,
        name,
        reserved_2: [0; 17],
        crc: 0.into(),
    };
    encoded.crc = seal(encoded.as_bytes()).into();
    zerocopy::transmute!(encoded)
}

fn read_record(path: &Path) -> Result<VolumeRecord, OpenError> {
    let bytes = fs::read(path).context("read", path)?;
    decode(&bytes).ok_or_else(|| corrupt(path, "it is not a whole volume record"))
}

fn decode(bytes: &[u8]) -> Option<VolumeRecord> {
    let encoded = Encoded::read_from_bytes(bytes).ok()?;
    if encoded.magic != MAGIC
        || encoded.version.get() != FORMAT_VERSION
        || encoded.crc.get() != seal(encoded.as_bytes())
    {
        return None;
    }
    let name = encoded.name.get(..encoded.name_len.into())?;
    let size_bytes = encoded.size_bytes.get();
    (1..=MAX_VOLUME_BYTES).contains(&size_bytes).then_some(())?;
    Some(VolumeRecord {
        id: VolumeId(encoded.id.get()),
        name: str::from_utf8(name).ok()?.parse().ok()?,
        naa: encoded.naa.get(),
        size_bytes,
        block_size: BlockSize::try_from(encoded.block_size.get()).ok()?,
        kind: match encoded.kind {
            0 => Kind::Disk,
            1 => Kind::Null,
            _ => return None,
        },
        read_only: encoded.read_only != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VolumeRecord {
        VolumeRecord {
            id: VolumeId(0x0102),
            name: "disk-0".parse().unwrap(),
            naa: 0x3123_4567_89ab_cdef,
            size_bytes: 0x10_0000_0000,
            block_size: BlockSize::B512,
            kind: Kind::Null,
            read_only: true,
        }
    }

    #[test]
    fn record_when_encoded_then_exact_bytes() {
        let bytes = encode(&record());
        let mut golden = Vec::new();
        golden.extend_from_slice(b"HFVOLUME\x01\0\0\0\x00\x02\0\0\x02\x01\0\0\0\0\0\0\xef\xcd\xab\x89\x67\x45\x23\x31");
        golden.extend_from_slice(b"\0\0\0\0\x10\0\0\0\x01\x01\x06\0disk-0");
        golden.resize(124, 0);
        assert_eq!(bytes[..124], golden);
        assert_eq!(bytes[124..], GOLDEN_CRC.to_le_bytes());
        assert_eq!(decode(&bytes), Some(record()));
    }

    /// From an independent implementation of CRC32C.
    const GOLDEN_CRC: u32 = 0x3f11_98c8;

    #[test]
    fn record_when_any_bit_is_flipped_or_any_byte_missing_then_refused() {
        let good = encode(&record());
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
        for len in 0..good.len() {
            assert_eq!(decode(&good[..len]), None, "{len} bytes");
        }
    }
}
