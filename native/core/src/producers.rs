//! Which sequence numbers of which producers are already written, and under which LSNs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::state::{LogState, PRODUCER_SILENCE_US, ProducerName, Range};

// Runs beyond this are forgotten, oldest first: a resent write older than that is still recognised, but is answered
// without its LSN. It takes that many gaps in the LSNs of one producer before anything is committed.
const MOST_RUNS: usize = 100_000;

/// Consecutive sequence numbers with consecutive LSNs. LSN 0: no longer remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub seq: u64,
    pub lsn: u64,
    pub count: u64,
}

impl Run {
    fn last_lsn(&self) -> u64 {
        self.lsn + self.count - 1
    }

    /// Takes in what follows, if it follows in both numbers.
    pub(crate) fn join(&mut self, next: &Run) -> bool {
        let follows =
            self.lsn > 0 && self.seq + self.count == next.seq && self.lsn + self.count == next.lsn;
        if follows {
            self.count += next.count;
        }
        follows
    }

    /// The part of it that has these LSNs.
    fn within(&self, (first, last): Range) -> Option<Run> {
        let from = self.lsn.max(first);
        let until = (self.lsn + self.count).min(last.saturating_add(1));
        (self.lsn > 0 && from < until).then(|| Run {
            seq: self.seq + (from - self.lsn),
            lsn: from,
            count: until - from,
        })
    }
}

/// What a person has given up of the writes of a producer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenUpNumbers {
    /// In order. They are kept when others are forgotten: those are committed, and these are not.
    pub runs: Vec<Run>,
    /// Nobody knows which of the numbers at or below it were given up, but for those that have an LSN.
    pub unsure_until: u64,
}

/// What is known of a producer whose writes are being given up.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownNumbers {
    pub id: Arc<str>,
    pub last_seq: u64,
    /// The last number that was forgotten for want of room, whether it was committed or not.
    pub crowded_out: u64,
    pub runs: Vec<Run>,
}

/// What is remembered of one producer in one collection.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub last_seq: u64,
    /// When it was last heard of, in the log's own time.
    pub seen_us: u64,
    pub runs: Vec<Run>,
    /// Asked for what is before `runs`.
    pub given_up: GivenUpNumbers,
    /// The last number that was forgotten for want of room.
    pub crowded_out: u64,
    /// The stream that may write; a newer one takes its place.
    pub holder: Option<u64>,
    /// When its last write came, by the wall's clock: for a seeded defect.
    pub accepted_us: u64,
}

impl Numbers {
    /// Of its last write, or 0 if it has none.
    fn last_lsn(&self) -> u64 {
        self.runs.last().map_or(0, Run::last_lsn)
    }

    pub fn wrote(&mut self, new: Run, now_us: u64) {
        if new.seq <= self.last_seq {
            // It was forgotten, and began anew.
            self.runs.clear();
            self.given_up = GivenUpNumbers::default();
            self.crowded_out = 0;
        }
        self.last_seq = new.seq + new.count - 1;
        self.seen_us = now_us;
        if self.runs.last_mut().is_some_and(|last| last.join(&new)) {
            return;
        }
        self.runs.push(new);
        if self.runs.len() > MOST_RUNS {
            let forgotten = self.runs.drain(..MOST_RUNS / 2).next_back();
            self.crowded_out = forgotten.map_or(0, |run| run.seq + run.count - 1);
        }
    }

    /// Where `count` writes from `seq` on were put, all of which were written before.
    pub fn find(&self, seq: u64, count: u64) -> Vec<Run> {
        let first = self.first_seq();
        let found = find_in(&self.runs, seq, count).into_iter();
        let found = found.flat_map(|run| {
            if run.lsn == 0 && run.seq < first {
                find_in(&self.given_up.runs, run.seq, run.count)
            } else {
                vec![run]
            }
        });
        found.collect()
    }

    /// The first number that is remembered besides those that were given up.
    fn first_seq(&self) -> u64 {
        self.runs.first().map_or(u64::MAX, |run| run.seq)
    }

    /// The first of these numbers of which nobody knows whether it was committed or given up.
    pub fn unsure(&self, seq: u64, count: u64) -> Option<u64> {
        let found = self.find(seq, count).into_iter();
        let mut unknown = found.filter(|run| run.lsn == 0).map(|run| run.seq);
        unknown.find(|seq| *seq <= self.given_up.unsure_until)
    }

