//! Logs to test with, and disks that misbehave.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headrace_core::{
    Appended, Clock, Config, Core, Defects, Event, Files, Limits, LogState, Message, ProducerName,
    Recovered, Refusal, Run, Schema, Segment, SegmentFile, StreamHandle, StreamOptions, Tiers,
};
use tempfile::TempDir;

use crate::reader::{self, Record};

pub const DEADLINE: Duration = Duration::from_secs(60);
pub const MESSAGE: [u8; 24] = [7; 24];
pub const NO_SPACE: i32 = 28;
pub const BROKEN: i32 = 5;
const PANIC: i32 = -1;

/// Waits for a state.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A segment is sealed only when a test asks for it.
pub fn never_by_itself() -> Limits {
    Limits {
        segment_time: Duration::from_secs(3600),
        ..Limits::default()
    }
}

#[derive(Debug)]
pub struct TestClock {
    pub wall_us: AtomicU64,
    pub running_us: AtomicU64,
}

impl Clock for TestClock {
    fn wall_us(&self) -> u64 {
        self.wall_us.load(SeqCst)
    }

    fn running(&self) -> Duration {
        Duration::from_micros(self.running_us.load(SeqCst))
    }
}

/// Real files. Calls fail with the errors in a list, one a call; `hold` makes syncs wait.
#[derive(Debug, Default, Clone)]
pub struct Disk(Arc<DiskState>);

#[derive(Debug, Default)]
pub struct DiskState {
    pub errors: Mutex<HashMap<&'static str, Vec<i32>>>,
    /// How much of a write that fails is written all the same.
    pub bytes_before_error: AtomicU64,
    /// How much of each file the last sync covered.
    pub synced: Mutex<HashMap<PathBuf, u64>>,
    pub syncs: AtomicU64,
    /// What was done with each file, in order.
    pub calls: Mutex<Vec<(String, &'static str)>>,
    is_held: Mutex<(bool, bool)>,
    let_go: std::sync::Condvar,
}

impl std::ops::Deref for Disk {
    type Target = DiskState;

    fn deref(&self) -> &DiskState {
        &self.0
    }
}

impl DiskState {
    pub fn fail(&self, call: &'static str, errors: &[i32]) {
        self.errors
            .lock()
            .unwrap()
            .entry(call)
            .or_default()
            .extend(errors);
    }

    pub fn mend(&self) {
        self.errors.lock().unwrap().clear();
    }

    pub fn hold(&self) {
        self.is_held.lock().unwrap().0 = true;
    }

    pub fn let_go(&self) {
        self.is_held.lock().unwrap().0 = false;
        self.let_go.notify_all();
    }

    /// The next write fails in a way that nobody foresaw.
    pub fn panic_next(&self) {
        self.fail("write", &[PANIC]);
    }

    pub fn await_held(&self) {
        wait_until("a sync that waits", || self.is_held.lock().unwrap().1);
    }

    fn next_error(&self, call: &'static str) -> io::Result<()> {
        let mut errors = self.errors.lock().unwrap();
        match errors.get_mut(call) {
            Some(codes) if !codes.is_empty() => match codes.remove(0) {
                PANIC => {
                    drop(errors);
                    panic!("out of memory")
                }
                code => Err(io::Error::from_raw_os_error(code)),
            },
            _ => Ok(()),
        }
    }

    /// What a machine finds after it stopped now, with or without what was not synced.
    pub fn copy_to(&self, source: &Path, target: &Path, unsynced: bool) {
        fs::create_dir(target).unwrap();
        let synced = self.synced.lock().unwrap();
        for entry in fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            let mut data = fs::read(&path).unwrap();
            if !unsynced {
                data.truncate(
                    synced
                        .get(&path)
                        .map_or(usize::MAX, |length| *length as usize),
                );
            }
            fs::write(target.join(path.file_name().unwrap()), data).unwrap();
        }
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        self.next_error("create")?;
        let file = File::create(path)?;
        self.synced.lock().unwrap().insert(path.into(), 0);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        self.calls.lock().unwrap().push((name.clone(), "create"));
        let (disk, path) = (self.clone(), path.to_owned());
        Ok(Box::new(TestFile {
            file,
            disk,
            path,
            name,
        }))
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.next_error("sync_folder")
    }
}

#[derive(Debug)]
struct TestFile {
    file: File,
    disk: Disk,
    path: PathBuf,
    name: String,
}

impl TestFile {
    fn note(&self, call: &'static str) {
        self.disk
            .calls
            .lock()
            .unwrap()
            .push((self.name.clone(), call));
    }
}

