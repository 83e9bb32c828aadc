//! Which of a client's writes were acknowledged, and how long each took.
//!
//! A stream's writes get rising LSNs in the order in which they were sent, and each tier is announced in this order
//! too, so the nth row of a tier is the nth write. A row that does not fit is an error, never counted.

use std::collections::VecDeque;

use crate::acks::{Ack, TIERS};
use crate::error::LoadError;
use crate::histogram::Histogram;

/// When a run measures, in nanoseconds from its start.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    pub fn has(&self, time: u64) -> bool {
        self.from <= time && time < self.until
    }
}

#[derive(Clone, Debug, Default)]
pub struct TierRecord {
    pub count: u64,
    /// How many acknowledgements came while the run measured.
    pub within: u64,
    pub last_at: u64,
    /// From when a write was due to its acknowledgement, of the writes that were due while the run measured.
    pub latency: Histogram,
    /// From the server's timestamp to the arrival, of the same writes.
    pub notice: Histogram,
}

/// Keeps the writes of one stream until each was announced at its last tier.
#[derive(Debug)]
pub struct Ledger {
    coalesce: u64,
    span: Span,
    expected: [bool; TIERS.len()],
    sent: u64,
    /// When each message was due, and each write's LSN, from the first write that is still kept.
    due: VecDeque<u64>,
    lsns: VecDeque<u64>,
    first_kept: u64,
    last_lsn: Option<u64>,
    pub tiers: [TierRecord; TIERS.len()],
}

