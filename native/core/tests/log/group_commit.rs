use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use headrace_core::{Limits, Refusal};

use crate::reader::{Record, Segment};
use crate::support::*;

/// The last LSN of each group that was synced for itself.
fn groups_of(segments: &[Segment]) -> Vec<u64> {
    let mut groups = Vec::new();
    for (_, record) in segments.iter().flat_map(|segment| &segment.records) {
        match record {
            Record::Mark { .. } => groups.push(0),
            Record::Writes(writes) => {
                *groups.last_mut().unwrap() = writes.first_lsn + u64::from(writes.count) - 1;
            }
            _ => {}
        }
    }
    groups.retain(|last| *last > 0);
    groups
}

#[test]
fn one_sync_covers_all_that_waited_for_it() {
    let log = held_log(never_by_itself());
    let syncs = log.disk.syncs.load(SeqCst);
    let last = (2..100).map(|_| log.write()).fold(0, u64::max);
    log.disk.let_go();
    log.await_durable(last);
    assert!(log.close());
    assert_eq!(log.disk.syncs.load(SeqCst), syncs + 2);
    assert_eq!(groups_of(&log.read()), [1, 2, last]);
}

#[test]
fn nothing_is_announced_before_the_sync_has_returned() {
    let log = held_log(never_by_itself());
    assert_eq!(crate::reader::lsns_in(&log.folder), [1, 2]); // the bytes are there
    assert_eq!(log.core.watermarks().local_disk().lsn(), 1);
    std::thread::scope(|scope| {
        let declaring = scope.spawn(|| log.core.declare("new", b"{\"name\":\"new\"}", DEADLINE));
        wait_until("a declaration that waits", || {
            log.core.health().waiting_bytes > 0
        });
        assert!(!declaring.is_finished());
        assert_eq!(log.core.watermarks().local_disk().lsn(), 1);
        log.disk.let_go();
        declaring.join().unwrap().unwrap();
    });
    log.await_durable(2);
}

#[test]
fn a_group_is_bounded() {
    let limits = Limits {
        group_bytes: 2 * MESSAGE.len() as u64,
        ..never_by_itself()
    };
    let log = held_log(limits);
    for _ in 0..6 {
        log.write();
    }
    log.disk.let_go();
    log.await_durable(8);
    assert!(log.close());
    assert_eq!(groups_of(&log.read()), [1, 2, 4, 6, 8]);
}

#[test]
fn neighbours_become_one_record_and_order_is_kept() {
    let log = held_log(never_by_itself());
    let (other, producer) = (log.open_stream(""), log.open_stream("till-1"));
    let elsewhere = log.core.schema("elsewhere", b"schema..");
    log.write(); // 3
    write_on(&other, &log.schema, 0).unwrap(); // by whom it comes does not matter
    write_on(&other, &elsewhere, 0).unwrap();
    log.write();
    for seq in [1, 2, 5] {
        write_on(&producer, &log.schema, seq).unwrap(); // the last one left some out
    }
    log.append(&[1, 2]);
    log.append(&[1]);
    log.write();
    log.disk.let_go();
    log.await_durable(13);
    assert!(log.close());
    let segments = log.read();
    let writes: Vec<_> = segments.iter().flat_map(Segment::writes).skip(2).collect();
    let shapes: Vec<_> = writes
        .iter()
        .map(|one| (one.first_lsn, one.count, one.messages, one.first_seq))
        .collect();
    assert_eq!(
        shapes,
        [
            (3, 2, 2, 0),
            (5, 1, 1, 0),
            (6, 1, 1, 0),
            (7, 2, 2, 1),
            (9, 1, 1, 5),
            (10, 3, 2, 0),
            (13, 1, 1, 0)
        ]
    );
    assert_eq!(writes[5].rows.as_deref(), Some(&[1, 2, 1][..]));
    assert_eq!(writes[6].rows, None);
    assert_eq!(writes[3].producer, "till-1");
    assert_eq!(writes[0].payload, MESSAGE.repeat(2));
    let schemas = segments[0]
        .records
        .iter()
        .filter(|(_, record)| matches!(record, Record::Schema { .. }));
    assert_eq!(schemas.count(), 2);
}

