use std::sync::atomic::Ordering::SeqCst;

use headrace_core::{Appended, Defects, Greeting, Refusal, Run, StreamHandle, Tier};

use crate::reader::{Segment, lsns_in};
use crate::support::*;

fn run(seq: u64, lsn: u64, count: u64) -> Run {
    Run { seq, lsn, count }
}

fn open_producer(log: &OpenLog, resume_after: Option<u64>) -> (StreamHandle, Greeting) {
    let options = headrace_core::StreamOptions {
        resume_after,
        ..stream_options("orders", "till-1")
    };
    log.core.open_stream(options)
}

fn append(
    log: &OpenLog,
    stream: &StreamHandle,
    seq: u64,
    writes: usize,
) -> Result<Appended, Refusal> {
    let rows = vec![1; writes];
    stream.append(&message(&log.schema, &[&MESSAGE], seq, Some(&rows)))
}

fn ready_log() -> OpenLog {
    let log = open(Options::default());
    log.synced_write(); // LSN 1: numbers are reserved now
    log
}

#[test]
fn what_was_written_before_is_acknowledged_with_the_lsns_that_it_got() {
    let log = ready_log();
    let (stream, _) = open_producer(&log, None);
    assert_eq!(
        append(&log, &stream, 1, 3),
        Ok(Appended::Written {
            first_lsn: 2,
            count: 3
        })
    );
    log.write(); // 5
    assert_eq!(
        append(&log, &stream, 4, 1),
        Ok(Appended::Written {
            first_lsn: 6,
            count: 1
        })
    );
    stream.announce();
    assert_eq!(append(&log, &stream, 2, 3), Ok(Appended::Duplicate));
    assert_eq!(stream.announce().assigned, [run(2, 3, 2), run(4, 6, 1)]);
    assert_eq!(stream.counters.snapshot().duplicates, 3);
    assert_eq!(append(&log, &stream, 4, 3), Ok(Appended::Rest { known: 1 }));
    assert_eq!(
        append(&log, &stream, 5, 2),
        Ok(Appended::Written {
            first_lsn: 7,
            count: 2
        })
    );
    log.await_durable(8);
    assert!(log.close());
    assert_eq!(lsns_in(&log.folder), (1..=8).collect::<Vec<_>>());
    let (_, greeting) = open_producer(&log, Some(3));
    assert_eq!(greeting.last_seq, Some(6));
    assert_eq!(greeting.assigned, [run(3, 4, 1), run(4, 6, 3)]);
    assert_eq!(
        (
            greeting.memory,
            greeting.local_disk,
            greeting.object_storage
        ),
        (8, 8, 0)
    );
}

#[test]
fn a_number_that_was_left_out_is_not_taken_for_one_that_was_written() {
    let log = ready_log();
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 1).unwrap();
    append(&log, &stream, 3, 1).unwrap();
    let refused = append(&log, &stream, 2, 1).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "sequence number 2 of producer 'till-1' was left out, and 3 is written already: numbers only go up; write it \
         with a new number"
    );
    assert_eq!(stream.counters.snapshot().duplicates, 0);
}

#[test]
fn who_takes_over_ends_the_other_and_goes_on_from_its_numbers() {
    let log = ready_log();
    let (before, greeting) = open_producer(&log, None);
    assert_eq!(greeting.last_seq, None);
    append(&log, &before, 1, 2).unwrap();
    let (after, greeting) = open_producer(&log, None);
    assert_eq!(greeting.last_seq, Some(2));
    let refused = append(&log, &before, 3, 1).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "another stream of producer 'till-1' took over collection 'orders': give every client a producer of its own"
    );
    drop(before); // which holds nothing any more
    assert_eq!(
        append(&log, &after, 3, 1),
        Ok(Appended::Written {
            first_lsn: 4,
            count: 1
        })
    );
}

#[test]
fn a_producer_that_nobody_knows_and_that_goes_on_is_refused_once_it_writes() {
    let log = ready_log();
    let (stream, greeting) = open_producer(&log, None);
    assert_eq!(greeting.last_seq, None);
    let refused = append(&log, &stream, 7, 1).unwrap_err();
    let of = |name: &str| name.to_string();
    assert_eq!(
        refused,
        Refusal::UnknownProducer {
            producer: of("till-1"),
            collection: of("orders"),
            first_seq: 7
        }
    );
    let options = headrace_core::StreamOptions {
        first_seq: 7,
        ..stream_options("orders", "till-1")
    };
    let (stream, _) = log.core.open_stream(options);
    append(&log, &stream, 7, 1).unwrap();
    append(&log, &stream, 9, 1).unwrap(); // it may leave numbers out
}