impl Ledger {
    pub fn new(coalesce: usize, span: Span, expected: [bool; TIERS.len()]) -> Ledger {
        Ledger {
            coalesce: coalesce as u64,
            span,
            expected,
            sent: 0,
            due: VecDeque::new(),
            lsns: VecDeque::new(),
            first_kept: 0,
            last_lsn: None,
            tiers: Default::default(),
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many writes wait for their first acknowledgement.
    pub fn waiting(&self) -> u64 {
        self.sent - self.tiers[0].count
    }

    pub fn on_sent(&mut self, due: u64) {
        self.due.push_back(due);
        self.sent += self.coalesce;
    }

    /// Takes note of a row that arrived at `now`; `wall_us` is the same moment as microseconds since 1970.
    pub fn on_ack(&mut self, ack: Ack, now: u64, wall_us: i64) -> Result<(), LoadError> {
        let write = self.tiers[ack.tier].count;
        self.check(ack, write)?;
        let due = self.due[((write - self.first_kept) / self.coalesce) as usize];
        let record = &mut self.tiers[ack.tier];
        record.count += 1;
        record.last_at = now;
        if self.span.has(now) {
            record.within += 1;
        }
        if self.span.has(due) {
            record.latency.record(now.saturating_sub(due));
            record
                .notice
                .record(((wall_us - ack.at_us).max(0) as u64) * 1000);
        }
        Ok(())
    }

    /// Forgets the messages that were announced at every tier.
    pub fn forget_done(&mut self) {
        let counts = self.tiers.iter().zip(self.expected);
        let done = counts
            .filter(|(_, expected)| *expected)
            .map(|(record, _)| record.count)
            .min();
        while self.first_kept + self.coalesce <= done.unwrap_or(0) {
            self.due.pop_front();
            self.lsns.drain(..self.coalesce as usize);
            self.first_kept += self.coalesce;
        }
    }

    /// Refuses the end of a stream before every write was announced at every tier.
    pub fn check_complete(&self) -> Result<(), LoadError> {
        for (tier, record) in self.tiers.iter().enumerate() {
            if self.expected[tier] && record.count < self.sent {
                return Err(LoadError::Unacknowledged {
                    sent: self.sent,
                    missing: self.sent - record.count,
                    tier: TIERS[tier],
                });
            }
        }
        Ok(())
    }

    fn check(&mut self, ack: Ack, write: u64) -> Result<(), LoadError> {
        let name = TIERS[ack.tier];
        let refuse = |what: &str| {
            let lsn = ack.lsn;
            Err(LoadError::Acknowledgement(format!(
                "LSN {lsn} at {name}, {what}"
            )))
        };
        if !self.expected[ack.tier] {
            return refuse("a tier that was not asked for");
        }
        if write >= self.sent {
            return refuse("though all writes sent were acknowledged there");
        }
        if ack.tier == 0 {
            if self.last_lsn.is_some_and(|last| ack.lsn <= last) {
                return refuse("which is not above the one before");
            }
            self.lsns.push_back(ack.lsn);
            self.last_lsn = Some(ack.lsn);
            return Ok(());
        }
        match self.lsns.get((write - self.first_kept) as usize) {
            None => refuse("before it was acknowledged at MEMORY"),
            Some(lsn) if *lsn != ack.lsn => refuse(&format!("where LSN {lsn} was next")),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        from: 100,
        until: 200,
    };
    const TWO: [bool; 4] = [true, true, false, false];

    fn ack(tier: usize, lsn: u64) -> Ack {
        Ack {
            lsn,
            tier,
            at_us: 0,
        }
    }

    #[test]
    fn latency_counts_from_the_due_time_and_only_within_the_span() {
        let mut ledger = Ledger::new(1, SPAN, TWO);
        for due in [90, 110, 210] {
            ledger.on_sent(due);
        }
        for (lsn, now) in [(1, 120), (2, 150), (3, 230)] {
            ledger.on_ack(ack(0, lsn), now, 1).unwrap();
        }
        let memory = &ledger.tiers[0];
        assert_eq!((memory.count, memory.within, memory.last_at), (3, 2, 230));
        assert_eq!((memory.latency.count(), memory.latency.max()), (1, 40));
        assert_eq!((ledger.waiting(), memory.notice.max()), (0, 1000));
    }

    #[test]
    fn what_was_not_acknowledged_is_missing() {
        let mut ledger = Ledger::new(2, SPAN, TWO);
        ledger.on_sent(0);
        ledger.on_ack(ack(0, 5), 1, 0).unwrap();
        ledger.on_ack(ack(0, 6), 1, 0).unwrap();
        ledger.on_ack(ack(1, 5), 1, 0).unwrap();
        let said = ledger.check_complete().unwrap_err().to_string();
        assert!(
            said.contains("1 of its 2 writes") && said.contains("LOCAL_DISK"),
            "{said}"
        );
        ledger.on_ack(ack(1, 6), 1, 0).unwrap();
        ledger.check_complete().unwrap();
    }

    #[test]
    fn what_is_done_is_forgotten_and_the_rest_still_fits() {
        let mut ledger = Ledger::new(2, SPAN, TWO);
        for due in 0..3 {
            ledger.on_sent(due);
        }
        for lsn in [1, 2, 3, 7, 8, 9] {
            ledger.on_ack(ack(0, lsn), 10, 0).unwrap();
        }
        for lsn in [1, 2, 3] {
            ledger.on_ack(ack(1, lsn), 10, 0).unwrap();
        }
        ledger.forget_done();
        assert_eq!(
            (ledger.first_kept, ledger.due.len(), ledger.lsns.len()),
            (2, 2, 4)
        );
        for lsn in [7, 8, 9] {
            ledger.on_ack(ack(1, lsn), 10, 0).unwrap();
        }
        ledger.check_complete().unwrap();
    }

    #[test]
    fn rows_that_do_not_fit_are_errors() {
        let mut ledger = Ledger::new(1, SPAN, TWO);
        ledger.on_sent(0);
        ledger.on_sent(0);
        let mut said = |tier, lsn| {
            ledger
                .on_ack(ack(tier, lsn), 1, 0)
                .map_or_else(|error| error.to_string(), |()| String::new())
        };
        assert!(said(1, 5).contains("before it was acknowledged at MEMORY"));
        assert!(said(2, 5).contains("not asked for"));
        assert_eq!(said(0, 5), "");
        assert!(said(0, 5).contains("not above the one before"));
        assert!(said(1, 6).contains("LSN 5 was next"));
        assert_eq!(said(0, 6), "");
        assert!(said(0, 7).contains("all writes sent"));
    }
}