    /// The last number of which that may be so, or 0.
    pub fn unsure_until(&self) -> u64 {
        self.given_up
            .unsure_until
            .min(self.first_seq().saturating_sub(1))
    }

    /// Remembers what was given up. Of one who may have been forgotten since, the numbers may be of another life.
    fn give_up(&mut self, given_up: GivenUpNumbers, forgotten_lsn: u64) {
        let (kept, old): (Vec<_>, Vec<_>) = given_up
            .runs
            .into_iter()
            .partition(|run| run.lsn > forgotten_lsn);
        let unsure = old.iter().map(|run| run.seq + run.count - 1);
        let unsure = unsure.chain([given_up.unsure_until, self.given_up.unsure_until]);
        self.given_up = GivenUpNumbers {
            unsure_until: unsure.max().unwrap_or(0),
            runs: kept,
        };
    }

    /// The first of these numbers that was never written, though a later one was; None if none is known to be: those
    /// before the first run are forgotten, since they are committed.
    pub fn left_out(&self, seq: u64, count: u64) -> Option<u64> {
        let first = self.runs.first()?.seq;
        let found = self.find(seq, count);
        let gap = found
            .iter()
            .find(|run| run.lsn == 0 && run.seq + run.count > first)?;
        Some(gap.seq.max(first))
    }

    /// What is remembered of LSNs above this one.
    pub fn after(&self, lsn: u64) -> Vec<Run> {
        let first = self.first_seq();
        let given_up = self.given_up.runs.iter().map(|run| Run {
            count: run.count.min(first.saturating_sub(run.seq)),
            ..*run
        });
        let kept = given_up.chain(self.runs.iter().copied()).map(|run| {
            let skipped = lsn.saturating_add(1).saturating_sub(run.lsn).min(run.count);
            Run {
                seq: run.seq + skipped,
                lsn: run.lsn + skipped,
                count: run.count - skipped,
            }
        });
        kept.filter(|run| run.count > 0).collect()
    }

    /// Drops runs that are committed, except for the last.
    fn forget_until(&mut self, lsn: u64) {
        let all_but_last = self.runs.len().saturating_sub(1);
        let done = self.runs[..all_but_last]
            .iter()
            .take_while(|run| run.last_lsn() <= lsn)
            .count();
        self.runs.drain(..done);
    }
}

/// Where `count` writes from `seq` on were put, by runs that are in order; LSN 0 for those that are in none.
fn find_in(runs: &[Run], mut seq: u64, count: u64) -> Vec<Run> {
    let mut found = Vec::new();
    let mut at = runs.partition_point(|run| run.seq <= seq).saturating_sub(1);
    let end = seq + count;
    while seq < end {
        let run = runs.get(at).copied().unwrap_or(Run {
            seq: end,
            lsn: 0,
            count: 0,
        });
        if run.seq > seq {
            // Forgotten, or a number that the producer left out.
            let known = run.seq.min(end);
            found.push(Run {
                seq,
                lsn: 0,
                count: known - seq,
            });
            seq = known;
            continue;
        }
        let offset = seq - run.seq;
        if offset < run.count {
            let taken = (run.count - offset).min(end - seq);
            found.push(Run {
                seq,
                lsn: run.lsn + offset,
                count: taken,
            });
            seq += taken;
        }
        at += 1;
    }
    found
}

/// One producer in one collection.
#[derive(Debug)]
pub(crate) struct Producer {
    pub name: Arc<ProducerName>,
    /// Held from the look at the holder until the write has its LSN.
    pub numbers: Mutex<Numbers>,
}

/// All producers, by collection and id.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: Mutex<HashMap<Arc<ProducerName>, Arc<Producer>>>,
    forgotten_lsn: AtomicU64,
}

