//! Gives every write its LSN, in the order in which the log writes them. What the streams share with the log's thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::completion::Completion;
use crate::config::Limits;
use crate::lsn::last_lsn_of;
use crate::pending::{Group, NewWrites, Pending, PendingCollection};
use crate::refusal::{Quoted, Refusal};
use crate::signal::Waiting;

#[derive(Debug)]
pub(crate) struct Sequencer {
    pub limits: Limits,
    last_lsn_of_term: u64,
    pub state: Mutex<SequencerState>,
    /// There is something for the log's thread to do.
    pub work: Condvar,
    /// Of what waits for the disk, as the state has it; read without its lock.
    waiting_bytes: AtomicU64,
    /// Of LSNs that wait to be announced, those of all streams.
    ranges: AtomicUsize,
    is_refusing: AtomicBool,
    is_backed_up: AtomicBool,
    waiting_streams: Mutex<Vec<Arc<Waiting>>>,
    first_to_wake: AtomicUsize,
    began: Instant,
    beat_ms: AtomicU64,
}

/// Guarded by one lock, which is held for as long as it takes to copy a small message.
#[derive(Debug, Default)]
pub(crate) struct SequencerState {
    pub next_lsn: u64,
    pub last_lsn: u64,
    pub reserved_until: u64,
    least_reserved: u64,
    /// What is not being written yet. Every group but the last is full.
    pub groups: VecDeque<Group>,
    spare: Option<Group>,
    pub waiting_bytes: u64,
    /// When the oldest message was accepted that is not yet synced.
    pub unsynced_since_us: Option<u64>,
    pub is_asleep: bool,
    pub seal_wanted: bool,
    pub closing: bool,
    pub failure: Option<String>,
    /// For good, not only for as long as the disk does.
    pub has_failed: bool,
    pub fatal: Option<String>,
    disk_problem: Option<String>,
    backed_up: Option<Arc<str>>,
    refused_collections: HashMap<Box<str>, String>,
}

impl Sequencer {
    pub fn new(limits: Limits, term: u64, last_lsn: u64, reserved_until: u64) -> Sequencer {
        let state = SequencerState {
            next_lsn: reserved_until,
            last_lsn,
            reserved_until,
            least_reserved: limits.reserved_at_once / 2,
            ..SequencerState::default()
        };
        Sequencer {
            limits,
            last_lsn_of_term: last_lsn_of(term),
            state: Mutex::new(state),
            work: Condvar::new(),
            waiting_bytes: AtomicU64::new(0),
            ranges: AtomicUsize::new(0),
            is_refusing: AtomicBool::new(false),
            is_backed_up: AtomicBool::new(false),
            waiting_streams: Mutex::default(),
            first_to_wake: AtomicUsize::new(0),
            began: Instant::now(),
            beat_ms: AtomicU64::new(0),
        }
    }

    /// Returns the first LSN of the writes; None if the numbers have to be reserved first.
    pub fn append(&self, new: NewWrites<'_>) -> Result<Option<u64>, Refusal> {
        let count = u64::from(new.count);
        let mut state = self.state.lock();
        state.refuse(&new.schema.collection)?;
        if state.next_lsn + count > state.reserved_until {
            return self.want_more_numbers(&mut state, count).map(|()| None);
        }
        let lsn = state.next_lsn;
        state.next_lsn += count;
        state.last_lsn = state.next_lsn - 1;
        state.waiting_bytes += new.size();
        self.waiting_bytes.store(state.waiting_bytes, Relaxed);
        state.unsynced_since_us.get_or_insert(new.accepted_us);
        state.open_group(self.limits.group_bytes).push(lsn, new);
        self.wake_log(&state);
        Ok(Some(lsn))
    }

    /// Returns what is completed when the collection is in the log, synced.
    pub fn declare(&self, name: &str, encoded: &[u8]) -> Result<Arc<Completion>, Refusal> {
        let done = Arc::new(Completion::default());
        let mut state = self.state.lock();
        state.refuse_all()?;
        let collection = PendingCollection {
            name: name.into(),
            encoded: encoded.into(),
            done: done.clone(),
        };
        state
            .open_group(self.limits.group_bytes)
            .declare(collection);
        self.wake_log(&state);
        Ok(done)
    }

