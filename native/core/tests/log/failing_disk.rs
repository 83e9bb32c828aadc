use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use headrace_core::{Event, Limits, Refusal};

use crate::reader::{self, lsns_in};
use crate::support::*;

fn is_storage_full(refusal: &Refusal, part: &str) -> bool {
    matches!(refusal, Refusal::StorageFull(text) if text.contains(part))
}

#[test]
fn after_a_failed_sync_everything_is_written_anew_and_nothing_twice() {
    for unsynced in [false, true] {
        let log = held_log(never_by_itself());
        log.write();
        log.disk.fail("sync", &[BROKEN, BROKEN, BROKEN]);
        log.disk.let_go();
        log.await_durable(3);
        wait_until("a disk that works", || !log.is_failing());
        assert_eq!(log.synced_write(), 4);
        assert!(log.close());
        let given_up: Vec<_> = log
            .sealed()
            .into_iter()
            .filter(|one| !one.last_lsns.is_empty())
            .collect();
        assert_eq!(given_up.len(), 1);
        assert_eq!(given_up[0].last_lsn, 1);
        let copy = log.folder.with_file_name("after");
        log.disk.copy_to(&log.folder, &copy, unsynced);
        assert_eq!(lsns_in(&log.folder), [1, 2, 3, 4]);
        assert_eq!(lsns_in(&copy), [1, 2, 3, 4]);
    }
}

#[test]
fn what_a_failed_sync_left_behind_counts_for_nothing() {
    let log = held_log(never_by_itself());
    let path = log.folder.join(headrace_core::segment_name(1));
    let with_unsynced = fs::read(&path).unwrap();
    log.disk.fail("sync", &[BROKEN]);
    log.disk.let_go();
    log.await_durable(2);
    assert!(log.close());
    assert!(fs::metadata(&path).unwrap().len() < with_unsynced.len() as u64); // its room is given back
    fs::write(&path, with_unsynced).unwrap(); // as after a crash
    assert_eq!(lsns_in(&log.folder), [1, 2]);
}

#[test]
fn a_segment_whose_sync_failed_is_abandoned() {
    let log = open(Options::default());
    log.synced_write();
    log.disk.fail("sync", &[BROKEN]);
    let failing = log.core.log_parts()[0].number;
    log.synced_write();
    assert!(log.close());
    let name = headrace_core::segment_name(failing);
    let calls = log.disk.calls.lock().unwrap();
    let of_it: Vec<_> = calls
        .iter()
        .filter(|(file, _)| *file == name)
        .map(|(_, call)| *call)
        .collect();
    // The kernel may have dropped the pages, and a second sync would succeed without them.
    assert_eq!(of_it[of_it.len() - 3..], ["write", "sync", "truncate"]);
    assert_eq!(log.read().len(), 2);
    assert_eq!(lsns_in(&log.folder), [1, 2]);
}

#[test]
fn a_crash_while_the_disk_fails_keeps_what_was_synced() {
    let log = held_log(never_by_itself());
    log.disk.fail("sync", &[BROKEN; 1000]);
    log.disk.let_go();
    wait_until("a disk that fails", || log.is_failing());
    for (name, unsynced) in [("with", true), ("without", false)] {
        let copy = log.folder.with_file_name(name);
        log.disk.copy_to(&log.folder, &copy, unsynced);
        let found = lsns_in(&copy);
        assert!(found == [1] || found == [1, 2], "{found:?}");
    }
    log.disk.mend();
    log.await_durable(2);
    assert!(log.close());
    assert_eq!(lsns_in(&log.folder), [1, 2]);
}

#[test]
fn a_full_disk_refuses_writes_by_name_and_heals_by_itself() {
    let log = open(Options::default());
    log.disk.bytes_before_error.store(20, SeqCst);
    log.synced_write();
    log.disk.fail("write", &[NO_SPACE; 1000]);
    let waiting = log.write();
    wait_until("a full disk", || log.is_failing());
    let refused = log.try_write().unwrap_err();
    assert!(
        is_storage_full(
            &refused,
            "refuses writes (No space left on device): free space"
        ),
        "{refused}"
    );
    let refused = log.core.declare("new", b"{}", DEADLINE).unwrap_err();
    assert!(is_storage_full(&refused, "No space left on device"));
    assert_eq!(log.core.refusal().unwrap(), refused);
    assert!(block_on(log.stream().room()).is_err());
    assert_eq!(log.core.watermarks().local_disk().lsn(), 1);
    log.disk.mend();
    log.await_durable(waiting);
    wait_until("a disk that works", || !log.is_failing());
    let after = log.synced_write();
    assert!(log.close());
    assert_eq!(lsns_in(&log.folder), [1, waiting, after]);
    let failing: Vec<_> = log
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Failing(_)))
        .collect();
    assert!(matches!(
        &failing[..],
        [Event::Failing(Some(_)), Event::Failing(None)]
    ));
}

