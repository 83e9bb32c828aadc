//! Decides what is announced to the client of one stream, and when. The wire format is not known here.

use std::time::Instant;

use crate::in_flight::InFlight;
use crate::producers::Run;
use crate::tier::{Tier, Tiers};
use crate::watermarks::{DurableRange, Watermark, Watermarks};

/// How many writes of a tier are announced at once; a slow reader holds at most a few such messages of ours.
pub const MOST_ROWS: u64 = 16_384;

/// The announcements of one message to the client.
#[derive(Debug, Default)]
pub struct Announcement {
    /// For each tier, lowest first, at which there is something: the writes that reached it.
    pub notices: Vec<(Tier, Vec<DurableRange>)>,
    /// Which sequence numbers got which LSNs.
    pub assigned: Vec<Run>,
    /// When the oldest write got its LSN of those whose first acknowledgement this may be.
    pub since: Option<Instant>,
    /// Whether there may be more: call again before waiting.
    pub more: bool,
    /// How many acknowledgements these are.
    pub rows: u64,
}

impl Announcement {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.assigned.is_empty()
    }
}

/// The announcements that wait to be sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    levels: Tiers,
    by_watermark: bool,
    in_flight: InFlight,
    assigned: Vec<Run>,
    unannounced_since: Option<Instant>,
}

impl Outbox {
    pub fn new(levels: Tiers, by_watermark: bool) -> Outbox {
        Outbox {
            levels,
            by_watermark,
            in_flight: InFlight::new(levels),
            assigned: Vec::new(),
            unannounced_since: None,
        }
    }

    pub fn wrote(&mut self, run: Run) {
        self.in_flight.add(run.lsn, run.count);
        if run.seq > 0 && !self.assigned.last_mut().is_some_and(|last| last.join(&run)) {
            self.assigned.push(run);
        }
        self.unannounced_since.get_or_insert_with(Instant::now);
    }

    /// Announces duplicates again, under the LSNs that they got the first time. `reaching` are the parts that were not
    /// given up since.
    pub fn wrote_before(&mut self, runs: &[Run], reaching: &[Run]) {
        for run in reaching.iter().filter(|run| run.lsn > 0) {
            self.in_flight.add(run.lsn, run.count);
        }
        self.assigned.extend_from_slice(runs);
    }

    /// Announces what an earlier stream of the producer wrote, at every tier but the first.
    pub fn resume(&mut self, runs: &[Run]) {
        for run in runs {
            self.in_flight.add(run.lsn, run.count);
        }
        self.in_flight.skip(Tier::Memory);
    }

    /// The tiers at which something is to be announced.
    pub fn wanted(&self) -> Tiers {
        self.in_flight.wanted()
    }

    pub fn pending(&self, tier: Tier) -> u64 {
        self.in_flight.pending(tier)
    }

    /// Returns how much waits to be announced; it grows if the client does not read.
    pub fn ranges(&self) -> usize {
        self.in_flight.ranges().max(self.assigned.len())
    }

    pub fn take(
        &mut self,
        watermarks: &Watermarks,
        committed: &Watermark,
        now_us: u64,
    ) -> Announcement {
        let mut announcement = Announcement {
            assigned: std::mem::take(&mut self.assigned),
            since: self.unannounced_since.take(),
            ..Announcement::default()
        };
        for tier in self.levels.iter() {
            let watermark = match tier {
                Tier::Memory => None,
                Tier::LocalDisk => Some(watermarks.local_disk()),
                Tier::ObjectStorage => Some(watermarks.object_storage()),
                Tier::Committed => Some(committed),
            };
            let mut reached = Vec::new();
            let mut taken = self.take_tier(tier, watermark, now_us, &mut reached);
            if self.by_watermark {
                while taken > 0 {
                    keep_highest(&mut reached);
                    taken = self.take_tier(tier, watermark, now_us, &mut reached);
                }
                taken = reached.len() as u64;
            }
            announcement.rows += taken;
            announcement.more |= taken >= MOST_ROWS;
            if !reached.is_empty() {
                announcement.notices.push((tier, reached));
            }
        }
        announcement
    }

    /// Appends what can be announced now at a tier, at most as much as one message may have.
    fn take_tier(
        &mut self,
        tier: Tier,
        watermark: Option<&Watermark>,
        now_us: u64,
        reached: &mut Vec<DurableRange>,
    ) -> u64 {
        let reach = watermark.map_or(u64::MAX, Watermark::lsn);
        self.in_flight
            .take(tier, reach, MOST_ROWS, |first, last| match watermark {
                Some(watermark) => watermark.when(first, last, reached),
                None => reached.push(DurableRange {
                    first,
                    last,
                    at_us: now_us,
                    snapshot_id: None,
                }),
            })
    }
}

/// Keeps a row for each snapshot that stands for all below it. What a producer sent again comes late, and is low.
fn keep_highest(reached: &mut Vec<DurableRange>) {
    let mut highest: Vec<DurableRange> = Vec::new();
    reached.sort_by_key(|range| range.last);
    for range in reached.drain(..) {
        let row = DurableRange {
            first: range.last,
            ..range
        };
        match highest
            .iter_mut()
            .find(|kept| kept.snapshot_id == range.snapshot_id)
        {
            Some(kept) => *kept = row,
            None => highest.push(row),
        }
    }
    *reached = highest;
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
