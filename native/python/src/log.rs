//! The log, as Python opens it and passes its segments on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use headrace_core::{
    Config, Core, Defects, DiskFiles, GivenUpNumbers, Hooks, Limits, LogState, NoHooks,
    ProducerName, Range, Recovered, Run, SystemClock,
};
use headrace_server::refusal::Refusal;
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::events::Event;
use crate::seeded::{PythonHooks, SteppedClock};

/// Writes of a producer that the log still holds: their first sequence number and LSN, and how many they are.
type SeqLsnCount = (u64, u64, u64);

/// The settings with which a log is opened. `runs` has the runs of sequence numbers of each collection and producer.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LogConfig {
    folder: PathBuf,
    term: u64,
    number: u64,
    previous_length: u64,
    uploaded_segment: u64,
    uploaded_lsn: u64,
    state: Vec<u8>,
    runs: Vec<(String, String, Vec<SeqLsnCount>)>,
    segment_bytes: u64,
    segment_seconds: f64,
    group_bytes: u64,
    gather_seconds: f64,
    waiting_bytes: u64,
    unsynced_bytes: u64,
    ranges: usize,
    state_share: u64,
    reserved_at_once: u64,
    hooks: Option<Py<PyAny>>,
    defects: Vec<String>,
    clock_file: Option<PathBuf>,
}

/// A log that is written, from when it is made until it is closed.
#[pyclass(frozen)]
pub struct Log {
    pub core: Arc<Core>,
    pub sender: Sender<Event>,
    events: Mutex<Receiver<Event>>,
}

