//! A disk in memory that forgets what was not synced, in part and in any order.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use headrace_core::{Files, SegmentFile};
use parking_lot::Mutex;

// What a disk writes as a whole.
const SECTOR: usize = 512;
const NO_SPACE: i32 = 28;
const BROKEN: i32 = 5;

/// Random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Debug, Clone, Default)]
struct File {
    /// What no loss of power takes.
    durable: Vec<u8>,
    /// What was done since, in order.
    unsynced: Vec<Change>,
    length: usize,
    is_named: bool,
    has_failed: bool,
}

impl File {
    /// What is there after a loss of power: of each change all, nothing, or any of its sectors.
    fn after_loss(&self, random: &mut Random) -> Vec<u8> {
        let mut left = self.durable.clone();
        for change in &self.unsynced {
            match (change, random.below(3)) {
                (_, 0) => {}
                (Change::Truncate(length), _) => left.truncate(*length),
                (Change::Write(at, data), how) => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if how == 1 || random.one_in(2) {
                            put(&mut left, at + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
        left
    }
}

fn put(data: &mut Vec<u8>, at: usize, part: &[u8]) {
    data.resize(data.len().max(at + part.len()), 0);
    data[at..at + part.len()].copy_from_slice(part);
}

type Images = Box<dyn FnMut(BTreeMap<String, Vec<u8>>) + Send>;

/// The files of one folder, and what becomes of them.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<Inner>>);

struct Inner {
    files: BTreeMap<String, File>,
    random: Random,
    /// Calls that fail, one after the other, with nothing or a part of it done.
    faults: u64,
    used_after_failure: Option<String>,
    /// Is called with what the disk would have if its machine stopped now.
    image: Images,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    pub fn new(files: BTreeMap<String, Vec<u8>>, random: Random, image: Images) -> Disk {
        let durable = |durable: Vec<u8>| File {
            length: durable.len(),
            durable,
            is_named: true,
            ..File::default()
        };
        let files = files
            .into_iter()
            .map(|(name, data)| (name, durable(data)))
            .collect();
        Disk(Arc::new(Mutex::new(Inner {
            files,
            random,
            faults: 0,
            used_after_failure: None,
            image,
        })))
    }

    pub fn fail(&self, times: u64) {
        self.0.lock().faults += times;
    }

    /// A file that was written or synced although a sync of it had failed.
    pub fn used_after_failure(&self) -> Option<String> {
        self.0.lock().used_after_failure.clone()
    }
}

impl Inner {
    /// The machine may stop before each call, when what came of the one before may have been promised.
    fn stop_here(&mut self) {
        let mut left = BTreeMap::new();
        for (name, file) in &self.files {
            if file.is_named || self.random.one_in(2) {
                left.insert(name.clone(), file.after_loss(&mut self.random));
            }
        }
        (self.image)(left);
    }

    fn fails(&mut self) -> io::Result<()> {
        if self.faults == 0 || self.random.one_in(2) {
            return Ok(());
        }
        self.faults -= 1;
        let code = if self.random.one_in(2) {
            NO_SPACE
        } else {
            BROKEN
        };
        Err(io::Error::from_raw_os_error(code))
    }

    fn file(&mut self, name: &str, is_write_or_sync: bool) -> io::Result<&mut File> {
        let file = self.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        if file.has_failed && is_write_or_sync {
            self.used_after_failure = Some(name.into());
        }
        Ok(file)
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut inner = self.0.lock();
        inner.stop_here();
        inner.fails()?;
        let file = inner.files.entry(name.clone()).or_default();
        file.unsynced.push(Change::Truncate(0));
        (file.length, file.has_failed) = (0, false);
        Ok(Box::new(OpenFile {
            disk: self.clone(),
            name,
        }))
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.stop_here();
        inner.fails()?;
        inner
            .files
            .values_mut()
            .for_each(|file| file.is_named = true);
        Ok(())
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    name: String,
}

impl SegmentFile for OpenFile {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.stop_here();
        let failed = inner.fails();
        let written = if failed.is_ok() {
            data.len() as u64
        } else {
            inner.random.below(data.len() as u64)
        };
        let file = inner.file(&self.name, true)?;
        file.unsynced.push(Change::Write(
            file.length,
            data[..written as usize].to_vec(),
        ));
        file.length += written as usize;
        failed
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.stop_here();
        let failed = inner.fails();
        let file = inner.file(&self.name, true)?;
        if failed.is_err() {
            // The pages count as clean from now on, whatever has become of them; no later sync writes them.
            file.has_failed = true;
        } else {
            for change in std::mem::take(&mut file.unsynced) {
                match change {
                    Change::Write(at, data) => put(&mut file.durable, at, &data),
                    Change::Truncate(length) => file.durable.truncate(length),
                }
            }
        }
        failed
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        inner.stop_here();
        inner.fails()?;
        let file = inner.file(&self.name, false)?;
        file.unsynced.push(Change::Truncate(length as usize));
        file.length = length as usize;
        Ok(())
    }
}