    fn want_more_numbers(&self, state: &mut SequencerState, count: u64) -> Result<(), Refusal> {
        if state.next_lsn + count > self.last_lsn_of_term {
            let reason =
                "the numbers of this term are used up: restart the server to begin another";
            return Err(Refusal::Terminal(reason.into()));
        }
        state.least_reserved = state.least_reserved.max(count);
        self.wake_log(state);
        Ok(())
    }

    /// Whether so many LSNs can be given away at once.
    pub fn has_numbers(&self, count: u64) -> bool {
        let state = self.state.lock();
        state.next_lsn + count <= state.reserved_until
    }

    fn wake_log(&self, state: &SequencerState) {
        if state.is_asleep {
            self.work.notify_one();
        }
    }

    /// Ends the current segment as soon as what waits is written, if there are writes in it.
    pub fn seal(&self) {
        self.state.lock().seal_wanted = true;
        self.work.notify_one();
    }

    pub fn close(&self) {
        self.change_refusal(|state| state.closing = true);
        self.work.notify_one();
    }

    // What is refused, and what has to wait.

    /// Changes why something is refused or has to wait, and has the streams look at it.
    pub fn change_refusal(&self, change: impl FnOnce(&mut SequencerState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.is_refusing.store(
            state.refuse_all().is_err() || !state.refused_collections.is_empty(),
            Relaxed,
        );
        self.is_backed_up.store(state.backed_up.is_some(), Relaxed);
        drop(state);
        self.wake_streams();
    }

    pub fn refusal(&self, collection: Option<&str>) -> Option<Refusal> {
        if !self.is_refusing.load(Relaxed) {
            return None;
        }
        let state = self.state.lock();
        collection
            .map_or_else(|| state.refuse_all(), |name| state.refuse(name))
            .err()
    }

    pub fn backed_up(&self) -> Option<Arc<str>> {
        if self.is_backed_up.load(Relaxed) {
            self.state.lock().backed_up.clone()
        } else {
            None
        }
    }

    pub fn is_full(&self) -> bool {
        self.waiting_bytes() > self.limits.waiting_bytes
    }

    /// Whether a stream that has so much waiting is to let others go first. Once half of the room is taken no stream
    /// gets more than its share of that half, so that those who are quick leave room for those who are not.
    pub fn has_its_share(&self, unsynced_bytes: u64) -> bool {
        let half = self.limits.waiting_bytes / 2;
        self.waiting_bytes() > half && unsynced_bytes > half / self.count_streams() as u64
    }

    /// The same for ranges of LSNs that wait to be announced.
    pub fn has_its_ranges(&self, ranges: usize) -> bool {
        let half = self.limits.all_ranges / 2;
        self.ranges.load(Relaxed) > half && ranges > half / self.count_streams()
    }

    /// Whether no stream may bring ranges with it.
    pub fn has_all_ranges(&self) -> bool {
        self.ranges.load(Relaxed) >= self.limits.all_ranges
    }

    /// A stream has another number of ranges.
    pub fn ranges_changed(&self, before: usize, now: usize) {
        if now == before {
            return;
        }
        if now > before {
            self.ranges.fetch_add(now - before, Relaxed);
            return;
        }
        let gone = before - now;
        let all = self.ranges.fetch_sub(gone, Relaxed);
        let half = self.limits.all_ranges / 2;
        if all > half && all - gone <= half {
            self.wake_streams();
        }
    }

    fn count_streams(&self) -> usize {
        self.waiting_streams.lock().len().max(1)
    }

    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Relaxed)
    }

    /// Adds a stream that is to look again whenever there may be room.
    pub fn add_stream(&self, waiting: &Arc<Waiting>) {
        self.waiting_streams.lock().push(waiting.clone());
    }

    pub fn remove_stream(&self, waiting: &Arc<Waiting>) {
        self.waiting_streams
            .lock()
            .retain(|other| !Arc::ptr_eq(other, waiting));
    }

    /// Another one comes first each time, since the first may take the room that there is.
    fn wake_streams(&self) {
        let streams = self.waiting_streams.lock();
        let first = self.first_to_wake.fetch_add(1, Relaxed) % streams.len().max(1);
        let (last, rest) = streams.split_at(first);
        rest.iter().chain(last).for_each(|waiting| waiting.wake());
    }

    // What the log's thread calls.

    /// A sign of life.
    pub fn beat(&self) {
        self.beat_ms
            .store(self.began.elapsed().as_millis() as u64, Relaxed);
    }

    pub fn beat_age(&self) -> Duration {
        self.began
            .elapsed()
            .saturating_sub(Duration::from_millis(self.beat_ms.load(Relaxed)))
    }

    /// Up to which LSN numbers are to be reserved now.
    pub fn reservation(&self) -> u64 {
        let state = self.state.lock();
        if !self.needs_numbers(&state) {
            return state.reserved_until;
        }
        let block = self.limits.reserved_at_once.max(2 * state.least_reserved);
        self.last_lsn_of_term.min(state.next_lsn + block)
    }

    pub fn needs_numbers(&self, state: &SequencerState) -> bool {
        state.reserved_until - state.next_lsn < state.least_reserved
            && state.reserved_until < self.last_lsn_of_term
    }

    /// The numbers below this are reserved, durably.
    pub fn reserved(&self, until: u64) {
        self.state.lock().reserved_until = until;
    }

    /// A group is synced: whoever waits for room is told, and its own room is used again.
    pub fn release(&self, mut group: Group) {
        let bytes = group.bytes;
        for pending in &group.pending {
            if let Pending::Collection(collection) = pending {
                collection.done.complete();
            }
        }
        group.clear(self.limits.group_bytes);
        let mut state = self.state.lock();
        state.waiting_bytes -= bytes;
        self.waiting_bytes.store(state.waiting_bytes, Relaxed);
        let oldest = state
            .groups
            .iter()
            .flat_map(Group::writes)
            .next()
            .map(|writes| writes.accepted_us);
        state.unsynced_since_us = oldest;
        state.spare = Some(group);
        drop(state);
        self.wake_streams();
    }
}

