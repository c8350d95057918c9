use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn open_empty(dir: &Path) -> NewDirectory {
    match open(dir, 3).unwrap() {
        Opened::Empty(new) => new,
        Opened::Store(store) => panic!("there is a store already: {store:?}"),
    }
}

fn open_store(dir: &Path) -> Directory {
    match open(dir, 3).unwrap() {
        Opened::Store(store) => store,
        Opened::Empty(new) => panic!("there is no store: {new:?}"),
    }
}

/// A store of node 3 that nobody holds.
fn make_store() -> (TempDir, Identity) {
    let dir = tempfile::tempdir().unwrap();
    let new = open_empty(dir.path());
    fs::write(new.data_path(), b"data").unwrap();
    fs::create_dir(new.catalogue_path()).unwrap();
    let identity = new.complete().unwrap().identity();
    (dir, identity)
}

#[test]
fn open_when_there_is_nothing_then_folders_are_made_and_the_store_when_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let new = open_empty(&path);
    assert_eq!(names(&path), ["format.new", "lock"]);
    fs::write(new.data_path(), b"").unwrap();
    fs::create_dir(new.catalogue_path()).unwrap();
    let identity = new.identity();
    let store = new.complete().unwrap();
    assert_eq!((store.identity(), store.data_path()), (identity, path.join("data")));
    assert_eq!(names(&path), ["catalogue", "data", "format", "lock"]);
    drop(store);
    assert_eq!(open_store(&path).identity(), identity);
}

#[test]
fn open_when_two_stores_are_made_then_their_uuids_differ() {
    let ((_one, one), (_other, other)) = (make_store(), make_store());
    assert_ne!(one.uuid, other.uuid);
}

#[test]
fn c10_open_when_held_then_a_second_is_refused_until_it_is_dropped() {
    let (dir, _) = make_store();
    let first = open_store(dir.path());
    assert!(matches!(open(dir.path(), 3), Err(OpenError::InUse(path)) if path == dir.path()));
    assert!(matches!(open_read_only(dir.path()), Err(OpenError::InUse(_))));
    drop(first);
    let reader = open_read_only(dir.path()).unwrap();
    assert!(matches!(open(dir.path(), 3), Err(OpenError::InUse(_))));
    drop(reader);
    open_store(dir.path());
}

#[test]
fn open_when_it_is_being_made_by_another_then_refused_and_nothing_removed() {
    let dir = tempfile::tempdir().unwrap();
    let new = open_empty(dir.path());
    fs::write(new.data_path(), b"").unwrap();
    assert!(matches!(open(dir.path(), 3), Err(OpenError::InUse(_))));
    assert_eq!(names(dir.path()), ["data", "format.new", "lock"]);
}

#[test]
fn open_when_it_is_another_nodes_then_refused_and_both_are_named() {
    let (dir, _) = make_store();
    let error = open(dir.path(), 4).unwrap_err();
    assert!(matches!(error, OpenError::WrongNode { expected: 4, found: 3, .. }));
    assert!(error.to_string().contains("belongs to node 3 and this is node 4"), "{error}");
    assert_eq!(open_read_only(dir.path()).unwrap().identity().node_id, 3);
}

#[test]
fn open_when_the_format_is_newer_old_or_damaged_then_refused_and_nothing_changed() {
    let mut first = b"HFSTORE\0\x01\0\0\0\0\0\0\x000123456789abcdef\0\0\0\0".to_vec();
    first.extend_from_slice(&0x3b5e_8e35_u32.to_le_bytes());
    let cases: [(&[u8], &str); 4] = [
        (b"HFSTORE\0\x03\0\0\0 and more", "has format version 3, this release knows up to 2; use a newer release"),
        (&first, "was made by a pre-release version (format 1); export its volumes with that version"),
        (b"HFSTORE\0\x02\0\0\0", "is corrupt: its length is wrong"),
        (b"", "is corrupt: it is too short"),
    ];
    for (bytes, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("format"), bytes).unwrap();
        for error in [open(dir.path(), 3).unwrap_err(), open_read_only(dir.path()).unwrap_err()] {
            assert!(error.to_string().ends_with(expected), "{error}");
        }
        assert_eq!(names(dir.path()), ["format"]);
        assert_eq!(fs::read(dir.path().join("format")).unwrap(), bytes);
    }
}