impl Producers {
    /// Those of a state, with the runs that the log still holds, in order.
    pub fn new(state: &LogState, runs: Vec<(ProducerName, Vec<Run>)>) -> Producers {
        let mut known = HashMap::new();
        for (name, last) in &state.producers {
            let run = Run {
                seq: last.last_seq,
                lsn: last.last_lsn,
                count: 1,
            };
            let numbers = Numbers {
                last_seq: last.last_seq,
                seen_us: last.seen_us,
                runs: vec![run],
                ..Numbers::default()
            };
            known.insert(
                name.clone(),
                Arc::new(Producer {
                    name: name.clone(),
                    numbers: Mutex::new(numbers),
                }),
            );
        }
        for (name, runs) in runs {
            // The state may have forgotten one of whom a segment is still there.
            if let Some(producer) = known.get(&name) {
                let mut numbers = producer.numbers.lock();
                let seen_us = numbers.seen_us;
                numbers.runs.clear();
                for run in runs {
                    numbers.wrote(run, seen_us);
                }
            }
        }
        Producers {
            known: Mutex::new(known),
            forgotten_lsn: AtomicU64::new(state.forgotten_lsn),
        }
    }

    /// The producer, which from now on only this holder may write as.
    pub fn take_over(&self, name: ProducerName, holder: u64, as_new: bool) -> Arc<Producer> {
        let mut known = self.known.lock(); // until the holder is set, or it could be forgotten just now
        let name = known
            .get_key_value(&name)
            .map_or_else(|| Arc::new(name), |(name, _)| name.clone());
        if as_new {
            known.remove(&name);
        }
        let producer = known.entry(name.clone()).or_insert_with(|| {
            Arc::new(Producer {
                name,
                numbers: Mutex::default(),
            })
        });
        producer.numbers.lock().holder = Some(holder);
        producer.clone()
    }

    /// Drops what is remembered of writes that are in the collection's table.
    pub fn committed(&self, collection: &str, lsn: u64) {
        for producer in self.of_collection(collection) {
            producer.numbers.lock().forget_until(lsn);
        }
    }

    /// What is remembered of the writes of a collection that have these LSNs, by all producers that it has.
    pub fn known(&self, collection: &str, ranges: &[Range]) -> Vec<KnownNumbers> {
        let known = self.of_collection(collection).into_iter().map(|producer| {
            let numbers = producer.numbers.lock();
            let runs = numbers.runs.iter();
            let runs = runs.flat_map(|run| ranges.iter().filter_map(|range| run.within(*range)));
            KnownNumbers {
                id: producer.name.id.clone(),
                last_seq: numbers.last_seq,
                crowded_out: numbers.crowded_out,
                runs: runs.collect(),
            }
        });
        known.filter(|one| one.last_seq > 0).collect()
    }

    /// Remembers what was given up of the writes of a collection. Of producers that are not named nothing was; or, if
    /// the others are unsure, nobody knows of any of their writes.
    pub fn give_up(
        &self,
        collection: &str,
        mut given_up: HashMap<String, GivenUpNumbers>,
        others_are_unsure: bool,
    ) {
        for producer in self.of_collection(collection) {
            let mut numbers = producer.numbers.lock();
            let mut theirs = given_up.remove(&*producer.name.id).unwrap_or_default();
            if others_are_unsure {
                theirs.unsure_until = numbers.last_seq;
            }
            numbers.give_up(theirs, self.forgotten_lsn());
        }
    }

    fn of_collection(&self, collection: &str) -> Vec<Arc<Producer>> {
        let known = self.known.lock();
        let theirs = known
            .values()
            .filter(|one| &*one.name.collection == collection);
        theirs.cloned().collect()
    }

    /// Forgets as the log's state does, and after it: or a restart would bring a producer back.
    pub fn forget_silent(&self, now_us: u64, is_in_log: impl Fn(&ProducerName) -> bool) {
        self.known.lock().retain(|name, producer| {
            let numbers = producer.numbers.lock();
            let is_silent = numbers.holder.is_none()
                && now_us.saturating_sub(numbers.seen_us) > PRODUCER_SILENCE_US;
            if !is_silent || is_in_log(name) {
                return true;
            }
            self.forgotten_lsn.fetch_max(numbers.last_lsn(), Relaxed);
            false
        });
    }

    /// No producer was ever forgotten whose last write has a higher LSN than this.
    pub fn forgotten_lsn(&self) -> u64 {
        self.forgotten_lsn.load(Relaxed)
    }
}

#[cfg(test)]
#[path = "producers_tests.rs"]
mod tests;
