//! One stream of writes: how its messages get their LSNs, when it has to wait, and what it hears.

use std::collections::VecDeque;
use std::future::Future;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::acks::{Announcement, Outbox};
use crate::core::Core;
use crate::format::MOST_BYTES_OF_A_MESSAGE;
use crate::pending::{Bytes, NewWrites};
use crate::producers::{Numbers, Producer, Run};
use crate::refusal::{Quoted, Refusal};
use crate::signal::Waiting;
use crate::state::Range;
use crate::statistics::Counters;
use crate::stream_values::{Appended, Greeting, Message, News, StreamDescription, StreamOptions};
use crate::tier::{Tier, Tiers};
use crate::watermarks::{HURRY, Listener, NEWS};

// What a message takes besides its data.
const MESSAGE_BYTES: u64 = 1024;
// Room to remember so many messages stays after a burst.
const KEPT_MESSAGES: usize = 1024;

/// One task appends, one task announces. It is closed when the handle that `Core::open_stream` gave is dropped.
#[derive(Debug)]
pub struct Stream {
    core: Arc<Core>,
    pub(crate) id: u64,
    options: StreamOptions,
    producer: Option<Arc<Producer>>,
    is_unknown: AtomicBool, // the producer, until it has begun
    listener: crate::sync::Arc<Listener>,
    outbox: Mutex<Outbox>,
    ranges: AtomicUsize, // of the outbox
    unsynced: Mutex<Unsynced>,
    last_lsn: AtomicU64,
    wanted_numbers: AtomicU64,
    throttled: Mutex<Option<Arc<str>>>,
    room: Arc<Waiting>,
    broken_off: OnceLock<Arc<str>>,
    breaking: Waiting,
    /// Of this stream.
    pub counters: Counters,
}

#[derive(Debug, Default)]
struct Unsynced {
    /// The last LSN and the size of each message, in order.
    messages: VecDeque<Range>,
    bytes: u64,
}

impl Stream {
    pub(crate) fn open(
        core: Arc<Core>,
        id: u64,
        options: StreamOptions,
    ) -> (Arc<Stream>, Greeting) {
        let producer = core.take_over(&options, id);
        let committed = core.watermarks().committed(&options.collection);
        let mut outbox = Outbox::new(options.levels, options.by_watermark);
        let mut greeting = Greeting {
            last_seq: None,
            forgotten_lsn: core.forgotten_lsn(),
            assigned: Vec::new(),
            unsure_until: 0,
            memory: 0,
            local_disk: 0,
            object_storage: 0,
        };
        let mut is_unknown = false;
        if let Some(producer) = &producer {
            let numbers = producer.numbers.lock();
            is_unknown = numbers.last_seq == 0;
            greeting.last_seq = (!is_unknown).then_some(numbers.last_seq);
            greeting.unsure_until = numbers.unsure_until();
            if let Some(after) = options.resume_after {
                greeting.assigned = numbers.after(after);
                outbox.resume(
                    &core
                        .given_up()
                        .without(&options.collection, greeting.assigned.clone()),
                );
            }
        }
        greeting.memory = core.last_lsn();
        greeting.local_disk = core.watermarks().local_disk().lsn();
        greeting.object_storage = core.watermarks().object_storage().lsn();
        let listener = crate::sync::Arc::new(Listener::new(committed));
        listener.want(outbox.wanted());
        listener.signal.raise(HURRY);
        let ranges = outbox.ranges();
        core.sequencer().ranges_changed(0, ranges);
        let stream = Arc::new(Stream {
            id,
            producer,
            is_unknown: AtomicBool::new(is_unknown),
            ranges: AtomicUsize::new(ranges),
            outbox: Mutex::new(outbox),
            listener,
            unsynced: Mutex::default(),
            last_lsn: AtomicU64::new(0),
            wanted_numbers: AtomicU64::new(0),
            throttled: Mutex::new(None),
            room: Arc::new(Waiting::new()),
            broken_off: OnceLock::new(),
            breaking: Waiting::new(),
            counters: Counters::default(),
            options,
            core,
        });
        stream.core.watermarks().listen(&stream.listener);
        stream.core.sequencer().add_stream(&stream.room);
        (stream, greeting)
    }

