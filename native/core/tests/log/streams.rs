use headrace_core::{Announcement, DurableRange, Limits, Refusal, Statistics, Tier, Tiers};

use crate::support::*;

fn lsns(announcement: &Announcement, tier: Tier) -> Vec<u64> {
    let of_tier = announcement.notices.iter().filter(|(of, _)| *of == tier);
    of_tier
        .flat_map(|(_, ranges)| ranges)
        .flat_map(|range| range.first..=range.last)
        .collect()
}

#[test]
fn each_write_is_announced_once_at_each_tier() {
    let log = open(Options::default());
    for _ in 0..3 {
        log.write();
    }
    assert!(block_on(log.stream().news()).hurry);
    let first = log.stream().announce();
    assert_eq!(lsns(&first, Tier::Memory), [1, 2, 3]);
    assert_eq!(first.assigned, []);
    log.await_durable(3);
    let mut durable = lsns(&first, Tier::LocalDisk);
    while durable.len() < 3 {
        block_on(log.stream().news());
        durable.extend(lsns(&log.stream().announce(), Tier::LocalDisk));
    }
    assert_eq!(durable, [1, 2, 3]);
    log.core.uploaded(1, 2);
    assert!(!block_on(log.stream().news()).hurry);
    assert_eq!(lsns(&log.stream().announce(), Tier::ObjectStorage), [1, 2]);
    log.core.committed("elsewhere", 3, Some(70));
    log.core.committed("orders", 3, Some(71));
    block_on(log.stream().news());
    let announcement = log.stream().announce();
    assert_eq!(lsns(&announcement, Tier::Committed), [1, 2, 3]);
    assert!(
        announcement.notices[0]
            .1
            .iter()
            .all(|range| range.snapshot_id == Some(71))
    );
    assert!(!log.stream().is_done());
    log.core.uploaded(2, 3);
    log.stream().announce();
    assert!(log.stream().is_done());
    assert_eq!(log.stream().counters.snapshot().acks, 12);
}

#[test]
fn only_the_levels_that_were_asked_for_are_announced() {
    let log = open(Options::default());
    let levels = Tiers::NONE.with(Tier::ObjectStorage);
    let options = headrace_core::StreamOptions {
        levels,
        ..stream_options("orders", "")
    };
    let (stream, _) = log.core.open_stream(options);
    let lsn = write_on(&stream, &log.schema, 0).unwrap();
    log.await_durable(lsn);
    assert!(stream.announce().is_empty());
    log.core.uploaded(1, lsn);
    let announcement = stream.announce();
    assert_eq!(
        (
            announcement.notices.len(),
            lsns(&announcement, Tier::ObjectStorage)
        ),
        (1, vec![lsn])
    );
    assert!(stream.is_done());
}

#[test]
fn a_watermark_stands_for_all_below_it() {
    let log = open(Options::default());
    let options = headrace_core::StreamOptions {
        by_watermark: true,
        ..stream_options("orders", "")
    };
    let (stream, _) = log.core.open_stream(options);
    for _ in 0..3 {
        write_on(&stream, &log.schema, 0).unwrap();
    }
    log.await_durable(3);
    log.core.committed("orders", 1, Some(70));
    log.core.committed("orders", 3, Some(71));
    let announcement = stream.announce();
    assert_eq!(lsns(&announcement, Tier::Memory), [3]);
    assert_eq!(lsns(&announcement, Tier::LocalDisk), [3]);
    assert_eq!(lsns(&announcement, Tier::Committed), [1, 3]);
    assert_eq!((announcement.rows, announcement.more), (4, false));
}

#[test]
fn a_message_of_acknowledgements_is_bounded() {
    let log = open(Options::default());
    log.synced_write();
    log.append(&vec![1; 20_000]);
    let first = log.stream().announce();
    assert!(first.more);
    assert_eq!(
        lsns(&first, Tier::Memory).len() as u64,
        headrace_core::MOST_ROWS
    );
    let second = log.stream().announce();
    assert_eq!(
        lsns(&second, Tier::Memory).len(),
        20_001 - lsns(&first, Tier::Memory).len()
    );
}

