use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::clock::SystemClock;

fn watermarks() -> Watermarks {
    Watermarks::new(Arc::new(SystemClock::new()), 0, 0, &HashMap::new())
}

fn run(seq: u64, lsn: u64, count: u64) -> Run {
    Run { seq, lsn, count }
}

#[test]
fn neighbours_are_assigned_as_one_run_and_duplicates_are_not() {
    let watermarks = watermarks();
    let mut outbox = Outbox::new(Tiers::ALL, false);
    outbox.wrote(run(1, 10, 2));
    outbox.wrote(run(3, 12, 1));
    outbox.wrote(run(4, 20, 1));
    outbox.wrote_before(&[run(1, 0, 1), run(2, 11, 1)], &[run(2, 11, 1)]);
    outbox.wrote(run(5, 21, 1));
    assert_eq!((outbox.ranges(), outbox.pending(Tier::Memory)), (5, 6));
    let announcement = outbox.take(&watermarks, &watermarks.committed("orders"), 77);
    assert_eq!(
        announcement.assigned,
        [
            run(1, 10, 3),
            run(4, 20, 1),
            run(1, 0, 1),
            run(2, 11, 1),
            run(5, 21, 1)
        ]
    );
    let [(Tier::Memory, reached)] = &announcement.notices[..] else {
        panic!("{announcement:?}")
    };
    let ranges: Vec<_> = reached
        .iter()
        .map(|range| (range.first, range.last, range.at_us))
        .collect();
    assert_eq!(
        ranges,
        [(10, 12, 77), (20, 20, 77), (11, 11, 77), (21, 21, 77)]
    );
    assert!(announcement.since.is_some() && !announcement.more);
    let nothing = outbox.take(&watermarks, &watermarks.committed("orders"), 77);
    assert!(nothing.is_empty() && nothing.since.is_none());
}

#[test]
fn duplicates_that_nobody_remembers_are_only_assigned() {
    let mut outbox = Outbox::new(Tiers::ALL, false);
    outbox.wrote_before(&[run(1, 0, 3)], &[]);
    assert_eq!((outbox.wanted(), outbox.ranges()), (Tiers::NONE, 1));
}

#[test]
fn a_row_stands_for_all_below_it_in_its_snapshot() {
    let range = |first, last, snapshot_id| DurableRange {
        first,
        last,
        at_us: last,
        snapshot_id,
    };
    let mut reached = vec![
        range(4, 6, Some(2)),
        range(1, 2, Some(1)),
        range(7, 7, Some(2)),
        range(3, 3, Some(1)),
    ];
    keep_highest(&mut reached);
    assert_eq!(reached, [range(3, 3, Some(1)), range(7, 7, Some(2))]);
}
