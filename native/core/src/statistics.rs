//! Counts and latencies that streams keep of themselves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

const RECENT: usize = 8192;

/// The counters of one stream, or of all that have ended.
#[derive(Debug, Default)]
pub struct Counters {
    pub writes: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub duplicates: AtomicU64,
    /// Streams that ended with an error of ours.
    pub refused: AtomicU64,
    pub acks: AtomicU64,
    /// How often the stream was made to wait.
    pub throttled: AtomicU64,
    /// Streams that ended without the client having said that it is done.
    pub disconnects: AtomicU64,
}

/// The counts of one stream, or a sum of them, as they were at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub writes: u64,
    pub rows: u64,
    pub bytes: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub acks: u64,
    pub throttled: u64,
    pub disconnects: u64,
}

impl Counters {
    /// The counts of this moment.
    pub fn snapshot(&self) -> Statistics {
        Statistics {
            writes: self.writes.load(Relaxed),
            rows: self.rows.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            refused: self.refused.load(Relaxed),
            acks: self.acks.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            disconnects: self.disconnects.load(Relaxed),
        }
    }
}

impl std::ops::Add for Statistics {
    type Output = Statistics;

    fn add(self, other: Statistics) -> Statistics {
        Statistics {
            writes: self.writes + other.writes,
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            duplicates: self.duplicates + other.duplicates,
            refused: self.refused + other.refused,
            acks: self.acks + other.acks,
            throttled: self.throttled + other.throttled,
            disconnects: self.disconnects + other.disconnects,
        }
    }
}

/// The latest latencies, of all streams.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<VecDeque<f32>>);

impl Latencies {
    pub fn add(&self, took: Duration) {
        let mut latest = self.0.lock();
        if latest.len() == RECENT {
            latest.pop_front();
        }
        latest.push_back(took.as_secs_f32());
    }

    /// In seconds, oldest first.
    pub fn latest(&self) -> Vec<f32> {
        self.0.lock().iter().copied().collect()
    }
}
