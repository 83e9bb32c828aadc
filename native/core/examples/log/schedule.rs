//! A life of a log by a random schedule, on a disk that may lose its power at every point.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use headrace_core::{
    Appended, Config, Core, Defects, Event, Limits, LogState, Message, ProducerName, Recovered,
    Run, StreamHandle, StreamOptions, SystemClock, Tiers,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::disk::{Disk, Random};

const DEADLINE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 16; // LSNs that are reserved at once

type SeqLsnCount = (u64, u64, u64);

/// From what Python has recovered.
#[derive(Deserialize)]
pub struct Life {
    folder: PathBuf,
    /// Gets a folder for each point at which the machine may stop.
    images: PathBuf,
    seed: u64,
    term: u64,
    number: u64,
    previous_length: u64,
    state: Value,
    /// Of each collection and producer: sequence number, LSN and count.
    runs: Vec<(String, String, Vec<SeqLsnCount>)>,
    /// A defect that is seeded.
    defect: Option<String>,
}

#[derive(Default)]
struct Seen {
    core: OnceLock<Weak<Core>>,
    sealed: Mutex<Vec<Value>>,
    images: Mutex<Vec<Value>>,
}

impl Seen {
    /// What was promised so far; it is asked on the log's own thread, which makes the promises.
    fn promises(&self) -> (u64, u64) {
        let core = self.core.get().and_then(Weak::upgrade);
        core.map_or((0, 0), |core| {
            (core.watermarks().local_disk().lsn(), core.last_lsn())
        })
    }
}

struct Running {
    core: Arc<Core>,
    disk: Disk,
    random: Random,
    streams: Vec<(String, StreamHandle, u64)>,
    writes: Vec<Value>,
}

/// Lives a life to its end, and says what was written and what was promised when.
pub fn live(life: &Life) -> Result<Value, Box<dyn Error>> {
    let seen = Arc::new(Seen::default());
    let disk = disk_of(life, &seen)?;
    let core = open(life, &disk, &seen)?;
    // Python goes on from one of the points, so nothing counts that was promised before there was anyone to hear it.
    let _ = seen.core.set(Arc::downgrade(&core));
    let mut random = Random(life.seed ^ 0x5eed);
    let mut running = Running {
        streams: Vec::new(),
        writes: Vec::new(),
        random: random.clone(),
        core,
        disk,
    };
    for producer in ["", "till-1", "till-2"] {
        let (stream, greeting) = running.core.open_stream(options_of(producer));
        let next_seq = greeting.last_seq.unwrap_or(0) + 1;
        running.streams.push((producer.into(), stream, next_seq));
    }
    for _ in 0..5 + random.below(25) {
        running.step()?;
    }
    running.core.close(DEADLINE);
    Ok(json!({
        "writes": running.writes,
        "images": *seen.images.lock(),
        "used_after_failure": running.disk.used_after_failure(),
    }))
}

fn disk_of(life: &Life, seen: &Arc<Seen>) -> Result<Disk, Box<dyn Error>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&life.folder)? {
        let entry = entry?;
        files.insert(
            entry.file_name().to_string_lossy().into_owned(),
            fs::read(entry.path())?,
        );
    }
    let (seen, folder) = (seen.clone(), life.images.clone());
    let image = move |left: BTreeMap<String, Vec<u8>>| {
        let (durable, given) = seen.promises();
        let mut images = seen.images.lock();
        let name = images.len().to_string();
        let target = folder.join(&name);
        let written = fs::create_dir_all(&target).and_then(|()| {
            left.iter()
                .try_for_each(|(name, data)| fs::write(target.join(name), data))
        });
        let sealed = seen.sealed.lock().clone();
        let error = written.err().map(|error| error.to_string());
        images.push(json!({"name": name, "durable": durable, "given": given, "sealed": sealed, "error": error}));
    };
    Ok(Disk::new(files, Random(life.seed), Box::new(image)))
}

