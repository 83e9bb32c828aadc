//! Signs of life of the task that takes connections.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub struct Pulse {
    is_alive: AtomicBool,
    beat_at: Mutex<Instant>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            is_alive: AtomicBool::new(true),
            beat_at: Mutex::new(Instant::now()),
        }
    }
}

impl Pulse {
    pub fn beat(&self) {
        *self.beat_at.lock() = Instant::now();
    }

    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Relaxed)
    }

    pub fn age(&self) -> Duration {
        self.beat_at.lock().elapsed()
    }

    /// The task lives until this is dropped, also by a panic.
    pub fn alive(&self) -> Alive<'_> {
        Alive(self)
    }
}

pub struct Alive<'a>(&'a Pulse);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.is_alive.store(false, Relaxed);
    }
}
