//! The clocks of a log: one on the wall, which may be set, and one that only runs.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time; tests use a clock that they set.
pub trait Clock: Send + Sync + Debug {
    /// The time on the wall in µs since 1970. Nothing irreversible hangs on it.
    fn wall_us(&self) -> u64;

    /// For how long this process has run, by a clock that nobody sets.
    fn running(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        SystemClock {
            began: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn wall_us(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64)
    }

    fn running(&self) -> Duration {
        self.began.elapsed()
    }
}
