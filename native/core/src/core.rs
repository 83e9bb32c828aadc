//! A log that takes writes, and what its server asks of it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;

use crate::clock::Clock;
use crate::completion::Completion;
use crate::config::{Config, Recovered};
use crate::defects::Defects;
use crate::generation::Generation;
use crate::given_up::GivenUp;
use crate::health::Health;
use crate::lsn::first_lsn_of;
use crate::parts::{LogPart, Parts};
use crate::pending::Schema;
use crate::producers::{Producer, Producers};
use crate::refusal::Refusal;
use crate::sequencer::{Sequencer, too_slow};
use crate::state::{Committed, LogState, ProducerName};
use crate::statistics::{Latencies, Statistics};
use crate::stream::Stream;
use crate::stream_values::{Greeting, StreamDescription, StreamOptions};
use crate::watermarks::Watermarks;
use crate::writer::LogWriter;

/// A log cannot be opened.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// What the log's thread shares with those who pass its segments on.
#[derive(Debug)]
pub(crate) struct Shared {
    pub sequencer: Sequencer,
    pub watermarks: Watermarks,
    /// Rises with every advance of a watermark.
    pub advances: Generation,
    pub parts: Parts,
    /// What is in the log; the log's thread keeps it up.
    pub state: Mutex<LogState>,
    pub clock: Arc<dyn Clock>,
    pub uploaded_segment: AtomicU64,
    /// When the first write of the open segment was accepted; 0 if it has none.
    pub first_accepted_us: AtomicU64,
    uptime_before_us: u64,
    began_at: Duration,
}

impl Shared {
    /// For how long servers of this log have run, this one included.
    pub fn uptime_us(&self) -> u64 {
        self.uptime_before_us
            + self
                .clock
                .running()
                .saturating_sub(self.began_at)
                .as_micros() as u64
    }

    pub fn synced(&self, lsn: u64) {
        if self.watermarks.advance_local_disk(lsn) {
            self.advances.rise();
        }
    }
}

/// A collection and an Arrow IPC schema message.
type SchemaKey = (Arc<str>, Box<[u8]>);

/// A log that is written. Every method may be called by any thread.
#[derive(Debug)]
pub struct Core {
    shared: Arc<Shared>,
    producers: Producers,
    schemas: Mutex<HashMap<SchemaKey, Weak<Schema>>>,
    streams: Mutex<Vec<Arc<Stream>>>,
    given_up: GivenUp,
    next_id: AtomicU64,
    ended: Mutex<Statistics>,
    write_latencies: Latencies,
    ack_latencies: Latencies,
    defects: Defects,
    thread: Mutex<Option<JoinHandle<()>>>,
    has_ended: Arc<Completion>,
    is_written_out: Arc<std::sync::atomic::AtomicBool>,
}

impl Core {
    /// Begins a segment, so that a disk that cannot be written is known at once. On one that is full it starts all
    /// the same, and refuses writes until there is room: what is uploaded and committed meanwhile makes some.
    pub fn open(config: Config, recovered: Recovered) -> Result<Arc<Core>, OpenError> {
        let Recovered { mut state, runs } = recovered;
        if state.reserved_until < first_lsn_of(config.term).max(state.last_lsn + 1) {
            let reason = "the log's state would give away LSNs that are in use: start its term before it is opened";
            return Err(OpenError(reason.into()));
        }
        let defects = config.defects;
        let producers = if defects.producers_forgotten {
            Producers::default()
        } else {
            Producers::new(&state, runs)
        };
        let watermarks = Watermarks::new(
            config.clock.clone(),
            state.last_lsn,
            config.uploaded_lsn,
            &state.committed,
        );
        state.producers.shrink_to_fit();
        let shared = Arc::new(Shared {
            sequencer: Sequencer::new(
                config.limits.clone(),
                config.term,
                state.last_lsn,
                state.reserved_until,
            ),
            watermarks,
            advances: Generation::default(),
            parts: Parts::new(config.number),
            uptime_before_us: state.uptime_us,
            began_at: config.clock.running(),
            state: Mutex::new(state),
            clock: config.clock.clone(),
            uploaded_segment: AtomicU64::new(config.uploaded_segment),
            first_accepted_us: AtomicU64::new(0),
        });
        let mut writer = LogWriter::new(config, shared.clone());
        writer.start().map_err(OpenError)?;
        let has_ended = Arc::new(Completion::default());
        let is_written_out = Arc::default();
        let thread = {
            let (has_ended, is_written_out) = (has_ended.clone(), Arc::clone(&is_written_out));
            thread::Builder::new()
                .name("wal".into())
                .spawn(move || {
                    writer.run(&is_written_out);
                    has_ended.complete();
                })
                .map_err(|error| {
                    OpenError(format!("the log's thread cannot be started: {error}"))
                })?
        };
        Ok(Arc::new(Core {
            shared,
            producers,
            schemas: Mutex::default(),
            streams: Mutex::default(),
            given_up: GivenUp::default(),
            next_id: AtomicU64::new(1),
            ended: Mutex::default(),
            write_latencies: Latencies::default(),
            ack_latencies: Latencies::default(),
            defects,
            thread: Mutex::new(Some(thread)),
            has_ended,
            is_written_out,
        }))
    }

