use headrace_core::{Appended, Limits, Refusal, first_lsn_of};

use crate::reader::lsns_in;
use crate::support::*;

const BLOCK: u64 = 16;

fn small_blocks() -> Options {
    Options {
        limits: Limits {
            reserved_at_once: BLOCK,
            ..never_by_itself()
        },
        ..Options::default()
    }
}

#[test]
fn a_new_log_starts_at_one() {
    let log = open(Options::default());
    assert_eq!(log.write(), 1);
}

#[test]
fn a_restart_skips_what_is_left_of_the_block() {
    let log = open(small_blocks());
    log.synced_write();
    assert!(log.close());
    let (recovered, ..) = recover(&log.folder, 0);
    let reserved = recovered.state.reserved_until;
    assert!(reserved > 2);
    let again = open_in(&log.folder, small_blocks()).unwrap();
    assert_eq!(again.synced_write(), reserved);
}

#[test]
fn no_number_is_given_away_before_its_block_is_synced() {
    let log = open(small_blocks());
    let lsn = log.synced_write();
    wait_until("a block", || {
        recover(&log.folder, 0).0.state.reserved_until > lsn + 1
    });
    log.disk.hold();
    let mut given = lsn;
    loop {
        match log
            .stream()
            .append(&message(&log.schema, &[&MESSAGE], 0, None))
            .unwrap()
        {
            Appended::Written { first_lsn, .. } => given = first_lsn,
            Appended::NoNumbers => break,
            other => panic!("{other:?}"),
        }
    }
    log.disk.await_held();
    assert!(log.stream().must_wait().is_some());
    let copy = log.folder.with_file_name("copy");
    log.disk.copy_to(&log.folder, &copy, false);
    assert!(given < recover(&copy, 0).0.state.reserved_until);
    log.disk.let_go();
    block_on(log.stream().room()).unwrap();
    let rest: Vec<_> = (0..3 * BLOCK).map(|_| log.write()).collect();
    assert_eq!(rest, (given + 1..given + 1 + 3 * BLOCK).collect::<Vec<_>>());
    assert!(log.close());
    assert_eq!(
        lsns_in(&log.folder),
        (1..=*rest.last().unwrap()).collect::<Vec<_>>()
    );
}

#[test]
fn a_block_whose_reservation_is_being_synced_is_not_given_away() {
    let log = open(small_blocks());
    let lsn = log.synced_write();
    let left = recover(&log.folder, 0).0.state.reserved_until - (lsn + 1);
    log.disk.hold();
    let rows = vec![1; left as usize]; // so that the next block is reserved together with them
    assert_eq!(
        log.append(&rows),
        Appended::Written {
            first_lsn: lsn + 1,
            count: left
        }
    );
    log.disk.await_held();
    let (written, ..) = recover(&log.folder, 0);
    assert!(
        written.state.reserved_until > lsn + 1 + left,
        "the mark is written, and not synced"
    );
    assert_eq!(log.append(&[1]), Appended::NoNumbers);
    log.disk.let_go();
    block_on(log.stream().room()).unwrap();
    assert_eq!(log.synced_write(), lsn + 1 + left);
}

#[test]
fn a_message_may_have_more_writes_than_a_block_has_numbers() {
    for count in [BLOCK / 2 + 1, BLOCK, BLOCK + 1, 5 * BLOCK] {
        let log = open(small_blocks());
        let first = log.synced_write();
        let rows = vec![1; count as usize];
        let written = loop {
            match log.append(&rows) {
                Appended::NoNumbers => block_on(log.stream().room()).unwrap(),
                written => break written,
            }
        };
        assert_eq!(
            written,
            Appended::Written {
                first_lsn: first + 1,
                count
            }
        );
        assert_eq!(log.synced_write(), first + 1 + count);
    }
}

#[test]
fn another_term_begins_at_its_first_number() {
    let log = open(small_blocks());
    log.synced_write();
    assert!(log.close());
    let again = open_in(
        &log.folder,
        Options {
            term: 1,
            ..small_blocks()
        },
    )
    .unwrap();
    assert_eq!(again.synced_write(), first_lsn_of(1));
}

#[test]
fn a_term_ends() {
    let folder = tempfile::tempdir().unwrap();
    let last = headrace_core::last_lsn_of(3);
    let options = Options {
        term: 3,
        ..small_blocks()
    };
    let log = open_with(folder.path(), options, |recovered| {
        recovered.state.reserved_until = last - 2
    })
    .unwrap();
    assert_eq!([log.write(), log.write()], [last - 2, last - 1]);
    let refused = log.try_write().unwrap_err();
    assert!(matches!(refused, Refusal::Terminal(text) if text.contains("restart the server")));
    log.await_durable(last - 1);
}

#[test]
fn no_number_is_ever_used_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut given = Vec::new();
    let mut path = folder.path().join("0");
    std::fs::create_dir(&path).unwrap();
    for life in 1..8 {
        let log = open_in(&path, small_blocks()).unwrap();
        for _ in 0..life * 3 {
            given.push(log.write());
        }
        log.await_durable(*given.last().unwrap());
        log.disk.hold();
        for _ in 0..life {
            if let Ok(Appended::Written { first_lsn, .. }) =
                log.stream()
                    .append(&message(&log.schema, &[&MESSAGE], 0, None))
            {
                given.push(first_lsn);
            }
        }
        let next = folder.path().join(life.to_string());
        log.disk.copy_to(&path, &next, life % 2 == 0);
        path = next;
    }
    let mut unique = given.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique, given);
}

#[test]
fn a_state_that_would_use_a_number_again_is_refused() {
    for (term, last_lsn, reserved_until) in [(0, 0, 0), (0, 7, 7), (1, 0, 5)] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            term,
            ..small_blocks()
        };
        let opened = open_with(folder.path(), options, |recovered| {
            (recovered.state.last_lsn, recovered.state.reserved_until) = (last_lsn, reserved_until);
        });
        assert!(opened.is_err_and(|error| error.contains("LSNs that are in use")));
    }
}