#[test]
fn a_segment_that_cannot_be_begun_is_begun_later() {
    for call in ["create", "write", "sync", "sync_folder"] {
        let log = open(Options::default());
        let first = log.synced_write();
        log.disk.fail(call, &[NO_SPACE, BROKEN]);
        log.seal();
        wait_until("a disk that works", || !log.is_failing());
        let second = log.synced_write();
        assert!(log.close());
        let sealed: Vec<_> = log
            .sealed()
            .into_iter()
            .filter(|one| !one.last_lsns.is_empty())
            .collect();
        assert_eq!(
            sealed.iter().map(|one| one.last_lsn).collect::<Vec<_>>(),
            [first]
        );
        assert_eq!(lsns_in(&log.folder), [first, second], "{call}");
    }
}

#[test]
fn a_full_disk_at_the_start_is_waited_for_and_another_failure_is_named() {
    let disk = Disk::default();
    disk.fail("write", &[NO_SPACE; 1000]);
    let log = open(Options {
        disk,
        ..Options::default()
    });
    assert!(log.is_failing());
    assert!(is_storage_full(
        &log.try_write().unwrap_err(),
        "No space left"
    ));
    log.disk.mend();
    wait_until("a disk that works", || !log.is_failing());
    assert_eq!(log.synced_write(), 1);
    assert!(log.close());

    let disk = Disk::default();
    disk.fail("sync", &[BROKEN]);
    let folder = tempfile::tempdir().unwrap();
    let Err(error) = open_in(
        folder.path(),
        Options {
            disk,
            ..Options::default()
        },
    ) else {
        panic!()
    };
    let path = folder.path().display();
    assert_eq!(
        error,
        format!("the disk of {path} refuses writes (Input/output error): free space or mend it")
    );
}

#[test]
fn closing_says_whether_everything_is_synced() {
    let log = held_log(never_by_itself());
    log.disk.let_go();
    assert!(log.core.close(DEADLINE));

    let log = held_log(never_by_itself());
    log.disk.fail("sync", &[BROKEN; 1000]);
    log.disk.let_go();
    wait_until("a disk that fails", || log.is_failing());
    assert!(!log.core.close(DEADLINE));

    let log = held_log(never_by_itself());
    assert!(!log.core.close(Duration::from_millis(10)));
}

#[test]
fn a_closed_log_takes_nothing() {
    let log = open(Options::default());
    assert!(log.close());
    let shutting_down = Refusal::ServerUnavailable("the server is shutting down".into());
    assert_eq!(log.try_write().unwrap_err(), shutting_down);
    assert_eq!(
        log.core.declare("new", b"{}", DEADLINE).unwrap_err(),
        shutting_down
    );
}

#[test]
fn a_collection_that_the_disk_does_not_take_in_time_is_an_error() {
    let log = held_log(never_by_itself());
    let refused = log
        .core
        .declare("new", b"{}", Duration::from_millis(1))
        .unwrap_err();
    assert!(
        is_storage_full(
            &refused,
            "the disk did not take the collection 'new' in 0 s"
        ),
        "{refused}"
    );
}

#[test]
fn a_log_that_fails_in_a_way_nobody_foresaw_takes_nothing_more() {
    let log = open(Options::default());
    log.synced_write();
    log.disk.panic_next();
    log.write();
    wait_until("a log that has failed", || log.core.health().has_failed);
    let refused = log.try_write().unwrap_err();
    assert!(
        is_storage_full(&refused, "(out of memory): restart the server"),
        "{refused}"
    );
    assert!(!log.close());
    assert_eq!(log.core.watermarks().local_disk().lsn(), 1);
    assert!(matches!(log.events().last(), Some(Event::Failed(text)) if text.contains("restart")));
    wait_until("the end of the thread", || !log.core.health().is_alive);
}

#[test]
fn a_seeded_defect_tells_before_the_sync() {
    let mut defects = headrace_core::Defects::default();
    assert!(defects.switch_on("told_before_sync"));
    assert!(!defects.switch_on("no such defect"));
    let log = open(Options {
        defects,
        limits: Limits::default(),
        ..Options::default()
    });
    log.synced_write();
    log.disk.hold();
    let lsn = log.write();
    assert_eq!(log.core.watermarks().local_disk().lsn(), lsn);
    log.disk.let_go();
    assert!(log.close());
    assert_eq!(reader::lsns_in(&log.folder).len(), 2);
}
