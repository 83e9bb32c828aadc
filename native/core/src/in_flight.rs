//! Which writes of a stream are still to be announced, and at which tiers.

use std::collections::VecDeque;

use crate::state::Range;
use crate::tier::{Tier, Tiers};

// Room for so many ranges stays after a burst; that for more is given back, or a thousand idle streams would keep it.
const KEPT_RANGES: usize = 64;

/// A stream's LSNs as ranges, in one queue that every tier reads with a cursor of its own.
///
/// A range is 16 bytes whatever its length, and neighbours join: a million writes in flight take at most 16 MB, when
/// no two of them are neighbours, and a few bytes when the stream is the only one that writes. LSNs rise from range
/// to range, but for writes that a producer sent again, which keep their old ones.
#[derive(Debug)]
pub(crate) struct InFlight {
    tiers: Tiers,
    ranges: VecDeque<Range>,
    dropped: u64, // ranges that are no longer in the queue
    written: u64,
    cursors: [Cursor; 4],
}

#[derive(Debug, Default, Clone, Copy)]
struct Cursor {
    /// The index of a range, counted from the stream's first one.
    index: u64,
    /// The next LSN within it.
    at: u64,
    announced: u64,
}

impl InFlight {
    pub fn new(tiers: Tiers) -> InFlight {
        InFlight {
            tiers,
            ranges: VecDeque::new(),
            dropped: 0,
            written: 0,
            cursors: Default::default(),
        }
    }

    pub fn add(&mut self, first: u64, count: u64) {
        let last = first + count - 1;
        match self.ranges.back_mut() {
            Some(range) if range.1 + 1 == first => range.1 = last,
            _ => self.ranges.push_back((first, last)),
        }
        self.written += count;
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>()
    }

    /// Does not announce at this tier what has been added so far.
    pub fn skip(&mut self, tier: Tier) {
        if let Some((_, last)) = self.ranges.back() {
            let index = self.dropped + self.ranges.len() as u64 - 1;
            self.cursors[tier.index()] = Cursor {
                index,
                at: last + 1,
                announced: self.written,
            };
        }
    }

    /// Takes the ranges up to the watermark that are not yet announced at the tier, at most `most` writes, and returns
    /// how many writes those are.
    pub fn take(
        &mut self,
        tier: Tier,
        watermark: u64,
        most: u64,
        mut take: impl FnMut(u64, u64),
    ) -> u64 {
        let cursor = &mut self.cursors[tier.index()];
        let mut left = most;
        while left > 0 {
            let Some(&(begin, end)) = self.ranges.get((cursor.index - self.dropped) as usize)
            else {
                break;
            };
            let first = cursor.at.max(begin);
            let last = end.min(watermark).min(first.saturating_add(left - 1));
            if first <= last {
                let count = last - first + 1;
                take(first, last);
                left -= count;
                cursor.announced += count;
                cursor.at = last + 1;
            }
            let is_last = cursor.index - self.dropped + 1 == self.ranges.len() as u64;
            if cursor.at <= end || is_last {
                break; // below the watermark's reach, or the last range, which may still grow
            }
            cursor.index += 1;
            cursor.at = 0;
        }
        self.drop_announced();
        most - left
    }

    /// How many writes are not yet announced at a tier.
    pub fn pending(&self, tier: Tier) -> u64 {
        if self.tiers.contains(tier) {
            self.written - self.cursors[tier.index()].announced
        } else {
            0
        }
    }

    /// The tiers at which writes are not yet announced.
    pub fn wanted(&self) -> Tiers {
        self.tiers
            .iter()
            .filter(|tier| self.pending(*tier) > 0)
            .collect()
    }

    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    fn drop_announced(&mut self) {
        let done = self
            .tiers
            .iter()
            .map(|tier| self.cursors[tier.index()].index)
            .min()
            .unwrap_or(0);
        let dropped = self.ranges.len().min((done - self.dropped) as usize);
        self.ranges.drain(..dropped);
        self.dropped += dropped as u64;
        if self.ranges.capacity() > KEPT_RANGES && self.ranges.len() < self.ranges.capacity() / 4 {
            self.ranges
                .shrink_to(KEPT_RANGES.max(2 * self.ranges.len()));
        }
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