#[test]
fn open_when_the_directory_holds_something_else_then_refused_and_nothing_changed() {
    for foreign in ["notes.txt", "data", "catalogue", "volumes", "format.new"] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("lock"), b"").unwrap();
        fs::write(dir.path().join(foreign), b"precious").unwrap();
        assert!(matches!(open(dir.path(), 3), Err(OpenError::NotAStore { found, .. }) if found == foreign));
        assert!(matches!(open_read_only(dir.path()), Err(OpenError::NotAStore { .. })));
        assert_eq!(fs::read(dir.path().join(foreign)).unwrap(), b"precious");
        assert_eq!(names(dir.path()).len(), 2);
    }
}

#[test]
fn open_when_a_creation_was_interrupted_at_any_step_then_it_starts_over() {
    for step in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let new = open_empty(dir.path());
        let before = new.identity();
        let half = dir.path().join("catalogue.new");
        if step >= 1 {
            fs::write(new.data_path(), b"half").unwrap();
        }
        if step >= 2 {
            fs::create_dir_all(half.join("inside")).unwrap();
        }
        if step >= 3 {
            fs::rename(&half, new.catalogue_path()).unwrap();
        }
        drop(new);
        if step == 4 {
            // Power failed in the middle of starting over: the identity goes last.
            fs::remove_file(dir.path().join("data")).unwrap();
        }
        let again = open_empty(dir.path());
        assert_eq!(names(dir.path()), ["format.new", "lock"], "step {step}");
        assert_ne!(again.identity().uuid, before.uuid, "what is left of the first is not taken for the second's");
    }
}

#[test]
fn open_when_the_first_file_was_cut_then_it_starts_over() {
    for bytes in [&b""[..], b"HFSTO", &[0; 48]] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("format.new"), bytes).unwrap();
        open_empty(dir.path());
        assert_eq!(names(dir.path()), ["format.new", "lock"]);
    }
}

#[test]
fn open_when_a_stores_data_or_catalogue_is_missing_then_corrupt_and_not_made_anew() {
    for missing in ["data", "catalogue"] {
        let (dir, _) = make_store();
        fs::rename(dir.path().join(missing), dir.path().join("elsewhere")).unwrap();
        for error in [open(dir.path(), 3).unwrap_err(), open_read_only(dir.path()).unwrap_err()] {
            assert!(matches!(&error, OpenError::Corrupt { path, .. } if path.ends_with(missing)), "{error}");
        }
        assert!(!dir.path().join(missing).exists());
    }
}

#[test]
fn complete_when_something_was_not_made_then_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(open_empty(dir.path()).complete(), Err(OpenError::Corrupt { .. })));
    assert!(!dir.path().join("format").exists());
}

#[test]
fn open_read_only_when_there_is_no_store_or_no_lock_file_then_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let error = open_read_only(dir.path()).unwrap_err();
    assert!(error.to_string().contains("there is no store"), "{error}");
    assert!(matches!(open_read_only(&dir.path().join("absent")), Err(OpenError::Io(_))));
    assert!(names(dir.path()).is_empty());
    let (dir, identity) = make_store();
    fs::remove_file(dir.path().join("lock")).unwrap();
    assert_eq!(open_read_only(dir.path()).unwrap().identity(), identity);
    assert_eq!(names(dir.path()), ["catalogue", "data", "format"]);
}

#[test]
fn open_when_permission_is_refused_then_one_clear_error() {
    let (dir, _) = make_store();
    let lock = dir.path().join("lock");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o000)).unwrap();
    match open(dir.path(), 3) {
        // Root may do everything.
        Ok(_) => {}
        Err(error) => {
            let expected = format!("cannot open {}: Permission denied (os error 13)", lock.display());
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn open_when_the_path_is_a_file_then_one_clear_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = open(file.path(), 3).unwrap_err();
    assert!(error.to_string().contains("Not a directory"), "{error}");
}