impl SequencerState {
    fn open_group(&mut self, most_bytes: u64) -> &mut Group {
        if self
            .groups
            .back()
            .is_none_or(|group| group.bytes >= most_bytes)
        {
            let group = self.spare.take().unwrap_or_default();
            self.groups.push_back(group);
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn refuse(&self, collection: &str) -> Result<(), Refusal> {
        self.refuse_all()?;
        if !self.refused_collections.is_empty()
            && let Some(reason) = self.refused_collections.get(collection)
        {
            return Err(Refusal::Quarantined {
                collection: collection.into(),
                reason: reason.clone(),
            });
        }
        Ok(())
    }

    fn refuse_all(&self) -> Result<(), Refusal> {
        if let Some(reason) = &self.fatal {
            return Err(Refusal::ServerUnavailable(reason.clone()));
        }
        if self.closing {
            return Err(Refusal::ServerUnavailable(
                "the server is shutting down".into(),
            ));
        }
        match self.failure.as_ref().or(self.disk_problem.as_ref()) {
            Some(reason) => Err(Refusal::StorageFull(reason.clone())),
            None => Ok(()),
        }
    }

    pub fn set_disk_problem(&mut self, reason: Option<String>) {
        self.disk_problem = reason;
    }

    pub fn set_backed_up(&mut self, reason: Option<&str>) {
        self.backed_up = reason.map(Into::into);
    }

    pub fn set_collection_refusal(&mut self, collection: &str, reason: Option<String>) {
        match reason {
            Some(reason) => self.refused_collections.insert(collection.into(), reason),
            None => self.refused_collections.remove(collection),
        };
    }
}

/// The error of a declaration that the disk did not take in time.
pub(crate) fn too_slow(collection: &str, timeout: Duration) -> Refusal {
    let seconds = timeout.as_secs_f64();
    let name = Quoted(collection);
    Refusal::StorageFull(format!(
        "the disk did not take the collection {name} in {seconds:.0} s"
    ))
}