    /// Takes nothing more, writes what waits, and says whether all of it is synced.
    pub fn close(&self, timeout: Duration) -> bool {
        self.shared.sequencer.close();
        if !self.has_ended.wait(timeout) {
            return false;
        }
        if let Some(thread) = self.thread.lock().take() {
            // It has said that it is over; a panic in it was noted before that.
            let _ = thread.join();
        }
        self.is_written_out.load(Relaxed)
    }

    // Streams.

    /// Opens a stream; if it has a producer, that is taken over from the stream that had it.
    pub fn open_stream(self: &Arc<Core>, options: StreamOptions) -> (StreamHandle, Greeting) {
        let id = self.next_id.fetch_add(1, Relaxed);
        // Held meanwhile: whoever gives writes up either breaks the stream off, or did so before it looks.
        let mut streams = self.streams.lock();
        let (stream, greeting) = Stream::open(self.clone(), id, options);
        streams.push(stream.clone());
        drop(streams);
        (
            StreamHandle {
                core: self.clone(),
                stream,
            },
            greeting,
        )
    }

    /// Why no stream may be opened that resumes, and so has to be told of what was written before.
    pub fn refuse_resume(&self) -> Result<(), Refusal> {
        if self.shared.sequencer.has_all_ranges() {
            let reason = "too many writes of all clients wait to be announced: resume later";
            return Err(Refusal::ServerUnavailable(reason.into()));
        }
        Ok(())
    }

    /// The schema under which writes of a collection are kept; the same for the same content.
    pub fn schema(&self, collection: &str, message: &[u8]) -> Arc<Schema> {
        let key: SchemaKey = (collection.into(), message.into());
        let mut schemas = self.schemas.lock();
        if let Some(known) = schemas.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        schemas.retain(|_, schema| schema.strong_count() > 0);
        let id = self.next_id.fetch_add(1, Relaxed);
        let schema = Arc::new(Schema {
            id,
            collection: key.0.clone(),
            message: key.1.clone(),
        });
        schemas.insert(key, Arc::downgrade(&schema));
        schema
    }

    /// The streams that are open.
    pub fn streams(&self) -> Vec<StreamDescription> {
        let streams = self.streams.lock().clone();
        streams.iter().map(|stream| stream.describe()).collect()
    }

    /// Of all streams, those included that have ended.
    pub fn statistics(&self) -> Statistics {
        let streams = self.streams.lock(); // or one that ends meanwhile would count twice, or not
        streams.iter().fold(*self.ended.lock(), |sum, stream| {
            sum + stream.counters.snapshot()
        })
    }

    /// The latest seconds from a message's arrival to its LSN.
    pub fn write_seconds(&self) -> Vec<f32> {
        self.write_latencies.latest()
    }

    /// The latest seconds from a message's LSN to its first acknowledgement.
    pub fn ack_seconds(&self) -> Vec<f32> {
        self.ack_latencies.latest()
    }

    // What is refused, and what waits.

