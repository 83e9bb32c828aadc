use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headrace_core::{Defects, DiskFiles, Files, Hooks};

use crate::support::{BROKEN, NO_SPACE};

/// Notes down what it hears, and fails at one point.
#[derive(Debug, Default)]
struct Notes {
    heard: Mutex<Vec<String>>,
    fails_at: &'static str,
}

impl Hooks for Notes {
    fn reached(&self, point: &str) -> io::Result<()> {
        self.heard.lock().unwrap().push(point.into());
        if point == self.fails_at {
            Err(io::Error::from_raw_os_error(BROKEN))
        } else {
            Ok(())
        }
    }

    fn created(&self, path: &Path) {
        self.heard
            .lock()
            .unwrap()
            .push(format!("created {}", path.file_name().unwrap().display()));
    }

    fn synced(&self, _: &Path, result: &io::Result<()>) {
        self.heard
            .lock()
            .unwrap()
            .push(format!("synced: {}", result.is_ok()));
    }
}

/// Creates, writes and syncs a file, and returns what was heard, what is in the file, and how it went.
fn go_through(fails_at: &'static str, defects: Defects) -> (Vec<String>, String, io::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let notes = Arc::new(Notes {
        fails_at,
        ..Notes::default()
    });
    let files = DiskFiles::new(notes.clone(), defects);
    let done = files.create(&path).and_then(|mut file| {
        file.write(b"some bytes")?;
        file.sync()?;
        file.truncate(4)?;
        files.sync_folder(folder.path())
    });
    let heard = notes.heard.lock().unwrap().clone();
    (
        heard,
        std::fs::read_to_string(&path).unwrap_or_default(),
        done,
    )
}

#[test]
fn every_fault_point_is_reached_in_its_turn() {
    let (heard, content, done) = go_through("", Defects::default());
    done.unwrap();
    assert_eq!(content, "some");
    assert_eq!(
        heard,
        [
            "wal creating",
            "created file",
            "wal writing",
            "wal written",
            "wal syncing",
            "wal synced",
            "synced: true"
        ]
    );
}

#[test]
fn what_fails_at_a_fault_point_fails_as_on_a_disk() {
    for (point, content) in [
        ("wal creating", ""),
        ("wal writing", ""),
        ("wal written", "some bytes"),
        ("wal syncing", "some bytes"),
        ("wal synced", "some bytes"),
    ] {
        let (heard, found, done) = go_through(point, Defects::default());
        assert_eq!(done.unwrap_err().raw_os_error(), Some(BROKEN));
        assert_eq!(found, content);
        assert_eq!(
            heard.last().map(String::as_str) == Some("synced: false"),
            point.starts_with("wal sync")
        );
    }
}

#[test]
fn seeded_defects_ignore_errors() {
    let (_, content, done) = go_through(
        "wal writing",
        Defects {
            write_error_ignored: true,
            ..Defects::default()
        },
    );
    done.unwrap();
    assert_eq!(content, "\0\0\0\0"); // nothing of it was written
    let (heard, content, done) = go_through(
        "wal syncing",
        Defects {
            sync_error_ignored: true,
            ..Defects::default()
        },
    );
    done.unwrap();
    assert_eq!(
        (heard.last().map(String::as_str), &*content),
        (Some("synced: false"), "some")
    );
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let files = DiskFiles::new(Arc::new(headrace_core::NoHooks), Defects::default());
    assert!(files.create(Path::new("/not/there")).is_err());
    assert_ne!(
        files
            .sync_folder(Path::new("/not/there"))
            .unwrap_err()
            .raw_os_error(),
        Some(NO_SPACE)
    );
}