#[test]
fn a_restart_goes_on_from_what_is_in_the_log() {
    let log = ready_log();
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 2).unwrap();
    log.write();
    append(&log, &stream, 3, 1).unwrap();
    drop(stream);
    log.await_durable(5);
    assert!(log.close());
    let again = open_in(&log.folder, Options::default()).unwrap();
    let (stream, greeting) = open_producer(&again, Some(0));
    assert_eq!(
        (greeting.last_seq, greeting.assigned),
        (Some(3), vec![run(1, 2, 2), run(3, 5, 1)])
    );
    assert_eq!(append(&again, &stream, 1, 3), Ok(Appended::Duplicate));
    again.core.committed("orders", 3, None);
    stream.announce();
    assert_eq!(append(&again, &stream, 1, 3), Ok(Appended::Duplicate));
    assert_eq!(stream.announce().assigned, [run(1, 0, 2), run(3, 5, 1)]);
}

#[test]
fn a_resumed_stream_hears_of_every_tier_but_the_first() {
    let log = ready_log();
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 3).unwrap();
    log.await_durable(4);
    let (resumed, greeting) = open_producer(&log, Some(2));
    assert_eq!(greeting.assigned, [run(2, 3, 2)]);
    block_on(resumed.news());
    let announcement = resumed.announce();
    assert_eq!(announcement.assigned, []);
    let [(tier, ranges)] = &announcement.notices[..] else {
        panic!("{announcement:?}")
    };
    assert_eq!(
        (*tier, ranges[0].first, ranges[0].last),
        (Tier::LocalDisk, 3, 4)
    );
    assert_eq!(
        (
            resumed.pending(Tier::Memory),
            resumed.pending(Tier::Committed)
        ),
        (0, 2)
    );
}

#[test]
fn a_stream_may_resume_after_any_number() {
    let log = ready_log();
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 1).unwrap();
    let (_, greeting) = open_producer(&log, Some(u64::MAX));
    assert_eq!(greeting.assigned, []);
}

#[test]
fn numbers_in_the_log_are_those_of_the_producer() {
    let log = held_log(never_by_itself());
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 2).unwrap();
    append(&log, &stream, 3, 1).unwrap();
    append(&log, &stream, 9, 1).unwrap();
    log.disk.let_go();
    log.await_durable(6);
    assert!(log.close());
    let segments = log.read();
    let writes: Vec<_> = segments.iter().flat_map(Segment::writes).skip(2).collect();
    assert_eq!(
        writes
            .iter()
            .map(|one| (one.first_seq, one.count))
            .collect::<Vec<_>>(),
        [(1, 3), (9, 1)]
    );
}

fn with_defect(name: &str) -> OpenLog {
    let mut defects = Defects::default();
    assert!(defects.switch_on(name));
    let log = open(Options {
        defects,
        ..Options::default()
    });
    log.synced_write();
    log
}

#[test]
fn a_seeded_defect_takes_an_older_write_for_a_duplicate() {
    let log = with_defect("age_by_clock");
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 1).unwrap();
    log.clock.wall_us.fetch_sub(1, SeqCst);
    assert_eq!(append(&log, &stream, 2, 1), Ok(Appended::Duplicate));
    assert_eq!(stream.announce().assigned, [run(1, 2, 1), run(2, 0, 1)]);
}

#[test]
fn seeded_defects_forget_producers() {
    let log = with_defect("sessions_forgotten");
    let (stream, _) = open_producer(&log, None);
    append(&log, &stream, 1, 1).unwrap();
    let (stream, greeting) = open_producer(&log, None);
    assert_eq!(greeting.last_seq, None);
    append(&log, &stream, 1, 1).unwrap();
    log.await_durable(3);
    assert!(log.close());
    let mut defects = Defects::default();
    defects.switch_on("producers_forgotten");
    let again = open_in(
        &log.folder,
        Options {
            defects,
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!(open_producer(&again, None).1.last_seq, None);
    drop(again);
    let again = open_in(&log.folder, Options::default()).unwrap();
    assert_eq!(open_producer(&again, None).1.last_seq, Some(1));
}
