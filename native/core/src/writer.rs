//! The one thread that writes the log: it syncs once for all that waited, and begins new segments.
//!
//! A sync that fails says nothing about what is on the disk, and a second one on the same file may lie. So the segment
//! is given up at the last offset that was synced before, and what waits is written to a new one.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::config::{Config, Limits};
use crate::core::Shared;
use crate::events::{Event, Segment};
use crate::files::Files;
use crate::format;
use crate::pending::{Group, Pending};
use crate::segment::OpenSegment;
use crate::sequencer::SequencerState;

// Messages of a group that mean that more are coming.
const LOADED: u64 = 4;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(1);

pub(crate) struct LogWriter {
    pub shared: Arc<Shared>,
    pub folder: PathBuf,
    pub term: u64,
    /// Of the open segment, or of the one that is begun next.
    pub number: u64,
    pub files: Box<dyn Files>,
    pub open: Option<OpenSegment>,
    pub previous_length: u64,
    /// Sealed, but no later segment says so yet.
    pub unannounced: Option<Segment>,
    /// Bytes of log since the last state; None: write one now.
    pub since_state: Option<u64>,
    pub first_write_at: Option<Instant>,
    pub on_event: Box<dyn Fn(Event) + Send + Sync>,
    /// What is written next, kept for its room.
    pub data: Vec<u8>,
    limits: Limits,
    is_loaded: bool,
}

enum Work {
    /// What to write next; empty if it is only time to seal or to reserve numbers.
    Group(Group),
    End,
}

impl LogWriter {
    pub fn new(config: Config, shared: Arc<Shared>) -> LogWriter {
        LogWriter {
            shared,
            folder: config.folder,
            term: config.term,
            number: config.number,
            files: config.files,
            open: None,
            previous_length: config.previous_length,
            unannounced: None,
            since_state: None,
            first_write_at: None,
            on_event: config.on_event,
            data: Vec::new(),
            limits: config.limits,
            is_loaded: false,
        }
    }

    /// Begins a segment. A disk that is full is tried again by the thread; any other failure is returned.
    pub fn start(&mut self) -> Result<(), String> {
        if let Err(error) = self.begin_segment() {
            if !is_full(&error) {
                return Err(self.refusal(&error));
            }
            self.fail(&error);
        }
        self.shared.sequencer.beat();
        Ok(())
    }

    /// The whole life of the log's thread.
    pub fn run(mut self, is_written_out: &AtomicBool) {
        match catch_unwind(AssertUnwindSafe(|| self.write_all())) {
            Ok(is_all) => is_written_out.store(is_all, Relaxed),
            Err(panic) => {
                // Nothing will be synced any more, so nothing may be accepted either.
                let reason = format!("the log has failed ({}): restart the server", said(&*panic));
                self.shared.sequencer.change_refusal(|state| {
                    state.has_failed = true;
                    state.failure = Some(reason.clone());
                });
                (self.on_event)(Event::Failed(reason));
            }
        }
    }

    /// Returns whether all that was accepted is synced.
    fn write_all(&mut self) -> bool {
        if self.open.is_none() && !self.retry(Self::begin_segment) {
            return false;
        }
        loop {
            let Work::Group(group) = self.next_work() else {
                return true;
            };
            let is_nothing = group.is_empty() && !self.needs_numbers();
            if !is_nothing && !self.retry(|writer| writer.write_group(&group)) {
                return false;
            }
            self.shared.sequencer.release(group);
            if self.should_seal() && !self.retry(Self::begin_segment) {
                return false;
            }
        }
    }

    fn needs_numbers(&self) -> bool {
        let sequencer = &self.shared.sequencer;
        sequencer.needs_numbers(&sequencer.state.lock())
    }

    fn next_work(&mut self) -> Work {
        let sequencer = &self.shared.sequencer;
        let mut state = sequencer.state.lock();
        sequencer.beat();
        while state.groups.is_empty() && !sequencer.needs_numbers(&state) {
            if state.closing {
                return Work::End;
            }
            let pause = self.time_until_seal();
            if state.seal_wanted || pause == Some(Duration::ZERO) {
                break;
            }
            state.is_asleep = true;
            sequencer
                .work
                .wait_for(&mut state, pause.unwrap_or(IDLE).min(IDLE));
            state.is_asleep = false;
            sequencer.beat();
        }
        if self.is_loaded && state.waiting_bytes < self.limits.group_bytes {
            let is_open = |state: &mut SequencerState| !state.closing;
            sequencer
                .work
                .wait_while_for(&mut state, is_open, self.limits.gather_time);
        }
        let group = state.groups.pop_front().unwrap_or_default();
        self.is_loaded = group.messages >= LOADED;
        Work::Group(group)
    }