impl SegmentFile for TestFile {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.note("write");
        let failed = self.disk.next_error("write");
        let length = match failed {
            Ok(()) => data.len(),
            Err(_) => data
                .len()
                .min(self.disk.bytes_before_error.load(SeqCst) as usize),
        };
        self.file.write_all(&data[..length])?;
        failed
    }

    fn sync(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        let mut is_held = self.disk.is_held.lock().unwrap();
        while is_held.0 {
            is_held.1 = true;
            is_held = self.disk.let_go.wait(is_held).unwrap();
        }
        is_held.1 = false;
        drop(is_held);
        self.note("sync");
        self.disk.next_error("sync")?;
        self.disk
            .synced
            .lock()
            .unwrap()
            .insert(self.path.clone(), size);
        self.disk.syncs.fetch_add(1, SeqCst);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.note("truncate");
        self.file.set_len(length)
    }
}

/// How a log is opened.
pub struct Options {
    pub disk: Disk,
    pub limits: Limits,
    pub term: u64,
    pub defects: Defects,
    /// Whether every segment counts as uploaded.
    pub uploads: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            disk: Disk::default(),
            limits: never_by_itself(),
            term: 0,
            defects: Defects::default(),
            uploads: true,
        }
    }
}

/// A log that is recovered from a folder and written.
pub struct OpenLog {
    pub core: Arc<Core>,
    pub disk: Disk,
    pub clock: Arc<TestClock>,
    pub folder: PathBuf,
    events: Arc<Mutex<Vec<Event>>>,
    pub schema: Arc<Schema>,
    stream: StreamHandle,
    _folder: Option<TempDir>,
}

pub fn open_in(folder: &Path, options: Options) -> Result<OpenLog, String> {
    open_with(folder, options, |_| {})
}

pub fn open_with(
    folder: &Path,
    options: Options,
    change: impl FnOnce(&mut Recovered),
) -> Result<OpenLog, String> {
    let disk = options.disk.clone();
    let (mut recovered, number, previous_length) = recover(folder, options.term);
    change(&mut recovered);
    let clock = Arc::new(TestClock {
        wall_us: AtomicU64::new(1_000),
        running_us: AtomicU64::new(1_000_000),
    });
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let config = Config {
        folder: folder.to_owned(),
        term: options.term,
        number,
        previous_length,
        uploaded_segment: if options.uploads {
            u64::MAX - 1
        } else {
            number - 1
        },
        uploaded_lsn: 0,
        limits: options.limits,
        files: Box::new(options.disk),
        clock: clock.clone(),
        defects: options.defects,
        on_event: Box::new(move |event| heard.lock().unwrap().push(event)),
    };
    let core = Core::open(config, recovered).map_err(|error| error.to_string())?;
    let (stream, _) = core.open_stream(stream_options("orders", ""));
    Ok(OpenLog {
        schema: core.schema("orders", b"schema.."),
        core,
        disk,
        clock,
        folder: folder.to_owned(),
        events,
        stream,
        _folder: None,
    })
}

pub fn open(options: Options) -> OpenLog {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("wal");
    fs::create_dir(&path).unwrap();
    let mut log = open_in(&path, options).unwrap();
    log._folder = Some(folder);
    log
}

pub fn stream_options(collection: &str, producer: &str) -> StreamOptions {
    StreamOptions {
        collection: collection.into(),
        producer: producer.into(),
        levels: Tiers::ALL,
        by_watermark: false,
        resume_after: None,
        first_seq: 1,
        peer: "test".into(),
    }
}

pub fn message<'a>(
    schema: &'a Arc<Schema>,
    pieces: &'a [&'a [u8]],
    seq: u64,
    rows: Option<&'a [u32]>,
) -> Message<'a> {
    Message {
        schema,
        pieces,
        seq,
        rows,
        row_count: rows.map_or(1, |rows| rows.iter().map(|n| u64::from(*n)).sum()),
        size: 0,
        arrived: Instant::now(),
    }
}

/// The first LSN of a message of one write on a stream.
pub fn write_on(stream: &StreamHandle, schema: &Arc<Schema>, seq: u64) -> Result<u64, Refusal> {
    write_bytes_on(stream, schema, seq, &MESSAGE)
}

fn write_bytes_on(
    stream: &StreamHandle,
    schema: &Arc<Schema>,
    seq: u64,
    data: &[u8],
) -> Result<u64, Refusal> {
    loop {
        match stream.append(&message(schema, &[data], seq, None))? {
            Appended::Written { first_lsn, .. } => return Ok(first_lsn),
            Appended::NoNumbers => wait_until("numbers", || {
                stream.refusal().is_some() || stream.must_wait().is_none()
            }),
            other => panic!("{other:?}"),
        }
    }
}

impl OpenLog {
    pub fn write(&self) -> u64 {
        write_on(&self.stream, &self.schema, 0).unwrap()
    }