#[test]
fn a_stream_waits_while_too_many_writes_are_not_announced() {
    let limits = Limits {
        ranges: 4,
        ..never_by_itself()
    };
    let log = open(Options {
        limits,
        ..Options::default()
    });
    let other = log.open_stream("");
    log.synced_write();
    while log.stream().must_wait().is_none() {
        write_on(&other, &log.schema, 0).unwrap(); // in turn, so that no two are neighbours
        log.write();
    }
    let reason = log.stream().must_wait().unwrap();
    assert_eq!(
        &*reason,
        "too many writes wait to be announced: read the acknowledgements"
    );
    log.await_durable(log.stream().last_lsn());
    let last = log.stream().last_lsn();
    log.core.uploaded(1, last);
    log.core.committed("orders", last, None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(log.stream().room()));
        log.stream().announce();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn many_streams_together_remember_so_many_writes_that_are_not_announced() {
    const ALL: usize = 100;
    let limits = Limits {
        all_ranges: ALL,
        ..never_by_itself()
    };
    let log = open(Options {
        limits,
        ..Options::default()
    });
    let mut seqs = [0; 9];
    let streams: Vec<_> = (0..9)
        .map(|number| log.open_stream(&format!("till {number}")))
        .collect();
    log.synced_write();
    let wait = "too many writes of all clients wait to be announced";
    while streams.iter().any(|stream| stream.must_wait().is_none()) {
        for (stream, seq) in streams.iter().zip(&mut seqs) {
            if stream.must_wait().is_none() {
                *seq += 2;
                write_on(stream, &log.schema, *seq - 1).unwrap(); // in turn, so that no two are neighbours
            }
        }
    }
    let all = seqs.iter().sum::<u64>() as usize / 2;
    assert!((ALL / 2..ALL).contains(&all), "{all}");
    assert!(
        streams
            .iter()
            .all(|one| one.must_wait().as_deref() == Some(wait))
    );
    // One that has little may write, and one that resumes brings what it wrote before.
    assert_eq!(log.stream().must_wait(), None);
    let resumed: Vec<_> = (0..9)
        .map_while(|number| {
            log.core.refuse_resume().ok()?;
            let mut options = stream_options("orders", &format!("till {number}"));
            options.resume_after = Some(0);
            Some(log.core.open_stream(options).0)
        })
        .collect();
    assert!(resumed.len() < 9);
    let refusal = log.core.refuse_resume().unwrap_err().to_string();
    assert_eq!(
        refusal,
        "too many writes of all clients wait to be announced: resume later"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(streams[0].room()));
        drop(resumed);
        log.core.refuse_resume().unwrap();
        log.await_durable(log.core.last_lsn());
        let last = log.core.last_lsn();
        log.core.uploaded(1, last);
        log.core.committed("orders", last, None);
        streams[1..]
            .iter()
            .for_each(|stream| drop(stream.announce()));
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_stream_waits_for_its_own_bytes_and_others_do_not() {
    let limits = Limits {
        unsynced_bytes: 5_000,
        ..never_by_itself()
    };
    let log = held_log(limits);
    let modest = log.open_stream("");
    while log.stream().must_wait().is_none() {
        log.write();
    }
    assert!(log.stream().unsynced_bytes() > 5_000);
    assert_eq!(modest.must_wait(), None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(log.stream().room()));
        log.disk.let_go();
        waiting.join().unwrap().unwrap();
    });
    wait_until("everything on the disk", || log.stream().is_synced());
    assert_eq!(log.stream().unsynced_bytes(), 0);
}

#[test]
fn what_is_said_from_outside_is_refused_or_waited_for() {
    let log = open(Options::default());
    log.synced_write();
    log.core
        .set_backed_up(Some("9 bytes of log wait for Iceberg"));
    assert_eq!(
        log.stream().must_wait().as_deref(),
        Some("9 bytes of log wait for Iceberg")
    );
    assert_eq!(log.stream().refusal(), None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(log.stream().room()));
        log.core.set_backed_up(None);
        waiting.join().unwrap().unwrap();
    });

    let quarantined = Refusal::Quarantined {
        collection: "orders".into(),
        reason: "it cannot be committed".into(),
    };
    log.core
        .set_collection_refusal("orders", Some("it cannot be committed"));
    assert_eq!(log.try_write(), Err(quarantined.clone()));
    assert_eq!(
        (log.stream().refusal(), log.core.refusal()),
        (Some(quarantined), None)
    );
    let elsewhere = log.core.open_stream(stream_options("others", "")).0;
    write_on(&elsewhere, &log.core.schema("others", b"schema.."), 0).unwrap();
    log.core.set_collection_refusal("orders", None);
    log.synced_write();

    log.core.set_disk_problem(Some("almost full"));
    assert_eq!(
        log.try_write(),
        Err(Refusal::StorageFull("almost full".into()))
    );
    log.core.set_disk_problem(None);
    log.synced_write();

    log.core.set_backed_up(Some("for long"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(log.stream().room()));
        log.core.stop_accepting("another server has taken over");
        let gone = Refusal::ServerUnavailable("another server has taken over".into());
        assert_eq!(waiting.join().unwrap(), Err(gone.clone()));
        assert_eq!(log.core.refusal(), Some(gone));
    });
}

#[test]
fn what_was_accepted_before_a_refusal_is_written() {
    let log = held_log(never_by_itself());
    let lsn = log.write();
    log.core.stop_accepting("over");
    log.disk.let_go();
    log.await_durable(lsn);
    assert!(log.close());
    assert_eq!(crate::reader::lsns_in(&log.folder), [1, 2, 3]);
}

#[test]
fn streams_are_described_and_counted_after_their_end() {
    let log = open(Options::default());
    let stream = log.open_stream("till-1");
    write_on(&stream, &log.schema, 1).unwrap();
    stream.set_throttled(Some("slow".into()));
    let descriptions = log.core.streams();
    assert_eq!(descriptions.len(), 2);
    let [_, of_it] = &descriptions[..] else {
        panic!()
    };
    assert_eq!(
        (&*of_it.collection, &*of_it.producer, &*of_it.peer),
        ("orders", "till-1", "test")
    );
    assert_eq!(
        (of_it.throttled.as_deref(), of_it.pending[3]),
        (Some("slow"), 1)
    );
    let counted = Statistics {
        writes: 1,
        rows: 1,
        bytes: 24,
        throttled: 1,
        ..Statistics::default()
    };
    assert_eq!(of_it.statistics, counted);
    drop(stream);
    assert_eq!(
        (log.core.streams().len(), log.core.statistics()),
        (1, counted)
    );
    assert_eq!(log.core.write_seconds().len(), 1);
}

#[test]
fn a_stream_that_is_gone_is_not_woken() {
    let log = open(Options::default());
    let stream = log.open_stream("");
    let shared = stream.share();
    write_on(&stream, &log.schema, 0).unwrap();
    block_on(shared.news());
    drop(stream);
    let lsn = log.synced_write();
    shared.wake(); // by its own side only
    assert!(block_on(shared.news()).hurry);
    let ranges: Vec<DurableRange> = shared
        .announce()
        .notices
        .into_iter()
        .flat_map(|(_, ranges)| ranges)
        .collect();
    assert!(ranges.iter().all(|range| range.last < lsn));
}