    fn write_group(&mut self, group: &Group) -> io::Result<()> {
        if self.open.is_none() {
            self.begin_segment()?;
        }
        let reserved_until = self.shared.sequencer.reservation();
        let Some(open) = &mut self.open else {
            return Ok(());
        }; // there is one
        self.data.clear();
        format::mark(
            &mut self.data,
            open.durable,
            reserved_until,
            open.header.nonce,
        );
        group.encode(&mut open.schemas, &mut self.data);
        let length = self.data.len() as u64;
        open.file.write(&self.data)?;
        open.file.sync()?;
        open.durable += length;
        self.shared.parts.grow(open.durable);
        self.since_state = self.since_state.map(|bytes| bytes + length);
        self.data.shrink_to(2 * self.limits.group_bytes as usize);
        self.note(group, reserved_until);
        Ok(())
    }

    /// A group is synced.
    fn note(&mut self, group: &Group, reserved_until: u64) {
        let Some(open) = &mut self.open else { return };
        let mut state = self.shared.state.lock();
        let before = state.last_lsn;
        state.uptime_us = self.shared.uptime_us();
        for pending in &group.pending {
            match pending {
                Pending::Collection(collection) => {
                    state.declared(&collection.name, &collection.encoded)
                }
                Pending::Writes(writes) => {
                    state.last_lsn = writes.last_lsn();
                    if let Some(producer) = &writes.producer {
                        state.wrote(producer, writes.last_seq(), writes.last_lsn());
                    }
                    open.wrote(
                        &writes.schema.collection,
                        writes.last_lsn(),
                        writes.accepted_us,
                    );
                }
            }
        }
        state.reserved_until = reserved_until;
        let last_lsn = state.last_lsn;
        drop(state);
        self.shared.sequencer.reserved(reserved_until);
        self.shared
            .first_accepted_us
            .store(open.first_accepted_us.unwrap_or(0), Relaxed);
        if !group.is_empty() {
            self.first_write_at.get_or_insert_with(Instant::now);
        }
        if last_lsn > before {
            self.shared.synced(last_lsn);
        }
    }

    /// None while there is nothing to seal.
    fn time_until_seal(&self) -> Option<Duration> {
        let left = self
            .limits
            .segment_time
            .saturating_sub(self.first_write_at?.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        // Every segment before the open one is uploaded, so somebody waits for it.
        let may_seal = self.shared.uploaded_segment.load(Relaxed) + 1 >= self.number;
        Some(if may_seal {
            Duration::ZERO
        } else {
            self.limits.segment_time.max(Duration::from_millis(1))
        })
    }

    fn should_seal(&self) -> bool {
        let mut state = self.shared.sequencer.state.lock();
        if self.first_write_at.is_none() {
            state.seal_wanted &= !state.groups.is_empty();
            return false;
        }
        state.seal_wanted
            || self
                .open
                .as_ref()
                .is_some_and(|open| open.durable >= self.limits.segment_bytes)
            || self.time_until_seal() == Some(Duration::ZERO)
    }

    /// Until it succeeds; false if the log is closed before that.
    fn retry(&mut self, mut action: impl FnMut(&mut LogWriter) -> io::Result<()>) -> bool {
        let mut pause = FIRST_RETRY;
        loop {
            self.shared.sequencer.beat();
            let Err(error) = action(self) else {
                self.heal();
                return true;
            };
            self.fail(&error);
            self.give_up_segment();
            let sequencer = &self.shared.sequencer;
            let mut state = sequencer.state.lock();
            sequencer
                .work
                .wait_while_for(&mut state, |state| !state.closing, pause);
            if state.closing {
                return false;
            }
            pause = (2 * pause).min(LAST_RETRY);
        }
    }

    fn fail(&self, error: &io::Error) {
        self.set_failure(Some(self.refusal(error)));
    }

    fn heal(&self) {
        self.set_failure(None);
    }

    fn set_failure(&self, reason: Option<String>) {
        if self.shared.sequencer.state.lock().failure == reason {
            return;
        }
        self.shared
            .sequencer
            .change_refusal(|state| state.failure = reason.clone());
        (self.on_event)(Event::Failing(reason));
    }

    fn refusal(&self, error: &io::Error) -> String {
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or(&text);
        format!(
            "the disk of {} refuses writes ({reason}): free space or mend it",
            self.folder.display()
        )
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
}
