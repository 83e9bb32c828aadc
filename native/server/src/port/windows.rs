//! How much a connection may send before it is read. Every connection may send a little, for which room is set aside.
//! Windows grow for those who fill them, within one budget for the server.
//!
//! HTTP/2 cannot take back what a connection was allowed to send; it can only not allow it again once it is used up.
//! So the window of a connection that became quiet is made smaller, and its room is given back when as much was sent
//! and read as it became smaller by. Windows of streams stay as large as they were: they take no room of their own,
//! and h2 sends no update for a stream of which nothing is left after its window became smaller, so it would wait for
//! ever.
//!
//! What comes for a stream that waits is parked: the window of its connection is as much larger, if the budget has
//! room for it, so that other streams of the connection may send as much as before.

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
/// The window of a connection follows what is parked in it in steps of this many bytes.
const STEP: usize = 16 << 10;

/// The windows of one connection.
pub struct Windows {
    quiet: Duration,
    /// Of a stream, the largest that it ever was.
    stream: AtomicU32,
    connection: AtomicU32,
    kept: AtomicUsize,
    grown: Mutex<Grown>,
    changed: Notify,
}

/// What the connection has beyond what is set aside for it.
struct Grown {
    /// How often the window is doubled,
    doubled: usize,
    /// and how often it stays so when nothing is to be sent.
    at_rest: usize,
    /// Bytes that have come for streams that wait, so that nobody reads them.
    parked: usize,
    /// For what the connection may send. It shrinks after the window did, by what is sent and read meanwhile,
    room: Room,
    /// from when the connection knows of its window.
    is_told: bool,
    /// Received since the last look.
    bytes: u64,
    since: Instant,
}

impl Grown {
    fn window(&self) -> usize {
        (SMALLEST as usize) << self.doubled
    }

    /// What the connection has to have room for.
    fn wanted(&self) -> usize {
        self.window().max(self.parked.next_multiple_of(STEP)) - SMALLEST as usize
    }
}

impl Windows {
    /// `budget` is what windows may have beyond what is set aside for each connection, and who does not fill them
    /// in the time of `quiet` does not need large ones.
    pub fn open(budget: &Budget, quiet: Duration) -> Arc<Self> {
        let mut grown = Grown {
            doubled: 0,
            at_rest: 0,
            parked: 0,
            room: budget.nothing(),
            is_told: true,
            bytes: 0,
            since: Instant::now(),
        };
        // The other half is for those who fill their windows.
        while grown.doubled < DOUBLED_AT_FIRST
            && budget.free_bytes() > budget.bytes() / 2
            && grown.room.grow(grown.window())
        {
            grown.doubled += 1;
        }
        grown.at_rest = grown.doubled;
        let window = grown.window() as u32;
        Arc::new(Self {
            quiet,
            stream: AtomicU32::new(window),
            connection: AtomicU32::new(window + BESIDE),
            kept: AtomicUsize::new(0),
            grown: Mutex::new(grown),
            changed: Notify::new(),
        })
    }

    pub fn of_stream(&self) -> u32 {
        self.stream.load(Relaxed)
    }

    pub fn of_connection(&self) -> u32 {
        self.connection.load(Relaxed)
    }

    /// Notes what was received.
    pub fn note(&self, bytes: usize) {
        self.note_at(bytes, Instant::now());
    }

    fn note_at(&self, bytes: usize, now: Instant) {
        let mut grown = self.grown.lock();
        grown.bytes += bytes as u64;
        let took = now.saturating_duration_since(grown.since);
        let is_filled = grown.bytes >= 2 * grown.window() as u64;
        if !is_filled && took <= self.quiet {
            return;
        }
        grown.bytes = 0;
        grown.since = now;
        let before = grown.doubled;
        if !is_filled || took > self.quiet {
            grown.doubled = grown.at_rest;
        } else if took < BUSY && before < MOST_DOUBLED {
            grown.doubled += 1;
        }
        if self.fit(&mut grown) {
            self.stream.fetch_max(grown.window() as u32, Relaxed);
        } else {
            grown.doubled = before;
        }
    }

