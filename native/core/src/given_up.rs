//! Writes that were given up: they reach no tier, so none is announced for them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::core::Core;
use crate::producers::{GivenUpNumbers, KnownNumbers, Run};
use crate::state::Range;

/// The ranges of LSNs of each collection that are gone.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(RwLock<HashMap<Box<str>, Arc<[Range]>>>);

impl GivenUp {
    pub fn set(&self, collection: &str, ranges: &[Range]) {
        self.0.write().insert(collection.into(), ranges.into());
    }

    /// The parts of runs that are in none of the collection's ranges.
    pub fn without(&self, collection: &str, runs: Vec<Run>) -> Vec<Run> {
        let Some(ranges) = self.0.read().get(collection).cloned() else {
            return runs;
        };
        ranges.iter().fold(runs, |runs, range| {
            runs.into_iter()
                .flat_map(|run| outside(run, *range))
                .collect()
        })
    }
}

impl Core {
    /// Records which writes of a collection are gone: from now on they are announced at no tier, but for the
    /// streams that wait for them already, see `break_off`.
    /// A producer that sends them again hears which LSNs they had; see `Producers::give_up`.
    pub fn set_given_up(
        &self,
        collection: &str,
        ranges: &[Range],
        numbers: HashMap<String, GivenUpNumbers>,
        others_are_unsure: bool,
    ) {
        self.producers()
            .give_up(collection, numbers, others_are_unsure);
        self.given_up().set(collection, ranges);
    }

    /// What is remembered of the writes of a collection that have these LSNs, by producer.
    pub fn known_numbers(&self, collection: &str, ranges: &[Range]) -> Vec<KnownNumbers> {
        self.producers().known(collection, ranges)
    }
}

/// Returns the parts of a run that are before and after a range.
fn outside(run: Run, (first, last): Range) -> impl Iterator<Item = Run> {
    let end = run.lsn + run.count;
    let is_apart = run.lsn == 0 || last < run.lsn || first >= end;
    let part = |from: u64, until: u64| {
        (from < until).then(|| Run {
            seq: run.seq + (from - run.lsn),
            lsn: from,
            count: until - from,
        })
    };
    let parts = if is_apart {
        [Some(run), None]
    } else {
        [
            part(run.lsn, first.max(run.lsn)),
            part((last + 1).min(end), end),
        ]
    };
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seq: u64, lsn: u64, count: u64) -> Run {
        Run { seq, lsn, count }
    }

    #[test]
    fn what_is_given_up_is_left_out_of_runs() {
        let given_up = GivenUp::default();
        given_up.set("orders", &[(103, 104), (200, 210)]);
        for (found, kept) in [
            (run(1, 100, 3), vec![run(1, 100, 3)]),
            (run(1, 100, 10), vec![run(1, 100, 3), run(6, 105, 5)]),
            (run(1, 104, 2), vec![run(2, 105, 1)]),
            (run(1, 103, 2), vec![]),
            (run(1, 0, 9), vec![run(1, 0, 9)]),
            (run(7, 199, 2), vec![run(7, 199, 1)]),
        ] {
            assert_eq!(given_up.without("orders", vec![found]), kept);
            assert_eq!(given_up.without("others", vec![found]), vec![found]);
        }
    }
}