    pub(crate) fn close(&self) {
        self.core.watermarks().forget(&self.listener);
        self.core.sequencer().remove_stream(&self.room);
        if let Some(producer) = &self.producer {
            let mut numbers = producer.numbers.lock();
            if numbers.holder == Some(self.id) {
                numbers.holder = None;
            }
        }
    }

    // Who reads the stream.

    /// Gives the writes of a message their LSNs, and leaves out what this producer has written before.
    pub fn append(&self, message: &Message<'_>) -> Result<Appended, Refusal> {
        self.broken_off().map_or(Ok(()), Err)?;
        let length: u64 = message.pieces.iter().map(|piece| piece.len() as u64).sum();
        let row_bytes = message.rows.map_or(0, |rows| size_of_val(rows) as u64);
        if length + row_bytes > MOST_BYTES_OF_A_MESSAGE {
            let reason = format!(
                "a message has {length} bytes and may have {MOST_BYTES_OF_A_MESSAGE}: split it"
            );
            return Err(Refusal::ConfigError(reason));
        }
        let Some(producer) = &self.producer else {
            return self.write(message, None);
        };
        let mut numbers = producer.numbers.lock();
        if self.is_unknown.swap(false, Relaxed) && message.seq > self.options.first_seq {
            return Err(Refusal::UnknownProducer {
                producer: self.options.producer.clone(),
                collection: self.options.collection.to_string(),
                first_seq: message.seq,
            });
        }
        if numbers.holder != Some(self.id) {
            let collection = self.options.collection.to_string();
            return Err(Refusal::Fenced {
                producer: self.options.producer.clone(),
                collection,
            });
        }
        if let Some(known) = self.known_part(&mut numbers, message)? {
            return Ok(known);
        }
        let appended = self.write(message, Some(producer))?;
        if let Appended::Written { first_lsn, count } = appended {
            numbers.wrote(
                Run {
                    seq: message.seq,
                    lsn: first_lsn,
                    count,
                },
                self.core.uptime_us(),
            );
        }
        Ok(appended)
    }

    /// Acknowledges again what had been written before.
    fn known_part(
        &self,
        numbers: &mut Numbers,
        message: &Message<'_>,
    ) -> Result<Option<Appended>, Refusal> {
        let writes = message.rows.map_or(1, |rows| rows.len() as u64);
        if self.core.defects().age_by_clock {
            let now = self.core.wall_us();
            if now < std::mem::replace(&mut numbers.accepted_us, now) {
                self.wrote_before(&[Run {
                    seq: message.seq,
                    lsn: 0,
                    count: writes,
                }]);
                numbers.last_seq = message.seq + writes - 1;
                return Ok(Some(Appended::Duplicate));
            }
        }
        let known = (numbers.last_seq + 1)
            .saturating_sub(message.seq)
            .min(writes);
        if known == 0 {
            return Ok(None);
        }
        if let Some(missing) = numbers.left_out(message.seq, known) {
            // To take it for one that was written would lose it, and to write it now would change the order.
            return Err(Refusal::ConfigError(format!(
                "sequence number {missing} of producer {} was left out, and {} is written already: numbers only go \
                 up; write it with a new number",
                Quoted(&self.options.producer),
                numbers.last_seq
            )));
        }
        if let Some(unsure) = numbers.unsure(message.seq, known) {
            return Err(Refusal::ConfigError(format!(
                "it cannot be told whether sequence number {unsure} of producer {} in collection {} was committed, or \
                 given up by who runs the server: look for it there, and write what is missing with new numbers",
                Quoted(&self.options.producer),
                Quoted(&self.options.collection)
            )));
        }
        self.wrote_before(&numbers.find(message.seq, known));
        self.counters.duplicates.fetch_add(known, Relaxed);
        Ok(Some(if known == writes {
            Appended::Duplicate
        } else {
            Appended::Rest {
                known: known as u32,
            }
        }))
    }

