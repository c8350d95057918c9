//! Which volumes there are: over restarts, and when the catalogue refuses or is damaged.

use super::*;
use crate::catalogue::model::{KeyFault, ModelCatalogue};

fn open(catalogue: &Arc<ModelCatalogue>) -> Result<Volumes, OpenError> {
    let catalogue: Arc<dyn Catalogue> = catalogue.clone();
    Volumes::open(Arc::new(Fake::over(catalogue, 1)), Path::new("catalogue"))
}

#[test]
fn volumes_when_created_then_found_again_with_the_same_identity() {
    let catalogue = Arc::new(ModelCatalogue::default());
    let volumes = open(&catalogue).unwrap();
    assert!(volumes.volumes().is_empty());
    let first = volumes.create_volume(disk("disk0", SIZE)).unwrap();
    assert!(matches!(volumes.create_volume(disk("disk0", 4096)), Err(VolumeError::NameTaken(_))));
    let null = NewVolume { kind: Kind::Null, block_size: BlockSize::B4096, ..disk("null", 1 << 40) };
    let null = volumes.create_volume(null).unwrap();
    let fixed = volumes.create_volume(NewVolume { read_only: true, ..disk("fixed", MAX_VOLUME_BYTES) }).unwrap();
    assert_eq!((first.id, null.id, fixed.id), (VolumeId(1), VolumeId(2), VolumeId(3)));
    let before = volumes.volumes();
    assert_eq!(before, [first, null, fixed]);
    assert!(before.iter().all(|volume| volume.naa >> 60 == 3));
    drop(volumes);
    assert_eq!(open(&catalogue).unwrap().volumes(), before);
}

#[test]
fn create_when_the_size_is_bad_then_refused() {
    let volumes = open(&Arc::default()).unwrap();
    for size_bytes in [0, 100, MAX_VOLUME_BYTES + 512] {
        let refused = volumes.create_volume(disk("x", size_bytes));
        assert!(matches!(refused, Err(VolumeError::BadSize { .. })), "{size_bytes}");
    }
    let big_blocks = NewVolume { block_size: BlockSize::B4096, ..disk("x", 512) };
    assert!(matches!(volumes.create_volume(big_blocks), Err(VolumeError::BadSize { .. })));
}

#[test]
fn create_when_the_catalogue_is_full_then_refused_until_it_has_space() {
    let catalogue = Arc::new(ModelCatalogue::default());
    let volumes = open(&catalogue).unwrap();
    catalogue.fail(record::counter_key(), KeyFault::NoSpace);
    for _ in 0..2 {
        let refused = volumes.create_volume(disk("disk0", 4096));
        assert!(matches!(refused, Err(VolumeError::Unavailable(StoreError::NoSpace))));
    }
    assert!(volumes.volumes().is_empty());
    catalogue.heal(&record::counter_key());
    assert_eq!(volumes.create_volume(disk("disk0", 4096)).unwrap().id, VolumeId(1));
}

#[test]
fn create_when_its_outcome_is_unknown_then_no_other_volume_is_made() {
    let catalogue = Arc::new(ModelCatalogue::default());
    let volumes = open(&catalogue).unwrap();
    catalogue.fail(record::counter_key(), KeyFault::Failed);
    for name in ["disk0", "disk1"] {
        let refused = volumes.create_volume(disk(name, 4096));
        assert!(matches!(refused, Err(VolumeError::Unavailable(StoreError::DeviceFailed(_)))));
    }
}

/// What opening says after the rows of a store with one volume were changed.
fn damaged(damage: impl FnOnce(&ModelCatalogue, &VolumeRecord)) -> OpenError {
    let catalogue = Arc::new(ModelCatalogue::default());
    let record = open(&catalogue).unwrap().create_volume(disk("disk0", 4096)).unwrap();
    damage(&catalogue, &record);
    open(&catalogue).err().unwrap()
}

#[test]
fn open_when_records_are_damaged_then_said_which_and_nothing_is_opened() {
    let corrupt = |error: OpenError| match error {
        OpenError::Corrupt { path, detail } => {
            assert_eq!(path, Path::new("catalogue"));
            detail
        }
        error => panic!("{error}"),
    };
    let key = || keys::volume(VolumeId(1));
    let detail = corrupt(damaged(|catalogue, record| {
        let mut bad = record::encode(record);
        bad[30] ^= 1;
        catalogue.plant(key(), bad);
    }));
    assert_eq!(detail, "a volume record is corrupt: its checksum does not match");
    assert!(corrupt(damaged(|catalogue, _| catalogue.fail(key(), KeyFault::Corrupt))).starts_with("key "));
    let without = |catalogue: &ModelCatalogue, key: Vec<u8>| {
        let mut changes = Changes::default();
        changes.delete(key);
        catalogue.commit(&changes).unwrap();
    };
    let detail = corrupt(damaged(|catalogue, _| without(catalogue, record::counter_key())));
    assert_eq!(detail, "it has volumes and no counter of them");
    let detail = corrupt(damaged(|catalogue, _| catalogue.plant(record::counter_key(), record::encode_counter(1))));
    assert_eq!(detail, "volume 1 has an id that was not given yet");
    let detail = corrupt(damaged(|catalogue, record| {
        let twin = VolumeRecord { id: VolumeId(2), naa: record.naa ^ 1, ..record.clone() };
        catalogue.plant(keys::volume(twin.id), record::encode(&twin));
        catalogue.plant(record::counter_key(), record::encode_counter(3));
    }));
    assert_eq!(detail, "volume 2 has the name or the identifier of another volume");
}

#[test]
fn open_when_a_record_is_of_a_later_release_then_that_is_what_is_said() {
    let error = damaged(|catalogue, record| {
        let key = keys::volume(record.id);
        let mut value = record::encode(record);
        value[0] = 2;
        let at = value.len() - 4;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&key), &value[..at]);
        value[at..].copy_from_slice(&crc.to_le_bytes());
        catalogue.plant(key, value);
    });
    assert!(matches!(error, OpenError::NewerFormat { version: 2, known: 1, .. }), "{error}");
}

#[test]
fn open_when_the_catalogue_has_failed_then_io_error() {
    let error = damaged(|catalogue, record| catalogue.fail(keys::volume(record.id), KeyFault::Failed));
    assert!(matches!(error, OpenError::Io(_)), "{error}");
}
