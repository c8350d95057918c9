use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::device::suite;

/// Makes devices one after the other in a folder.
fn maker(dir: &Path, open: impl Fn(&Path) -> io::Result<FileDevice>) -> impl Fn(u64) -> FileDevice {
    let next = AtomicU32::new(0);
    move |len_bytes| {
        let path = dir.join(next.fetch_add(1, Ordering::Relaxed).to_string());
        drop(FileDevice::create(&path, len_bytes).unwrap());
        open(&path).unwrap()
    }
}

#[test]
fn suite_when_the_file_system_is_the_usual_one_then_passes() {
    let dir = tempfile::tempdir().unwrap();
    suite::run(maker(dir.path(), FileDevice::open));
}

#[test]
fn suite_when_through_the_page_cache_then_passes() {
    let dir = tempfile::tempdir().unwrap();
    suite::run(maker(dir.path(), FileDevice::open_buffered));
}

#[test]
fn suite_when_the_file_system_lies_in_memory_then_passes_and_is_instant() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let make = maker(dir.path(), FileDevice::open);
    assert!(make(4096).traits().instant);
    suite::run(make);
}

#[test]
fn create_when_done_then_opened_again_with_the_same_bytes_and_all_space_taken() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let device = FileDevice::create(&path, 1 << 20).unwrap();
    device.write_durably(&[DeviceWrite::new(4096, vec![5; 4096].into())]).unwrap();
    let traits = device.traits();
    assert!(traits.memory_align.is_power_of_two() && (traits.direct || traits.memory_align == 1), "{traits:?}");
    assert!(device.file.metadata().unwrap().blocks() * 512 >= 1 << 20);
    assert_eq!(FileDevice::create(&path, 4096).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    drop(device);
    let device = FileDevice::open(&path).unwrap();
    assert_eq!((device.len_bytes(), device.traits(), device.path()), (1 << 20, traits, &*path));
    assert_eq!(device.read(0, 12_288).unwrap(), [[0; 4096], [5; 4096], [0; 4096]].concat());
}

#[test]
fn grow_when_there_is_no_room_then_storage_full_and_as_it_was() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let device = FileDevice::create(&path, 8192).unwrap();
    device.write(&[DeviceWrite::new(0, vec![5; 8192].into())]).unwrap();
    // More than any disk has; file systems refuse it as full or as too long a file.
    let error = device.grow(1 << 62).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    assert_eq!((device.len_bytes(), device.file.metadata().unwrap().len()), (8192, 8192));
    assert!(device.file.metadata().unwrap().blocks() * 512 < 1 << 20, "what was taken is given back");
    assert_eq!(device.read(0, 8192).unwrap(), [5; 8192][..]);
    device.grow(16_384).unwrap();
    assert_eq!(FileDevice::open(&path).unwrap().len_bytes(), 16_384);
}

#[test]
fn create_when_there_is_no_room_then_no_file_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    assert_eq!(FileDevice::create(&path, 1 << 62).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(!path.exists());
}

#[test]
fn open_when_the_file_was_cut_then_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, [1; 5000]).unwrap();
    for error in [FileDevice::open(&path).unwrap_err(), FileDevice::open_read_only(&path).unwrap_err()] {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("5000 bytes"), "{error}");
    }
    assert_eq!(FileDevice::open(&dir.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(FileDevice::open(dir.path()).is_err());
}

#[test]
fn read_when_the_file_is_cut_under_it_then_unexpected_eof() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    drop(FileDevice::create(&path, 64 << 10).unwrap());
    for device in [FileDevice::open(&path).unwrap(), FileDevice::open_buffered(&path).unwrap()] {
        for len in [0, 4096, 20_480 + 100] {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
            assert_eq!(device.read(0, 64 << 10).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
        std::fs::File::options().write(true).open(&path).unwrap().set_len(64 << 10).unwrap();
    }
}

#[test]
fn open_read_only_when_written_then_refused_and_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    drop(FileDevice::create(&path, 8192).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let device = FileDevice::open_read_only(&path).unwrap();
    let write = [DeviceWrite::new(0, vec![1; 4096].into())];
    assert_eq!(device.write(&write).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(device.grow(16_384).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(device.read(0, 8192).unwrap(), [0; 8192][..]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
}
