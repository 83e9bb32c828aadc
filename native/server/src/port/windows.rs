//! How much a connection may send before it is read. Every connection may send a little, for which room is set aside.
//! Windows grow for those who fill them, within one budget for the server.
//!
//! HTTP/2 cannot take back what a connection was allowed to send; it can only not allow it again once it is used up.
//! So the window of a connection that became quiet is made smaller, and its room is given back when as much was sent
//! and read as it became smaller by. Windows of streams stay as large as they were: they take no room of their own,
//! and h2 sends no update for a stream of which nothing is left after its window became smaller, so it would wait for
//! ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::budget::{Budget, Room};

/// Of a stream, as HTTP/2 has it from the start; each larger window is twice the one before.
const SMALLEST: u32 = 64 << 10;
/// How often the window of a new stream is doubled while half of the budget is free, which makes 256 KiB.
const DOUBLED_AT_FIRST: usize = 2;
/// To 2 MiB.
const MOST_DOUBLED: usize = 5;
/// A connection may have more on its way than one stream, so that calls go on beside one that is not read.
const BESIDE: u32 = 32 << 10;
/// Of messages that are not whole, this much may stay in the windows of a connection, all its streams together:
/// what is beside a stream that is not read must never be full of halves that nothing can complete.
const MOST_KEPT: usize = BESIDE as usize / 2;
/// Who fills two windows in this time is held up by them.
const BUSY: Duration = Duration::from_millis(200);

/// What is set aside for each connection.
pub const SET_ASIDE: usize = (SMALLEST + BESIDE) as usize;

/// The windows of one connection.
pub struct Windows {
    budget: Arc<Budget>,
    quiet: Duration,
    /// Of a stream, if nothing else of the connection is on its way,
    stream: AtomicU32,
    /// and the largest that it ever was.
    largest: AtomicU32,
    kept: AtomicUsize,
    grown: Mutex<Grown>,
    changed: Notify,
}

/// What the connection has beyond what is set aside for it.
struct Grown {
    /// How often the windows are doubled, when nothing is to be sent.
    at_rest: usize,
    /// For each time that they were doubled.
    rooms: Vec<Room>,
    /// Received since the last look.
    bytes: u64,
    since: Instant,
    returned: Option<Returned>,
}

/// Rooms of windows that were made smaller.
struct Returned {
    _rooms: Vec<Room>,
    /// The connection still may send so much more than its windows say,
    bytes: usize,
    /// from when they were told to be smaller.
    is_told: bool,
}

impl Windows {
    /// `budget` is what windows may have beyond what is set aside for each connection, and who does not fill them
    /// in the time of `quiet` does not need large ones.
    pub fn open(budget: &Arc<Budget>, quiet: Duration) -> Arc<Self> {
        let windows = Self {
            budget: Arc::clone(budget),
            quiet,
            stream: AtomicU32::new(SMALLEST),
            largest: AtomicU32::new(SMALLEST),
            kept: AtomicUsize::new(0),
            grown: Mutex::new(Grown {
                at_rest: 0,
                rooms: Vec::new(),
                bytes: 0,
                since: Instant::now(),
                returned: None,
            }),
            changed: Notify::new(),
        };
        {
            // The other half is for those who fill their windows.
            let mut grown = windows.grown.lock();
            while grown.rooms.len() < DOUBLED_AT_FIRST
                && budget.free_bytes() > budget.bytes() / 2
                && windows.double(&mut grown)
            {}
            grown.at_rest = grown.rooms.len();
        }
        Arc::new(windows)
    }

    pub fn of_stream(&self) -> u32 {
        self.largest.load(Relaxed)
    }

    pub fn of_connection(&self) -> u32 {
        self.stream.load(Relaxed) + BESIDE
    }

    /// Notes what was received.
    pub fn note(&self, bytes: usize) {
        self.note_at(bytes, Instant::now());
    }

    fn note_at(&self, bytes: usize, now: Instant) {
        let mut grown = self.grown.lock();
        grown.bytes += bytes as u64;
        let took = now.saturating_duration_since(grown.since);
        let is_filled = grown.bytes >= 2 * u64::from(self.stream.load(Relaxed));
        if !is_filled && took <= self.quiet {
            return;
        }
        grown.bytes = 0;
        grown.since = now;
        if grown.returned.is_some() {
            return;
        }
        let is_changed = if !is_filled || took > self.quiet {
            self.shrink(&mut grown)
        } else {
            took < BUSY && grown.rooms.len() < MOST_DOUBLED && self.double(&mut grown)
        };
        if is_changed {
            self.changed.notify_one();
        }
    }

    fn double(&self, grown: &mut Grown) -> bool {
        let window = self.stream.load(Relaxed);
        let Some(room) = self.budget.try_reserve(window as usize) else {
            return false;
        };
        grown.rooms.push(room);
        self.stream.store(window * 2, Relaxed);
        self.largest.fetch_max(window * 2, Relaxed);
        true
    }