    /// Notes what has come for a stream that waits: so much more others of the connection may send, if the budget
    /// has room for it.
    fn park(&self, bytes: usize) {
        let mut grown = self.grown.lock();
        grown.parked += bytes;
        self.fit(&mut grown);
    }

    fn unpark(&self, bytes: usize) {
        let mut grown = self.grown.lock();
        grown.parked -= bytes;
        self.fit(&mut grown);
    }

    /// Makes the window of the connection what it has to be; false if there is no room for it.
    fn fit(&self, grown: &mut Grown) -> bool {
        let wanted = grown.wanted();
        let missing = wanted.saturating_sub(grown.room.bytes());
        if missing > 0 && !grown.room.grow(missing) {
            return false;
        }
        let window = SMALLEST + wanted as u32 + BESIDE;
        if self.connection.swap(window, Relaxed) != window {
            grown.is_told = false;
            self.changed.notify_one();
        }
        true
    }

    /// Waits until the windows are others than they were.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes that the connection gives out no more than this window from now on.
    pub fn told(&self, window: u32) {
        let mut grown = self.grown.lock();
        grown.is_told = self.of_connection() == window;
    }

    /// Notes what was read, and may be sent again unless the window became smaller.
    pub fn released(&self, bytes: usize) {
        let mut grown = self.grown.lock();
        let unused = grown.room.bytes().saturating_sub(grown.wanted());
        if grown.is_told && unused > 0 {
            grown.room.shrink(bytes.min(unused));
        }
    }
}

/// What has come for one stream while it waits.
pub struct Parked {
    windows: Arc<Windows>,
    bytes: usize,
}

impl Parked {
    pub fn new(windows: &Arc<Windows>) -> Self {
        Self {
            windows: Arc::clone(windows),
            bytes: 0,
        }
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.windows.park(bytes);
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.windows.unpark(self.bytes);
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

    pub fn windows(&self) -> &Arc<Windows> {
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
        windows.told(LARGEST + BESIDE);
        windows.released(LARGEST as usize);
        assert_eq!(budget.free_bytes(), grown);
        windows.told(FIRST + BESIDE);
        windows.released(1000 << 10);
        assert_eq!(budget.free_bytes(), grown + (1000 << 10));
        windows.released(LARGEST as usize);
        assert_eq!(budget.free_bytes(), at_first);
        // and who is busy again grows again.
        fill(&windows, later);
        assert_eq!(windows.of_connection(), LARGEST + BESIDE);
        assert_eq!(budget.free_bytes(), grown);
    }

    #[test]
    fn what_is_parked_leaves_room_beside_it_while_the_budget_has_some() {
        let budget = Arc::new(Budget::new(1 << 20));
        let windows = Windows::open(&budget, QUIET);
        let at_first = budget.free_bytes();
        let (mut one, mut other) = (Parked::new(&windows), Parked::new(&windows));
        one.add(FIRST as usize);
        assert_eq!(
            (windows.of_connection(), budget.free_bytes()),
            (FIRST + BESIDE, at_first)
        );
        other.add(1);
        assert_eq!(windows.of_connection(), FIRST + STEP as u32 + BESIDE);
        assert_eq!(budget.free_bytes(), at_first - STEP);
        other.add(1 << 20);
        assert_eq!(windows.of_connection(), FIRST + STEP as u32 + BESIDE);
        drop(other);
        assert_eq!(windows.of_connection(), FIRST + BESIDE);
        windows.told(FIRST + BESIDE);
        windows.released(1 << 20);
        assert_eq!(budget.free_bytes(), at_first);
        drop(one);
        assert_eq!(windows.of_connection(), FIRST + BESIDE);
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
