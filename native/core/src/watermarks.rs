//! How far everything has come: a watermark for each tier, and which streams are woken when one advances.

use std::collections::{HashMap, VecDeque};

use crate::clock::Clock;
use crate::signal::Signal;
use crate::state::Committed;
use crate::sync::{
    Arc, AtomicU8, AtomicU64, Mutex,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::tier::{Tier, Tiers};

// Enough to tell when each write of the last seconds got there; older ones get the time of the oldest kept.
const MOST_ADVANCES: usize = 4096;

/// Flag of a stream's signal: there may be something to announce.
pub(crate) const NEWS: u8 = 1;
/// Flag of a stream's signal: there is something to announce that does not wait for more.
pub(crate) const HURRY: u8 = 2;

/// A run of LSNs that reached a tier at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableRange {
    pub first: u64,
    pub last: u64,
    pub at_us: u64,
    pub snapshot_id: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Advance {
    lsn: u64,
    at_us: u64,
    snapshot_id: Option<i64>,
}

/// Everything at or below `lsn` is at the tier.
#[derive(Debug)]
pub struct Watermark {
    lsn: AtomicU64,
    advances: Mutex<VecDeque<Advance>>, // at least one
}

impl Watermark {
    pub(crate) fn new(lsn: u64, snapshot_id: Option<i64>, at_us: u64) -> Watermark {
        let first = Advance {
            lsn,
            at_us,
            snapshot_id,
        };
        Watermark {
            lsn: AtomicU64::new(lsn),
            advances: Mutex::new(VecDeque::from([first])),
        }
    }

    /// The last LSN that is at the tier.
    pub fn lsn(&self) -> u64 {
        self.lsn.load(Acquire)
    }

    /// The snapshot that holds it; None for other tiers than COMMITTED.
    pub fn snapshot_id(&self) -> Option<i64> {
        self.advances
            .lock()
            .back()
            .and_then(|last| last.snapshot_id)
    }

    /// Returns whether that is news.
    pub(crate) fn advance(&self, lsn: u64, snapshot_id: Option<i64>, at_us: u64) -> bool {
        let mut advances = self.advances.lock();
        if advances.back().is_some_and(|last| lsn <= last.lsn) {
            return false;
        }
        if advances.len() >= MOST_ADVANCES {
            advances.drain(..MOST_ADVANCES / 2);
        }
        advances.push_back(Advance {
            lsn,
            at_us,
            snapshot_id,
        });
        self.lsn.store(lsn, Release);
        true
    }

    /// Appends when the writes of a range that is at or below the watermark got there.
    pub(crate) fn when(&self, mut first: u64, last: u64, into: &mut Vec<DurableRange>) {
        let advances = self.advances.lock();
        let mut position = advances.partition_point(|advance| advance.lsn < first);
        while first <= last {
            let Some(&Advance {
                lsn,
                at_us,
                snapshot_id,
            }) = advances.get(position.min(advances.len() - 1))
            else {
                return; // there is always one
            };
            let until = if lsn >= first { last.min(lsn) } else { last };
            into.push(DurableRange {
                first,
                last: until,
                at_us,
                snapshot_id,
            });
            first = until + 1;
            position += 1;
        }
    }
}

/// The tiers for which a stream waits, and the signal that wakes it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub committed: Arc<Watermark>,
    /// The tiers at which something of the stream is to be announced.
    wanted: AtomicU8,
    pub signal: Signal,
}

impl Listener {
    pub fn new(committed: Arc<Watermark>) -> Listener {
        Listener {
            committed,
            wanted: AtomicU8::new(0),
            signal: Signal::new(),
        }
    }

    /// Is called before the watermarks are looked at: an advance after that look finds these tiers, and wakes.
    pub fn want(&self, tiers: Tiers) {
        self.wanted.store(tiers.bits(), Relaxed);
        fence(SeqCst); // with the one in `Watermarks::tell`: one of the two sees what the other has stored
    }

    fn tell(&self, tier: Tier) {
        if Tiers::from_bits(self.wanted.load(Relaxed)).contains(tier) {
            self.signal.raise(NEWS);
        }
    }
}

/// The watermarks of a server. MEMORY is not here: a write is in memory when it has its LSN.
#[derive(Debug)]
pub struct Watermarks {
    clock: std::sync::Arc<dyn Clock>,
    local_disk: Watermark,
    object_storage: Watermark,
    committed: Mutex<HashMap<std::sync::Arc<str>, Arc<Watermark>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

impl Watermarks {
    pub(crate) fn new(
        clock: std::sync::Arc<dyn Clock>,
        durable: u64,
        uploaded: u64,
        committed: &HashMap<std::sync::Arc<str>, Committed>,
    ) -> Watermarks {
        let now = clock.wall_us();
        let committed = committed
            .iter()
            .map(|(name, at)| {
                (
                    name.clone(),
                    Arc::new(Watermark::new(at.lsn, at.snapshot_id, now)),
                )
            })
            .collect();
        Watermarks {
            local_disk: Watermark::new(durable, None, now),
            object_storage: Watermark::new(uploaded, None, now),
            committed: Mutex::new(committed),
            listeners: Mutex::new(Vec::new()),
            clock,
        }
    }

    /// The watermark of LOCAL_DISK.
    pub fn local_disk(&self) -> &Watermark {
        &self.local_disk
    }

    /// The watermark of OBJECT_STORAGE.
    pub fn object_storage(&self) -> &Watermark {
        &self.object_storage
    }

    /// How far the table of a collection is.
    pub fn committed(&self, collection: &str) -> Arc<Watermark> {
        let mut committed = self.committed.lock();
        if let Some(known) = committed.get(collection) {
            return known.clone();
        }
        let new = Arc::new(Watermark::new(0, None, self.clock.wall_us()));
        committed.insert(collection.into(), new.clone());
        new
    }

    /// Only after the call that makes it true has returned.
    pub(crate) fn advance_local_disk(&self, lsn: u64) -> bool {
        self.local_disk.advance(lsn, None, self.clock.wall_us())
            && self.tell(Tier::LocalDisk, |_| true)
    }

    /// Only after the put has returned.
    pub(crate) fn advance_object_storage(&self, lsn: u64) -> bool {
        self.object_storage.advance(lsn, None, self.clock.wall_us())
            && self.tell(Tier::ObjectStorage, |_| true)
    }

    /// Only after the commit has returned.
    pub(crate) fn advance_committed(
        &self,
        collection: &str,
        lsn: u64,
        snapshot_id: Option<i64>,
    ) -> bool {
        let watermark = self.committed(collection);
        watermark.advance(lsn, snapshot_id, self.clock.wall_us())
            && self.tell(Tier::Committed, |listener| {
                Arc::ptr_eq(&listener.committed, &watermark)
            })
    }

    pub(crate) fn listen(&self, listener: &Arc<Listener>) {
        self.listeners.lock().push(listener.clone());
    }

    pub(crate) fn forget(&self, listener: &Arc<Listener>) {
        self.listeners
            .lock()
            .retain(|other| !Arc::ptr_eq(other, listener));
    }

    fn tell(&self, tier: Tier, concerns: impl Fn(&Listener) -> bool) -> bool {
        fence(SeqCst);
        for listener in self
            .listeners
            .lock()
            .iter()
            .filter(|listener| concerns(listener))
        {
            listener.tell(tier);
        }
        true
    }
}

#[cfg(test)]
#[path = "watermarks_tests.rs"]
mod tests;