    fn write(
        &self,
        message: &Message<'_>,
        producer: Option<&Arc<Producer>>,
    ) -> Result<Appended, Refusal> {
        let bytes = Bytes::new(message.pieces);
        let length = bytes.len();
        let count = message.rows.map_or(1, <[u32]>::len) as u32;
        let new = NewWrites {
            schema: message.schema,
            producer: producer.map(|producer| &producer.name),
            seq: message.seq,
            count,
            rows: message.rows,
            bytes,
            accepted_us: self.core.wall_us(),
        };
        let row_bytes = new.size() - length;
        let count = u64::from(count);
        let Some(first_lsn) = self.core.sequencer().append(new)? else {
            self.wanted_numbers.store(count, Relaxed);
            return Ok(Appended::NoNumbers);
        };
        let last_lsn = first_lsn + count - 1;
        self.counters.writes.fetch_add(count, Relaxed);
        self.counters.rows.fetch_add(message.row_count, Relaxed);
        self.counters.bytes.fetch_add(length, Relaxed);
        self.last_lsn.store(last_lsn, Relaxed);
        {
            let mut unsynced = self.unsynced.lock();
            let size = message.size.max(length) + row_bytes + MESSAGE_BYTES;
            unsynced.messages.push_back((last_lsn, size));
            unsynced.bytes += size;
        }
        if self.core.defects().told_before_sync {
            self.core.watermarks().advance_local_disk(last_lsn);
        }
        self.tell(|outbox| {
            outbox.wrote(Run {
                seq: message.seq,
                lsn: first_lsn,
                count,
            })
        });
        self.core.write_latencies().add(message.arrived.elapsed());
        Ok(Appended::Written { first_lsn, count })
    }

    fn wrote_before(&self, runs: &[Run]) {
        let reaching = self
            .core
            .given_up()
            .without(&self.options.collection, runs.to_vec());
        self.tell(|outbox| outbox.wrote_before(runs, &reaching));
    }

    /// There is something to announce, which does not wait for more.
    fn tell(&self, change: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox.lock();
        change(&mut outbox);
        self.note_ranges(&outbox);
        self.listener.want(outbox.wanted());
        drop(outbox);
        self.listener.signal.raise(HURRY);
    }

    /// Counts what waits to be announced, and says whether it was so much that the stream had to wait.
    fn note_ranges(&self, outbox: &Outbox) -> bool {
        let now = outbox.ranges();
        let before = self.ranges.swap(now, SeqCst);
        let sequencer = self.core.sequencer();
        let had_to_wait = before > sequencer.limits.ranges || sequencer.has_its_ranges(before);
        sequencer.ranges_changed(before, now);
        had_to_wait
    }

    /// Why nothing is accepted from this stream now.
    pub fn refusal(&self) -> Option<Refusal> {
        self.broken_off().or_else(|| {
            self.core
                .sequencer()
                .refusal(Some(&self.options.collection))
        })
    }

    /// Why the stream must not be read now, in the words that its client hears.
    pub fn must_wait(&self) -> Option<Arc<str>> {
        let limits = &self.core.sequencer().limits;
        let ranges = self.ranges.load(Relaxed);
        if ranges > limits.ranges {
            return Some("too many writes wait to be announced: read the acknowledgements".into());
        }
        if self.core.sequencer().has_its_ranges(ranges) {
            return Some("too many writes of all clients wait to be announced".into());
        }
        if let Some(reason) = self.core.sequencer().backed_up() {
            return Some(reason);
        }
        let wanted = self.wanted_numbers.load(Relaxed);
        if wanted > 0 && self.core.sequencer().has_numbers(wanted) {
            self.wanted_numbers.store(0, Relaxed);
        }
        let unsynced = self.unsynced_bytes();
        let waits_for_disk = unsynced > limits.unsynced_bytes
            || self.core.sequencer().is_full()
            || self.core.sequencer().has_its_share(unsynced)
            || self.wanted_numbers.load(Relaxed) > 0;
        waits_for_disk.then(|| "the disk is slower than the writers".into())
    }