    fn shrink(&self, grown: &mut Grown) -> bool {
        if grown.rooms.len() <= grown.at_rest {
            return false;
        }
        let rooms = grown.rooms.split_off(grown.at_rest);
        let bytes = rooms.iter().map(Room::bytes).sum();
        self.stream.store(SMALLEST << grown.at_rest, Relaxed);
        grown.returned = Some(Returned {
            _rooms: rooms,
            bytes,
            is_told: false,
        });
        true
    }

    /// Waits until the windows are others than they were.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes that the connection gives out no more than its windows say from now on.
    pub fn told(&self) {
        if let Some(returned) = &mut self.grown.lock().returned {
            returned.is_told = true;
        }
    }

    /// Notes what was read, and may be sent again unless windows became smaller.
    pub fn released(&self, bytes: usize) {
        let mut grown = self.grown.lock();
        if let Some(returned) = &mut grown.returned
            && returned.is_told
        {
            returned.bytes = returned.bytes.saturating_sub(bytes);
            if returned.bytes == 0 {
                grown.returned = None;
            }
        }
    }
}

/// What a stream keeps of a message in the windows of its connection.
pub struct Kept {
    windows: Arc<Windows>,
    bytes: usize,
}

impl Kept {
    pub fn new(windows: Arc<Windows>) -> Self {
        Self { windows, bytes: 0 }
    }

    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Keeps this much from now on, if all streams of the connection do not keep too much then.
    pub fn set(&mut self, bytes: usize) -> bool {
        let with = |all: usize| {
            let all = all - self.bytes + bytes;
            (bytes <= self.bytes || all <= MOST_KEPT).then_some(all)
        };
        let is_kept = self.windows.kept.fetch_update(Relaxed, Relaxed, with);
        if is_kept.is_ok() {
            self.bytes = bytes;
        }
        is_kept.is_ok()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = SMALLEST << DOUBLED_AT_FIRST;
    const QUIET: Duration = Duration::from_secs(10);
    const LARGEST: u32 = SMALLEST << MOST_DOUBLED;

    fn fill(windows: &Windows, now: Instant) {
        for _ in 0..10 {
            windows.note_at(2 * LARGEST as usize, now);
        }
    }

    #[test]
    fn windows_grow_for_who_fills_them_and_half_is_left_to_these() {
        let (total, now) = (8 << 20, Instant::now());
        let budget = Arc::new(Budget::new(total));
        let windows = Windows::open(&budget, QUIET);
        assert_eq!(
            (windows.of_stream(), windows.of_connection()),
            (FIRST, FIRST + BESIDE)
        );
        fill(&windows, now);
        assert_eq!(windows.of_stream(), LARGEST);
        assert_eq!(budget.free_bytes(), total - (LARGEST - SMALLEST) as usize);
        let others: Vec<_> = (0..1000).map(|_| Windows::open(&budget, QUIET)).collect();
        assert_eq!(others[0].of_stream(), FIRST);
        assert_eq!(others[999].of_stream(), SMALLEST);
        assert_eq!(budget.free_bytes(), total / 2);
        fill(&others[999], now);
        assert_eq!(others[999].of_stream(), LARGEST);
        drop((others, windows));
        assert_eq!(budget.free_bytes(), total);
        let slow = Windows::open(&budget, QUIET);
        slow.note_at(2 * LARGEST as usize, now + 2 * BUSY);
        assert_eq!(slow.of_stream(), FIRST);
    }

    #[test]
    fn who_became_quiet_gives_back_what_is_not_filled_once_it_is_used_up() {
        let (total, now) = (8 << 20, Instant::now());
        let budget = Arc::new(Budget::new(total));
        let windows = Windows::open(&budget, QUIET);
        let at_first = budget.free_bytes();
        fill(&windows, now);
        let grown = budget.free_bytes();
        windows.note_at(1, now + QUIET);
        assert_eq!(windows.of_connection(), LARGEST + BESIDE);
        let later = now + 2 * QUIET;
        windows.note_at(1, later);
        assert_eq!(windows.of_connection(), FIRST + BESIDE);
        // What is read before the connection knows of it can be sent again,
        windows.released(LARGEST as usize);
        windows.told();
        windows.released((LARGEST - FIRST) as usize - 1);
        assert_eq!(budget.free_bytes(), grown);
        windows.released(1);
        assert_eq!(budget.free_bytes(), at_first);
        // and who is busy again grows again.
        fill(&windows, later);
        assert_eq!(windows.of_connection(), LARGEST + BESIDE);
        assert_eq!(budget.free_bytes(), grown);
    }

    #[test]
    fn streams_together_keep_less_than_is_beside_one() {
        let windows = Windows::open(&Arc::new(Budget::new(0)), QUIET);
        let (mut one, mut other) = (Kept::new(Arc::clone(&windows)), Kept::new(windows));
        assert!(one.set(MOST_KEPT));
        assert!(!other.set(1));
        assert!(one.set(MOST_KEPT - 1) && other.set(1) && !other.set(2));
        drop(one);
        assert!(other.set(MOST_KEPT));
    }
}