fn open(life: &Life, disk: &Disk, seen: &Arc<Seen>) -> Result<Arc<Core>, Box<dyn Error>> {
    let mut defects = Defects::default();
    if let Some(name) = &life.defect
        && !defects.switch_on(name)
    {
        return Err(format!("there is no defect {name}").into());
    }
    let runs = life.runs.iter().map(|(collection, id, runs)| {
        let name = ProducerName {
            collection: collection.as_str().into(),
            id: id.as_str().into(),
        };
        let runs = runs.iter().map(|(seq, lsn, count)| Run {
            seq: *seq,
            lsn: *lsn,
            count: *count,
        });
        (name, runs.collect())
    });
    let heard = seen.clone();
    let config = Config {
        folder: life.folder.clone(),
        term: life.term,
        number: life.number,
        previous_length: life.previous_length,
        uploaded_segment: life.number,
        uploaded_lsn: 0,
        limits: Limits {
            segment_bytes: 4_000,
            segment_time: Duration::from_millis(5),
            group_bytes: 1_000,
            reserved_at_once: BLOCK,
            ..Limits::default()
        },
        files: Box::new(disk.clone()),
        clock: Arc::new(SystemClock::new()),
        defects,
        on_event: Box::new(move |event| {
            if let Event::Sealed(one) = event {
                let last_lsns: BTreeMap<_, _> = one
                    .last_lsns
                    .iter()
                    .map(|(name, lsn)| (name.to_string(), *lsn))
                    .collect();
                heard.sealed.lock().push(json!({
                    "number": one.header.number, "nonce": one.header.nonce, "length": one.length,
                    "last_lsn": one.last_lsn, "last_lsns": last_lsns, "has_state": one.has_state,
                    "first_accepted_us": one.first_accepted_us,
                }));
            }
        }),
    };
    let state = LogState::decode(life.state.to_string().as_bytes())?;
    Ok(Core::open(
        config,
        Recovered {
            state,
            runs: runs.collect(),
        },
    )?)
}

fn options_of(producer: &str) -> StreamOptions {
    StreamOptions {
        collection: "orders".into(),
        producer: producer.into(),
        levels: Tiers::ALL,
        by_watermark: false,
        resume_after: None,
        first_seq: 1,
        peer: String::new(),
    }
}

impl Running {
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        match self.random.below(12) {
            0 => self.core.seal(),
            1 => self.disk.fail(1),
            2 => self.declare(),
            3 => self.wait_for_the_disk(),
            4 => self
                .core
                .committed("orders", self.core.watermarks().local_disk().lsn(), Some(1)),
            _ => self.write()?,
        }
        Ok(())
    }

    fn declare(&mut self) {
        let name = format!("collection_{}", self.random.below(3));
        let encoded =
            json!({"name": name, "schema": "", "key": [], "json_schema": null}).to_string();
        // Whether the disk takes it in time or not is one of the things that may happen.
        let _ = self.core.declare(&name, encoded.as_bytes(), DEADLINE);
    }

    fn wait_for_the_disk(&self) {
        let (target, deadline) = (self.core.last_lsn(), Instant::now() + DEADLINE);
        loop {
            let seen = self.core.advances().number();
            if self.core.watermarks().local_disk().lsn() >= target || Instant::now() > deadline {
                return;
            }
            self.core
                .advances()
                .wait_above(seen, Duration::from_millis(100));
        }
    }

    fn write(&mut self) -> Result<(), Box<dyn Error>> {
        let which = self.random.below(self.streams.len() as u64) as usize;
        let length = 8 * (1 + self.random.below(60)) as usize;
        let id = self.random.below(u64::MAX);
        let data = id.to_le_bytes().repeat(length / 8);
        let rows: Option<Vec<u32>> = self
            .random
            .one_in(3)
            .then(|| vec![1; 1 + self.random.below(5) as usize]);
        let (producer, stream, next_seq) = &mut self.streams[which];
        let seq = if producer.is_empty() { 0 } else { *next_seq };
        let schema = self.core.schema(
            "orders",
            if self.random.one_in(2) {
                b"schema.."
            } else {
                b"another."
            },
        );
        let pieces: [&[u8]; 2] = [&data[..8], &data[8..]];
        let count = rows.as_ref().map_or(1, Vec::len) as u64;
        let message = Message {
            schema: &schema,
            pieces: &pieces,
            seq,
            rows: rows.as_deref(),
            row_count: count,
            size: 0,
            arrived: Instant::now(),
        };
        match stream.append(&message) {
            Ok(Appended::Written { first_lsn, count }) => {
                *next_seq += count;
                self.writes.push(json!([
                    first_lsn,
                    count,
                    id,
                    length,
                    producer,
                    seq,
                    rows.is_some()
                ]));
            }
            Ok(Appended::NoNumbers) => std::thread::yield_now(),
            Ok(other) => return Err(format!("a write that is new is {other:?}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)), // the disk fails, and heals
        }
        Ok(())
    }
}