    /// Waits until the stream may be read. Counts as being throttled only if the caller says so.
    pub fn room(&self) -> impl Future<Output = Result<(), Refusal>> + Send + '_ {
        poll_fn(move |context| {
            self.room.poll(context, || match self.refusal() {
                Some(refusal) => Some(Err(refusal)),
                None => self.must_wait().is_none().then_some(Ok(())),
            })
        })
    }

    /// Says why the stream waits, or that it does not any more.
    pub fn set_throttled(&self, reason: Option<Arc<str>>) {
        if reason.is_some() {
            self.counters.throttled.fetch_add(1, Relaxed);
        }
        *self.throttled.lock() = reason;
    }

    /// How much of the stream waits for the disk.
    pub fn unsynced_bytes(&self) -> u64 {
        let durable = self.core.watermarks().local_disk().lsn();
        let mut unsynced = self.unsynced.lock();
        while let Some(&(_, size)) = unsynced.messages.front().filter(|(lsn, _)| *lsn <= durable) {
            unsynced.messages.pop_front();
            unsynced.bytes -= size;
        }
        if unsynced.messages.is_empty() && unsynced.messages.capacity() > KEPT_MESSAGES {
            unsynced.messages.shrink_to(KEPT_MESSAGES);
        }
        unsynced.bytes
    }

    /// The last LSN that this stream got, or 0.
    pub fn last_lsn(&self) -> u64 {
        self.last_lsn.load(Relaxed)
    }

    /// Whether all that has an LSN is synced.
    pub fn is_synced(&self) -> bool {
        self.core.watermarks().local_disk().lsn() >= self.last_lsn()
    }

    /// Takes nothing more, and announces nothing more once it has returned.
    pub(crate) fn break_off(&self, reason: &str) {
        // A reason that is there stays.
        let _ = self.broken_off.set(reason.into());
        drop(self.outbox.lock()); // what was being announced before is
        self.listener.signal.raise(HURRY);
        self.room.wake();
        self.breaking.wake();
    }

    /// Waits until the stream is broken off.
    pub fn breaking_off(&self) -> impl Future<Output = Refusal> + Send + '_ {
        poll_fn(move |context| self.breaking.poll(context, || self.broken_off()))
    }

    /// Why nothing more is announced, if so.
    pub fn broken_off(&self) -> Option<Refusal> {
        let reason = self.broken_off.get()?;
        Some(Refusal::ServerUnavailable(reason.to_string()))
    }

    // Who sends acknowledgements.

    /// Waits until there may be something to announce.
    pub fn news(&self) -> impl Future<Output = News> + Send + '_ {
        poll_fn(move |context| {
            self.listener.signal.poll(context, NEWS | HURRY).map(|()| {
                let raised = self.listener.signal.lower(NEWS | HURRY);
                News {
                    hurry: raised & HURRY != 0,
                }
            })
        })
    }

    /// Waits until there is something that does not wait for more news; `news` still tells of it.
    pub fn hurried(&self) -> impl Future<Output = ()> + Send + '_ {
        poll_fn(move |context| self.listener.signal.poll(context, HURRY))
    }

    /// Wakes who sends acknowledgements, as a status to be sent does.
    pub fn wake(&self) {
        self.listener.signal.raise(HURRY);
    }

    /// What is to be announced now. What it returns counts as announced.
    pub fn announce(&self) -> Announcement {
        let mut outbox = self.outbox.lock();
        if self.broken_off.get().is_some() {
            return Announcement::default();
        }
        let announcement = outbox.take(
            self.core.watermarks(),
            &self.listener.committed,
            self.core.wall_us(),
        );
        let had_to_wait = self.note_ranges(&outbox);
        self.listener.want(outbox.wanted());
        drop(outbox);
        if had_to_wait {
            self.room.wake();
        }
        self.counters.acks.fetch_add(announcement.rows, Relaxed);
        announcement
    }

    /// The first acknowledgement of an announcement was handed over.
    pub fn announced(&self, since: Option<Instant>) {
        if let Some(since) = since {
            self.core.ack_latencies().add(since.elapsed());
        }
    }

    /// Whether everything was announced at every level.
    pub fn is_done(&self) -> bool {
        self.outbox.lock().wanted() == Tiers::NONE
    }

    /// How many writes are not yet announced at a tier.
    pub fn pending(&self, tier: Tier) -> u64 {
        self.outbox.lock().pending(tier)
    }

    /// What those see who ask which streams there are.
    pub fn describe(&self) -> StreamDescription {
        StreamDescription {
            id: self.id,
            peer: self.options.peer.clone(),
            collection: self.options.collection.clone(),
            producer: self.options.producer.clone(),
            statistics: self.counters.snapshot(),
            throttled: self.throttled.lock().clone(),
            pending: Tier::ALL.map(|tier| self.pending(tier)),
        }
    }

    /// What its client has said of the stream.
    pub fn options(&self) -> &StreamOptions {
        &self.options
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let ranges = self.ranges.load(Relaxed);
        self.core.sequencer().ranges_changed(ranges, 0);
    }
}
