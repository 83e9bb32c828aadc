use std::time::Duration;

use headrace_core::{Limits, LogPart};

use crate::reader::Record;
use crate::support::*;

fn at_once() -> Limits {
    Limits {
        segment_time: Duration::ZERO,
        ..Limits::default()
    }
}

#[test]
fn a_segment_is_handed_on_once_the_next_one_says_where_it_ends() {
    let log = open(Options::default());
    log.synced_write();
    let open_length = log.core.log_parts()[0].length;
    log.disk.hold();
    log.core.seal();
    log.disk.await_held();
    assert_eq!(log.sealed(), []);
    assert_eq!(
        log.core.log_parts(),
        [LogPart {
            number: 1,
            length: open_length
        }]
    );
    log.disk.let_go();
    wait_until("a sealed segment", || !log.sealed().is_empty());
    let parts = log.core.log_parts();
    assert_eq!(
        parts.iter().map(|part| part.number).collect::<Vec<_>>(),
        [1, 2]
    );
    log.core.segment_taken(1);
    assert_eq!(log.core.log_parts(), parts[1..]);
    log.core.segment_taken(2); // which is open
    assert_eq!(log.core.log_parts(), parts[1..]);
    assert!(log.close());
    let [sealed] = &log.sealed()[..] else {
        panic!()
    };
    let found = &log.read()[0];
    assert_eq!(
        (sealed.header.number, sealed.header.nonce),
        (found.header.number, found.header.nonce)
    );
    assert_eq!((sealed.length, sealed.last_lsn), (found.length, 1));
    assert_eq!(
        sealed
            .last_lsns
            .iter()
            .map(|(name, lsn)| (&**name, *lsn))
            .collect::<Vec<_>>(),
        [("orders", 1)]
    );
    assert_eq!(
        (sealed.first_accepted_us, sealed.has_state),
        (Some(1_000), true)
    );
}

#[test]
fn a_segment_without_writes_is_not_sealed() {
    let log = open(Options {
        limits: at_once(),
        ..Options::default()
    });
    log.core.seal();
    log.synced_write();
    wait_until("a sealed segment", || !log.sealed().is_empty());
    assert!(log.close());
    assert_eq!(log.sealed().len(), 1);
    assert_eq!(log.sealed()[0].last_lsns.len(), 1);
}

#[test]
fn a_segment_with_only_a_collection_is_sealed() {
    let log = open(Options {
        limits: at_once(),
        ..Options::default()
    });
    log.core
        .declare("new", b"{\"name\":\"new\"}", DEADLINE)
        .unwrap();
    wait_until("a sealed segment", || !log.sealed().is_empty());
    assert!(
        log.read()[0]
            .records
            .iter()
            .any(|(_, one)| *one == Record::Collection(b"{\"name\":\"new\"}".into()))
    );
}

#[test]
fn a_segment_is_sealed_by_its_size_whether_or_not_anybody_takes_it() {
    let limits = Limits {
        segment_time: Duration::from_millis(1),
        segment_bytes: 2_000,
        ..Limits::default()
    };
    let log = open(Options {
        limits,
        uploads: false,
        ..Options::default()
    });
    log.synced_write();
    // By its time, as nothing waits before it; from now on there is one that is not uploaded.
    wait_until("a sealed segment", || log.sealed().len() == 1);
    while log.sealed().len() < 2 {
        log.synced_write();
    }
    assert!((2_000..4_000).contains(&log.sealed()[1].length));
}

#[test]
fn a_segment_waits_for_the_uploads_before_it() {
    let limits = Limits {
        segment_time: Duration::from_millis(1),
        ..Limits::default()
    };
    let log = open(Options {
        limits,
        uploads: false,
        ..Options::default()
    });
    log.synced_write();
    wait_until("a sealed segment", || log.sealed().len() == 1); // nothing is before it
    log.synced_write();
    // It waits for the upload of the first one, however long that takes, and what is written goes into it.
    for _ in 0..20 {
        log.synced_write();
    }
    assert_eq!(log.sealed().len(), 1);
    log.core.uploaded(1, 1);
    wait_until("a sealed segment", || log.sealed().len() == 2);
    assert_eq!(log.core.watermarks().object_storage().lsn(), 1);
}

#[test]
fn every_mark_stands_where_it_says_and_has_the_nonce() {
    let log = open(Options::default());
    for _ in 0..3 {
        log.synced_write();
        log.synced_write();
        log.seal();
    }
    assert!(log.close());
    let segments = log.read();
    for segment in &segments[..3] {
        let marks: Vec<_> = segment
            .records
            .iter()
            .filter_map(|(at, record)| match record {
                Record::Mark { durable, nonce, .. } => Some((at, durable, *nonce)),
                _ => None,
            })
            .collect();
        assert!(marks.len() >= 2);
        assert!(
            marks
                .iter()
                .all(|(at, durable, nonce)| at == durable && *nonce == segment.header.nonce)
        );
    }
    assert_ne!(segments[0].header.nonce, segments[1].header.nonce);
    assert_eq!(segments[1].header.previous_length, segments[0].length);
}

#[test]
fn each_segment_names_its_schemas_for_itself() {
    let log = open(Options::default());
    let other = log.core.schema("others", b"another.");
    for _ in 0..2 {
        log.synced_write();
        write_on(log.stream(), &other, 0).unwrap();
        log.synced_write();
        log.seal();
    }
    assert!(log.close());
    for segment in &log.read()[..2] {
        let schemas: Vec<_> = segment
            .records
            .iter()
            .filter_map(|(_, record)| match record {
                Record::Schema {
                    id,
                    collection,
                    message,
                } => Some((*id, &**collection, &message[..])),
                _ => None,
            })
            .collect();
        assert_eq!(
            schemas,
            [
                (0, "orders", &b"schema.."[..]),
                (1, "others", &b"another."[..])
            ]
        );
    }
}

#[test]
fn schemas_of_the_same_content_are_one_and_those_that_nobody_has_are_forgotten() {
    let log = open(Options::default());
    let again = log.core.schema("orders", b"schema..");
    assert!(std::sync::Arc::ptr_eq(&again, &log.schema));
    assert!(!std::sync::Arc::ptr_eq(
        &again,
        &log.core.schema("others", b"schema..")
    ));
}