#[test]
fn a_large_message_is_a_record_of_its_own() {
    let log = held_log(never_by_itself());
    let large = vec![5; 1 << 20];
    log.write();
    log.stream()
        .append(&message(&log.schema, &[&MESSAGE, &large], 0, None))
        .unwrap();
    log.write();
    log.disk.let_go();
    log.await_durable(5);
    assert!(log.close());
    let segments = log.read();
    let sizes: Vec<_> = segments
        .iter()
        .flat_map(Segment::writes)
        .map(|one| one.payload.len())
        .collect();
    assert_eq!(sizes[2..], [24, 24 + (1 << 20), 24]);
}

#[test]
fn a_message_whose_length_a_record_cannot_say_is_refused() {
    let log = open(Options::default());
    let large = vec![0; 1 << 30];
    let pieces: [&[u8]; 4] = [&large, &large, &large, &large];
    let refused = log.stream().append(&message(&log.schema, &pieces, 0, None));
    assert!(matches!(refused, Err(Refusal::ConfigError(text)) if text.contains("split it")));
}

#[test]
fn under_load_a_group_gathers_and_the_end_does_not_wait_for_it() {
    let limits = Limits {
        gather_time: Duration::from_secs(3600),
        ..never_by_itself()
    };
    let log = held_log(limits);
    for _ in 0..4 {
        log.write();
    }
    log.disk.let_go();
    log.await_durable(6); // the group before had one message, so this one does not gather
    let last = log.write();
    assert_eq!(log.core.watermarks().local_disk().lsn(), 6);
    assert!(log.close());
    assert_eq!(crate::reader::lsns_in(&log.folder).last(), Some(&last));
}

#[test]
fn who_writes_learns_that_too_much_waits_and_when_it_is_over() {
    let limits = Limits {
        waiting_bytes: 2000, // of which a stream that is alone has half
        ..never_by_itself()
    };
    let log = held_log(limits);
    assert_eq!(log.stream().must_wait(), None);
    while log.stream().must_wait().is_none() {
        log.write();
    }
    assert!(log.core.health().waiting_bytes > 1000);
    assert_eq!(
        log.stream().must_wait().as_deref(),
        Some("the disk is slower than the writers")
    );
    assert_eq!(log.core.health().unsynced_since_us, Some(1_000));
    log.disk.let_go();
    block_on(log.stream().room()).unwrap();
    wait_until("everything on the disk", || log.stream().is_synced());
    assert!(log.close());
    assert_eq!(log.core.health().waiting_bytes, 0);
    assert_eq!(log.core.health().unsynced_since_us, None);
}

#[test]
fn who_has_written_little_goes_first_where_half_of_the_room_is_taken() {
    let limits = Limits {
        waiting_bytes: 4000,
        ..never_by_itself()
    };
    let log = held_log(limits);
    let other = log.open_stream("");
    while log.core.health().waiting_bytes <= 2000 {
        assert_eq!(log.stream().must_wait(), None);
        log.write();
    }
    assert!(log.stream().must_wait().is_some());
    assert_eq!(other.must_wait(), None);
    write_on(&other, &log.schema, 0).unwrap();
    assert!(other.must_wait().is_some()); // a message counts for at least 1 KiB, which is its share
    log.disk.let_go();
    for stream in [log.stream(), &other] {
        block_on(stream.room()).unwrap();
    }
    assert!(log.close());
}

#[test]
fn the_rows_of_coalesced_writes_count_as_what_waits() {
    let rows = [1; 300];
    let limits = Limits {
        group_bytes: 1000,
        waiting_bytes: 4000,
        unsynced_bytes: 4000,
        ..never_by_itself()
    };
    let log = held_log(limits);
    log.append(&rows);
    assert!(log.core.health().waiting_bytes > 1200);
    assert_eq!(log.stream().must_wait(), None);
    log.append(&rows);
    assert!(log.stream().must_wait().is_some());
    assert!(log.stream().unsynced_bytes() > 4000);
    log.disk.let_go();
    block_on(log.stream().room()).unwrap();
    log.await_durable(602);
    assert!(log.close());
    assert_eq!(log.core.health().waiting_bytes, 0);
    assert_eq!(groups_of(&log.read()), [1, 2, 302, 602]);
}
