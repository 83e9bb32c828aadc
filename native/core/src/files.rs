//! The few calls by which the log reaches the disk; a test puts a failing disk in their place.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::defects::Defects;

/// The folder of the log, as it is written.
pub trait Files: Send + Debug {
    /// A new, empty file. One of that name was begun and never used.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;

    /// Makes the names in a folder as durable as the files.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// A file that is only appended to. It is closed when it is dropped.
pub trait SegmentFile: Send + Debug {
    /// Writes all of it, or fails.
    fn write(&mut self, data: &[u8]) -> io::Result<()>;

    /// Makes durable what was written.
    fn sync(&mut self) -> io::Result<()>;

    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// Callbacks of a test or a certification, called when the log uses its files.
pub trait Hooks: Send + Sync + Debug {
    /// Is called at each fault point, with its name; an error happens there.
    fn reached(&self, _point: &str) -> io::Result<()> {
        Ok(())
    }

    /// Is called with each new file.
    fn created(&self, _path: &Path) {}

    /// Is called after each sync of a file, with how it ended.
    fn synced(&self, _path: &Path, _result: &io::Result<()>) {}
}

/// Nobody listens.
#[derive(Debug)]
pub struct NoHooks;

impl Hooks for NoHooks {}

/// Files on a disk.
#[derive(Debug)]
pub struct DiskFiles {
    hooks: Arc<dyn Hooks>,
    defects: Defects,
}

impl DiskFiles {
    pub fn new(hooks: Arc<dyn Hooks>, defects: Defects) -> DiskFiles {
        DiskFiles { hooks, defects }
    }
}

impl Files for DiskFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        self.hooks.reached("wal creating")?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(path)?;
        self.hooks.created(path);
        let (path, hooks) = (path.to_owned(), self.hooks.clone());
        Ok(Box::new(DiskFile {
            file,
            path,
            hooks,
            defects: self.defects,
        }))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[derive(Debug)]
struct DiskFile {
    file: File,
    path: PathBuf,
    hooks: Arc<dyn Hooks>,
    defects: Defects,
}

impl DiskFile {
    fn try_write(&mut self, data: &[u8]) -> io::Result<()> {
        self.hooks.reached("wal writing")?;
        self.file.write_all(data)?;
        self.hooks.reached("wal written")
    }

    fn try_sync(&mut self) -> io::Result<()> {
        self.hooks.reached("wal syncing")?;
        self.file.sync_data()?;
        self.hooks.reached("wal synced")
    }
}

impl SegmentFile for DiskFile {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let written = self.try_write(data);
        if self.defects.write_error_ignored {
            Ok(())
        } else {
            written
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.try_sync();
        self.hooks.synced(&self.path, &synced);
        if self.defects.sync_error_ignored {
            Ok(())
        } else {
            synced
        }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}