    pub fn write_bytes(&self, data: &[u8]) -> u64 {
        write_bytes_on(&self.stream, &self.schema, 0, data).unwrap()
    }

    pub fn try_write(&self) -> Result<u64, Refusal> {
        write_on(&self.stream, &self.schema, 0)
    }

    pub fn append(&self, rows: &[u32]) -> Appended {
        self.stream
            .append(&message(&self.schema, &[&MESSAGE], 0, Some(rows)))
            .unwrap()
    }

    pub fn synced_write(&self) -> u64 {
        let lsn = self.write();
        self.await_durable(lsn);
        lsn
    }

    pub fn stream(&self) -> &StreamHandle {
        &self.stream
    }

    pub fn open_stream(&self, producer: &str) -> StreamHandle {
        self.core.open_stream(stream_options("orders", producer)).0
    }

    pub fn await_durable(&self, lsn: u64) {
        wait_until("a write on the disk", || {
            self.core.watermarks().local_disk().lsn() >= lsn
        });
    }

    pub fn sealed(&self) -> Vec<Segment> {
        let events = self.events.lock().unwrap();
        let sealed = events.iter().filter_map(|event| match event {
            Event::Sealed(segment) => Some(segment.clone()),
            _ => None,
        });
        sealed.collect()
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub fn seal(&self) -> Segment {
        let before = self.sealed().len();
        self.core.seal();
        wait_until("the end of a segment", || self.sealed().len() > before);
        self.sealed().pop().unwrap()
    }

    pub fn is_failing(&self) -> bool {
        self.core.health().failure.is_some()
    }

    pub fn close(&self) -> bool {
        self.disk.let_go();
        self.core.close(DEADLINE)
    }

    pub fn read(&self) -> Vec<reader::Segment> {
        reader::read(&self.folder)
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.disk.let_go();
        self.core.close(DEADLINE);
    }
}

/// A log that waits in a sync, with one write in it and one on its way.
pub fn held_log(limits: Limits) -> OpenLog {
    let log = open(Options {
        limits,
        ..Options::default()
    });
    log.synced_write();
    log.disk.hold();
    log.write();
    log.disk.await_held();
    log
}

/// What a restart knows: a copy of what Python's recovery does, for logs that are not damaged.
pub fn recover(folder: &Path, term: u64) -> (Recovered, u64, u64) {
    let segments = reader::read(folder);
    let mut state = LogState::default();
    let mut runs: HashMap<(String, String), Vec<Run>> = HashMap::new();
    for segment in &segments {
        let mut names = HashMap::new();
        state.reserved_until = state.reserved_until.max(segment.header.reserved_until);
        for (_, record) in &segment.records {
            match record {
                Record::Mark { reserved_until, .. } => {
                    state.reserved_until = state.reserved_until.max(*reserved_until);
                }
                Record::State(json) => {
                    let reserved = state.reserved_until;
                    state = LogState::decode(json.to_string().as_bytes()).unwrap();
                    state.reserved_until = state.reserved_until.max(reserved);
                }
                Record::Schema { id, collection, .. } => {
                    names.insert(*id, collection.clone());
                }
                Record::Collection(encoded) => {
                    let json: serde_json::Value = serde_json::from_slice(encoded).unwrap();
                    state.declared(&json["name"].as_str().unwrap().into(), encoded);
                }
                Record::Writes(writes) => {
                    let count = u64::from(writes.count);
                    state.last_lsn = writes.first_lsn + count - 1;
                    if !writes.producer.is_empty() {
                        let key = (names[&writes.schema_id].clone(), writes.producer.clone());
                        let name = ProducerName {
                            collection: key.0.as_str().into(),
                            id: key.1.as_str().into(),
                        };
                        state.wrote(
                            &Arc::new(name),
                            writes.first_seq + count - 1,
                            state.last_lsn,
                        );
                        runs.entry(key).or_default().push(Run {
                            seq: writes.first_seq,
                            lsn: writes.first_lsn,
                            count,
                        });
                    }
                }
            }
        }
    }
    let number = segments
        .last()
        .map_or(1, |segment| segment.header.number + 1);
    let length = segments.last().map_or(0, |segment| segment.length);
    let first = headrace_core::first_lsn_of(term);
    state.reserved_until = first.max(state.reserved_until).max(state.last_lsn + 1);
    let runs = runs.into_iter().map(|((collection, id), runs)| {
        let name = ProducerName {
            collection: collection.into(),
            id: id.into(),
        };
        (name, runs)
    });
    let runs = runs.collect();
    (Recovered { state, runs }, number, length)
}

/// Runs a future on this thread.
pub fn block_on<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park_timeout(DEADLINE);
        assert!(Instant::now() < deadline, "waited in vain");
    }
}