#[pymethods]
impl Log {
    #[new]
    fn open(py: Python<'_>, config: LogConfig) -> PyResult<Log> {
        let (sender, events) = channel();
        let (config, recovered) = config.into_core(sender.clone())?;
        let core = py
            .detach(|| Core::open(config, recovered))
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Log {
            core,
            sender,
            events: Mutex::new(events),
        })
    }

    /// Takes nothing more, and returns whether all that was taken is synced.
    fn close(&self, py: Python<'_>, timeout: f64) -> bool {
        py.detach(|| self.core.close(seconds(timeout)))
    }

    /// Returns what happened next, or None after a while. For one thread.
    fn next_event(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Py<PyAny>>> {
        let event = py.detach(|| self.events.lock().recv_timeout(seconds(timeout)));
        match event {
            Ok(event) => event.into_python(py).map(Some),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Returns when the collection is in the log, synced; or else the error, as JSON.
    fn declare(
        &self,
        py: Python<'_>,
        collection: &str,
        encoded: &[u8],
        timeout: f64,
    ) -> Option<String> {
        py.detach(|| self.core.declare(collection, encoded, seconds(timeout)))
            .err()
            .map(|refusal| Refusal::of_log(&refusal).to_json())
    }

    /// Ends the current segment as soon as what waits is written.
    fn seal(&self) {
        self.core.seal();
    }

    /// A segment is in object storage, and so is everything before it.
    fn uploaded(&self, segment: u64, last_lsn: u64) {
        self.core.uploaded(segment, last_lsn);
    }

    /// A collection's table has everything at or below the LSN.
    fn committed(&self, collection: &str, lsn: u64, snapshot_id: Option<i64>) {
        self.core.committed(collection, lsn, snapshot_id);
    }

    /// A sealed segment is found elsewhere from now on.
    fn segment_taken(&self, number: u64) {
        self.core.segment_taken(number);
    }

    /// Returns the number and the synced length of the segments that were not taken, the open one last.
    fn log_parts(&self) -> Vec<(u64, u64)> {
        self.core
            .log_parts()
            .iter()
            .map(|part| (part.number, part.length))
            .collect()
    }

    /// Forgets producers that were silent for long and that the log's state leaves out.
    fn forget_silent(&self) {
        self.core.forget_silent();
    }

    // Refusals.

    /// Returns why nothing is accepted now, as the error's JSON.
    fn refusal(&self) -> Option<String> {
        self.core
            .refusal()
            .map(|refusal| Refusal::of_log(&refusal).to_json())
    }

    fn stop_accepting(&self, reason: &str) {
        self.core.stop_accepting(reason);
    }

    fn set_disk_problem(&self, reason: Option<&str>) {
        self.core.set_disk_problem(reason);
    }

    fn set_backed_up(&self, reason: Option<&str>) {
        self.core.set_backed_up(reason);
    }

    fn set_collection_refusal(&self, collection: &str, reason: Option<&str>) {
        self.core.set_collection_refusal(collection, reason);
    }

    /// Says which writes of a collection are gone, and what is known of them: of each producer the last number of
    /// which nobody knows whether it was given up, and the runs that were.
    fn set_given_up(
        &self,
        collection: &str,
        ranges: Vec<Range>,
        producers: Vec<(String, u64, Vec<SeqLsnCount>)>,
        others_are_unsure: bool,
    ) {
        let numbers = producers.into_iter().map(|(id, unsure_until, runs)| {
            let runs = runs_of(runs);
            (id, GivenUpNumbers { runs, unsure_until })
        });
        self.core
            .set_given_up(collection, &ranges, numbers.collect(), others_are_unsure);
    }

    /// Returns of each producer of a collection its last number, the last one that was forgotten for want of room, and
    /// the runs that have these LSNs.
    fn known_numbers(
        &self,
        py: Python<'_>,
        collection: &str,
        ranges: Vec<Range>,
    ) -> Vec<(String, u64, u64, Vec<SeqLsnCount>)> {
        let known = py.detach(|| self.core.known_numbers(collection, &ranges));
        let known = known.into_iter().map(|one| {
            let runs = one.runs.iter().map(|run| (run.seq, run.lsn, run.count));
            (
                one.id.to_string(),
                one.last_seq,
                one.crowded_out,
                runs.collect(),
            )
        });
        known.collect()
    }

    /// Takes nothing more of the streams of a collection, and announces nothing more to them.
    fn break_off(&self, collection: &str, reason: &str) {
        self.core.break_off(collection, reason);
    }

    // How far everything is.

    #[getter]
    fn last_lsn(&self) -> u64 {
        self.core.last_lsn()
    }

    #[getter]
    fn local_disk(&self) -> u64 {
        self.core.watermarks().local_disk().lsn()
    }

    #[getter]
    fn object_storage(&self) -> u64 {
        self.core.watermarks().object_storage().lsn()
    }

    /// Returns the LSN and the snapshot up to which a collection's table has everything.
    fn committed_to(&self, collection: &str) -> (u64, Option<i64>) {
        let watermark = self.core.watermarks().committed(collection);
        (watermark.lsn(), watermark.snapshot_id())
    }

    /// Counts the advances of all watermarks.
    #[getter]
    fn advances(&self) -> u64 {
        self.core.advances().number()
    }

    /// Waits until there were more advances than were seen.
    fn wait_above(&self, py: Python<'_>, seen: u64, timeout: f64) -> u64 {
        py.detach(|| self.core.advances().wait_above(seen, seconds(timeout)))
    }

    // How it is.

    fn health(&self) -> LogHealth {
        let health = self.core.health();
        LogHealth {
            failure: health.failure,
            has_failed: health.has_failed,
            is_alive: health.is_alive,
            beat_age: health.beat_age.as_secs_f64(),
            waiting_bytes: health.waiting_bytes,
            unsynced_since_us: health.unsynced_since_us,
            unsealed_since_us: health.unsealed_since_us,
        }
    }

    fn streams(&self) -> Vec<StreamDescription> {
        self.core
            .streams()
            .into_iter()
            .map(StreamDescription::new)
            .collect()
    }

    fn statistics(&self) -> StreamStatistics {
        StreamStatistics::new(self.core.statistics())
    }

    /// Returns the latest seconds from a message's arrival to its LSN.
    fn write_seconds(&self) -> Vec<f32> {
        self.core.write_seconds()
    }

    /// Returns the latest seconds from a message's LSN to its first acknowledgement.
    fn ack_seconds(&self) -> Vec<f32> {
        self.core.ack_seconds()
    }
}

impl LogConfig {
    fn into_core(self, events: Sender<Event>) -> PyResult<(Config, Recovered)> {
        let state = LogState::decode(&self.state)
            .map_err(|error| PyValueError::new_err(format!("the log's state: {error}")))?;
        let mut defects = Defects::default();
        for name in &self.defects {
            if !defects.switch_on(name) {
                return Err(PyValueError::new_err(format!("there is no defect {name}")));
            }
        }
        let hooks: Arc<dyn Hooks> = match self.hooks {
            Some(hooks) => Arc::new(PythonHooks(hooks)),
            None => Arc::new(NoHooks),
        };
        let runs = self.runs.into_iter().map(|(collection, id, runs)| {
            let name = ProducerName {
                collection: collection.into(),
                id: id.into(),
            };
            (name, runs_of(runs))
        });
        let config = Config {
            folder: self.folder,
            term: self.term,
            number: self.number,
            previous_length: self.previous_length,
            uploaded_segment: self.uploaded_segment,
            uploaded_lsn: self.uploaded_lsn,
            limits: Limits {
                segment_bytes: self.segment_bytes,
                segment_time: seconds(self.segment_seconds),
                group_bytes: self.group_bytes,
                gather_time: seconds(self.gather_seconds),
                waiting_bytes: self.waiting_bytes,
                unsynced_bytes: self.unsynced_bytes,
                ranges: self.ranges,
                state_share: self.state_share,
                reserved_at_once: self.reserved_at_once,
                ..Limits::default()
            },
            files: Box::new(DiskFiles::new(hooks, defects)),
            clock: match self.clock_file {
                Some(file) => Arc::new(SteppedClock {
                    file,
                    right: SystemClock::new(),
                }),
                None => Arc::new(SystemClock::new()),
            },
            defects,
            on_event: Box::new(move |event| {
                let _ = events.send(Event::Log(event)); // when nobody listens any more
            }),
        };
        Ok((
            config,
            Recovered {
                state,
                runs: runs.collect(),
            },
        ))
    }
}

fn runs_of(runs: Vec<SeqLsnCount>) -> Vec<Run> {
    let runs = runs.into_iter();
    runs.map(|(seq, lsn, count)| Run { seq, lsn, count })
        .collect()
}

/// How a log is, at one moment.
#[pyclass(frozen, get_all)]
pub struct LogHealth {
    failure: Option<String>,
    has_failed: bool,
    is_alive: bool,
    beat_age: f64,
    waiting_bytes: u64,
    unsynced_since_us: Option<u64>,
    unsealed_since_us: Option<u64>,
}

/// The counts of one stream, or of all.
#[pyclass(frozen, get_all)]
#[derive(Clone)]
pub struct StreamStatistics {
    writes: u64,
    rows: u64,
    bytes: u64,
    duplicates: u64,
    refused: u64,
    acks: u64,
    throttled: u64,
    disconnects: u64,
}

impl StreamStatistics {
    fn new(of: headrace_core::Statistics) -> StreamStatistics {
        StreamStatistics {
            writes: of.writes,
            rows: of.rows,
            bytes: of.bytes,
            duplicates: of.duplicates,
            refused: of.refused,
            acks: of.acks,
            throttled: of.throttled,
            disconnects: of.disconnects,
        }
    }
}

/// One of the streams that are open.
#[pyclass(frozen, get_all)]
pub struct StreamDescription {
    id: u64,
    peer: String,
    collection: String,
    producer: String,
    statistics: StreamStatistics,
    throttled: Option<String>,
    /// How many writes are not yet announced, by tier, lowest first.
    pending: Vec<u64>,
}

impl StreamDescription {
    fn new(of: headrace_core::StreamDescription) -> StreamDescription {
        StreamDescription {
            id: of.id,
            peer: of.peer,
            collection: of.collection.to_string(),
            producer: of.producer,
            statistics: StreamStatistics::new(of.statistics),
            throttled: of.throttled.map(|reason| reason.to_string()),
            pending: of.pending.to_vec(),
        }
    }
}

/// Converts seconds into a duration; values that are not a duration count as zero.
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