    /// Why nothing is accepted now.
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.sequencer.refusal(None)
    }

    /// Whether writes are accepted, and streams are read.
    pub fn is_ready(&self) -> bool {
        self.refusal().is_none() && self.shared.sequencer.backed_up().is_none()
    }

    /// Accepts nothing any more: the server was replaced, or nothing it takes could be kept.
    pub fn stop_accepting(&self, reason: &str) {
        self.shared
            .sequencer
            .change_refusal(|state| state.fatal = Some(reason.into()));
    }

    /// Accepts nothing while the disk has this problem.
    pub fn set_disk_problem(&self, reason: Option<&str>) {
        self.shared
            .sequencer
            .change_refusal(|state| state.set_disk_problem(reason.map(Into::into)));
    }

    /// Reads no stream while too much log waits for object storage or Iceberg.
    pub fn set_backed_up(&self, reason: Option<&str>) {
        self.shared
            .sequencer
            .change_refusal(|state| state.set_backed_up(reason));
    }

    /// Accepts no writes of a collection while it cannot be committed, for this reason.
    pub fn set_collection_refusal(&self, collection: &str, reason: Option<&str>) {
        let reason = reason.map(Into::into);
        self.shared
            .sequencer
            .change_refusal(|state| state.set_collection_refusal(collection, reason));
    }

    /// Takes nothing more of the streams of a collection, and announces nothing more to them, for this reason.
    pub fn break_off(&self, collection: &str, reason: &str) {
        let streams = self.streams.lock().clone();
        let theirs = streams
            .iter()
            .filter(|stream| *stream.options().collection == *collection);
        theirs.for_each(|stream| stream.break_off(reason));
    }

    // The log and its segments.

    /// Returns when the collection is in the log, synced. `encoded` is its JSON.
    pub fn declare(
        &self,
        collection: &str,
        encoded: &[u8],
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let done = self.shared.sequencer.declare(collection, encoded)?;
        if done.wait(timeout) {
            Ok(())
        } else {
            Err(too_slow(collection, timeout))
        }
    }

    /// Ends the current segment as soon as what waits is written, if there are writes in it.
    pub fn seal(&self) {
        self.shared.sequencer.seal();
    }

    /// A segment is in object storage, and so is everything before it.
    pub fn uploaded(&self, segment: u64, last_lsn: u64) {
        self.shared.uploaded_segment.fetch_max(segment, Relaxed);
        if self.shared.watermarks.advance_object_storage(last_lsn) {
            self.shared.advances.rise();
        }
    }

    /// A collection's table has everything at or below the LSN.
    pub fn committed(&self, collection: &str, lsn: u64, snapshot_id: Option<i64>) {
        self.shared
            .state
            .lock()
            .committed
            .insert(collection.into(), Committed { lsn, snapshot_id });
        self.producers.committed(collection, lsn);
        if self
            .shared
            .watermarks
            .advance_committed(collection, lsn, snapshot_id)
        {
            self.shared.advances.rise();
        }
    }

    /// Forgets producers that were silent for long and that the log's state leaves out.
    pub fn forget_silent(&self) {
        let state = self.shared.state.lock();
        self.producers
            .forget_silent(self.uptime_us(), |name| state.producers.contains_key(name));
    }

    /// The segment that is being written and those that were sealed, but for those that were taken. A reader looks
    /// here first, and then at those that were taken.
    pub fn log_parts(&self) -> Vec<LogPart> {
        self.shared.parts.all()
    }

    /// A sealed segment is found elsewhere from now on.
    pub fn segment_taken(&self, number: u64) {
        self.shared.parts.taken(number);
    }

    /// How the log is.
    pub fn health(&self) -> Health {
        let state = self.shared.sequencer.state.lock();
        let first_accepted_us = self.shared.first_accepted_us.load(Relaxed);
        let is_alive = self
            .thread
            .lock()
            .as_ref()
            .is_some_and(|thread| !thread.is_finished());
        Health {
            failure: state.failure.clone(),
            has_failed: state.has_failed,
            beat_age: self.shared.sequencer.beat_age(),
            is_alive,
            waiting_bytes: state.waiting_bytes,
            unsynced_since_us: state.unsynced_since_us,
            unsealed_since_us: Some(first_accepted_us)
                .filter(|at| *at > 0)
                .or(state.unsynced_since_us),
        }
    }

    // How far everything is.

    /// The watermarks above MEMORY.
    pub fn watermarks(&self) -> &Watermarks {
        &self.shared.watermarks
    }

    /// Rises with every advance of a watermark; to be read before they are, and waited on after.
    pub fn advances(&self) -> &Generation {
        &self.shared.advances
    }

    /// The last LSN that a write has; later ones may have been given away by an earlier process.
    pub fn last_lsn(&self) -> u64 {
        self.shared.sequencer.state.lock().last_lsn
    }

    /// No producer was ever forgotten whose last write has a higher LSN than this.
    pub fn forgotten_lsn(&self) -> u64 {
        self.producers.forgotten_lsn()
    }

    /// For how long servers of this log have run, this one included.
    pub fn uptime_us(&self) -> u64 {
        self.shared.uptime_us()
    }

    pub(crate) fn take_over(&self, options: &StreamOptions, holder: u64) -> Option<Arc<Producer>> {
        if options.producer.is_empty() {
            return None;
        }
        let name = ProducerName {
            collection: options.collection.clone(),
            id: options.producer.as_str().into(),
        };
        Some(
            self.producers
                .take_over(name, holder, self.defects.sessions_forgotten),
        )
    }

    pub(crate) fn sequencer(&self) -> &Sequencer {
        &self.shared.sequencer
    }

    pub(crate) fn producers(&self) -> &Producers {
        &self.producers
    }

    pub(crate) fn given_up(&self) -> &GivenUp {
        &self.given_up
    }

    pub(crate) fn defects(&self) -> Defects {
        self.defects
    }

    pub(crate) fn wall_us(&self) -> u64 {
        self.shared.clock.wall_us()
    }

    pub(crate) fn write_latencies(&self) -> &Latencies {
        &self.write_latencies
    }

    pub(crate) fn ack_latencies(&self) -> &Latencies {
        &self.ack_latencies
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.sequencer.close(); // what waits is written all the same
    }
}

/// A stream that is open for as long as this is there. The task that announces has a clone of the stream itself.
#[derive(Debug)]
pub struct StreamHandle {
    core: Arc<Core>,
    stream: Arc<Stream>,
}

impl StreamHandle {
    /// The stream, for another task.
    pub fn share(&self) -> Arc<Stream> {
        self.stream.clone()
    }
}

impl Deref for StreamHandle {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.stream.close();
        let mut streams = self.core.streams.lock();
        streams.retain(|other| !Arc::ptr_eq(other, &self.stream));
        let mut ended = self.core.ended.lock();
        *ended = *ended + self.stream.counters.snapshot();
    }
}
