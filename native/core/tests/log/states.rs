use std::sync::atomic::Ordering::SeqCst;

use headrace_core::{Committed, LogState, ProducerName, ProducerState};
use serde_json::json;

use crate::reader::Segment;
use crate::support::*;

const SILENCE_US: u64 = 7 * 24 * 3600 * 1_000_000;

fn encoded(state: &LogState) -> serde_json::Value {
    let mut out = Vec::new();
    state.encode(&state.silent(), &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn producer(id: &str) -> std::sync::Arc<ProducerName> {
    std::sync::Arc::new(ProducerName {
        collection: "orders".into(),
        id: id.into(),
    })
}

fn states_in(segments: &[Segment]) -> usize {
    segments
        .iter()
        .filter(|segment| segment.state().is_some())
        .count()
}

fn write_and_seal(producers: usize) -> Vec<Segment> {
    let log = open(Options::default());
    for number in 0..producers {
        let stream = log.open_stream(&format!("producer-{number}"));
        let lsn = write_on(&stream, &log.schema, 1).unwrap();
        log.await_durable(lsn);
    }
    log.synced_write();
    log.seal();
    let large = vec![1; 800];
    for _ in 0..40 {
        log.write_bytes(&large);
        log.synced_write();
        log.seal();
    }
    assert!(log.close());
    log.read()
}

#[test]
fn a_small_state_stands_in_every_segment_and_a_large_one_in_few() {
    let few = write_and_seal(1);
    assert_eq!(states_in(&few[2..]), few.len() - 2);
    let many = write_and_seal(200);
    let bytes: u64 = many.iter().map(|segment| segment.length).sum();
    let length = many
        .iter()
        .filter_map(Segment::state)
        .map(|state| state.to_string().len())
        .max()
        .unwrap();
    let states = states_in(&many);
    assert!(
        1 < states && states as u64 <= 2 + bytes / (2 * length as u64),
        "{states} of {}",
        many.len()
    );
}

#[test]
fn a_state_says_what_stands_before_it() {
    let log = open(Options::default());
    log.core
        .declare(
            "new",
            br#"{"name":"new","schema":"","key":["/id"],"json_schema":null}"#,
            DEADLINE,
        )
        .unwrap();
    log.core
        .declare(
            "new",
            br#"{"name":"new","schema":"AA==","key":[],"json_schema":{"a":[1.5]}}"#,
            DEADLINE,
        )
        .unwrap();
    let stream = log.open_stream("till \"1\"\n");
    let lsn = write_on(&stream, &log.schema, 5).unwrap_err(); // it begins with 1
    assert!(
        lsn.to_string()
            .contains("does not know producer 'till \"1\"\\n'"),
        "{lsn}"
    );
    let stream = log.open_stream("till \"1\"\n");
    let lsn = write_on(&stream, &log.schema, 1).unwrap();
    log.await_durable(lsn);
    log.core.committed("orders", 1, Some(77));
    log.core.committed("new", 1, None);
    log.clock.running_us.fetch_add(500, SeqCst);
    let large = vec![1; 60_000]; // as much as it takes for a state
    log.write_bytes(&large);
    log.synced_write();
    log.seal();
    assert!(log.close());
    let segments = log.read();
    let state = segments[1].state().unwrap();
    assert_eq!(state["last_lsn"], json!(lsn + 2));
    assert_eq!(
        state["reserved_until"],
        json!(segments[1].header.reserved_until)
    );
    assert_eq!(state["uptime_us"], json!(500));
    assert_eq!(
        state["collections"],
        json!([{"name": "new", "schema": "AA==", "key": [], "json_schema": {"a": [1.5]}}])
    );
    assert_eq!(
        state["producers"],
        json!([["orders", "till \"1\"\n", 1, lsn, 0]])
    );
    let mut committed = state["committed"].as_array().unwrap().clone();
    committed.sort_by_key(|one| one.to_string());
    assert_eq!(
        committed,
        [json!(["new", 1, null]), json!(["orders", 1, 77])]
    );
}

#[test]
fn a_state_is_read_back() {
    let text = json!({
        "last_lsn": 9, "reserved_until": 20, "uptime_us": 7,
        "collections": [{"name": "b"}, {"name": "a", "x": {"name": "c"}}],
        "producers": [["a", "p", 3, 9, 5]], "forgotten_lsn": 2, "lost": [[3, 4], [6, 6]],
        "committed": [["a", 8, 1234567890123456789_u64]]
    });
    let state = LogState::decode(text.to_string().as_bytes()).unwrap();
    assert_eq!(
        state
            .collections
            .iter()
            .map(|(name, _)| &**name)
            .collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(encoded(&state), text);
    assert!(LogState::decode(b"{}").is_err());
}

#[test]
fn how_large_a_state_is_can_be_told_without_writing_it() {
    let mut state = LogState {
        last_lsn: 123_456,
        reserved_until: 1_234_567,
        ..LogState::default()
    };
    for number in 0..50 {
        let name = format!("collection_{number}");
        let text = json!({"name": name, "schema": "A".repeat(1000 * number)}).to_string();
        state.declared(&name.as_str().into(), text.as_bytes());
        state.committed.insert(
            name.as_str().into(),
            Committed {
                lsn: number as u64,
                snapshot_id: Some(1 << 60),
            },
        );
        for id in 0..40 {
            let key = ProducerName {
                collection: name.as_str().into(),
                id: format!("producer-{id}").into(),
            };
            state.wrote(&std::sync::Arc::new(key), 7, number as u64);
        }
    }
    let length = encoded(&state).to_string().len() as f64;
    assert!((state.about_bytes() as f64 / length - 1.0).abs() < 0.2);
}

#[test]
fn a_state_says_how_far_anybody_may_have_been_forgotten() {
    let mut state = LogState {
        last_lsn: 99,
        uptime_us: SILENCE_US + 1,
        ..LogState::default()
    };
    state.committed.insert(
        "orders".into(),
        Committed {
            lsn: 70,
            snapshot_id: None,
        },
    );
    for (id, last_lsn, seen_us) in [
        ("silent", 70, 0),
        ("not committed", 71, 0),
        ("heard of", 60, 1),
    ] {
        state.producers.insert(
            producer(id),
            ProducerState {
                last_seq: 7,
                last_lsn,
                seen_us,
            },
        );
    }
    let silent = state.silent();
    let json = encoded(&state);
    let mut kept: Vec<_> = json["producers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one[1].clone())
        .collect();
    kept.sort_by_key(ToString::to_string);
    assert_eq!(
        (kept, &json["forgotten_lsn"]),
        (vec![json!("heard of"), json!("not committed")], &json!(70))
    );
    assert_eq!((state.producers.len(), state.forgotten_lsn), (3, 0));
    state.forget(&silent);
    assert_eq!((state.producers.len(), state.forgotten_lsn), (2, 70));
}

#[test]
fn a_producer_is_forgotten_only_once_the_disk_knows() {
    let log = open(Options::default());
    let stream = log.open_stream("till-1");
    let lsn = write_on(&stream, &log.schema, 1).unwrap();
    drop(stream);
    log.await_durable(lsn);
    log.core.committed("orders", lsn, Some(1));
    log.clock
        .running_us
        .fetch_add(SILENCE_US + 1_000_000, SeqCst);
    let large = vec![1; 60_000]; // as much as it takes for a state
    log.write_bytes(&large);
    log.synced_write();
    log.disk.hold();
    log.core.seal();
    log.disk.await_held();
    log.core.forget_silent();
    assert_eq!(log.core.forgotten_lsn(), 0, "the log's state still has it");
    log.disk.let_go();
    wait_until("a sealed segment", || !log.sealed().is_empty());
    log.core.forget_silent();
    assert_eq!(log.core.forgotten_lsn(), lsn);
    let (_, greeting) = log.core.open_stream(stream_options("orders", "till-1"));
    assert_eq!((greeting.last_seq, greeting.forgotten_lsn), (None, lsn));
    assert!(log.close());
    assert_eq!(log.read()[1].state().unwrap()["producers"], json!([]));
}

#[test]
fn producers_are_aged_by_the_time_in_which_servers_ran() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = Vec::new();
    for start in 0..6 {
        let log = open_in(folder.path(), Options::default()).unwrap();
        let (recovered, ..) = recover(folder.path(), 0);
        known.push(recovered.state.producers.len());
        log.core.committed("orders", 1 << 62, None);
        if start == 0 {
            let stream = log.open_stream("till-1");
            log.await_durable(write_on(&stream, &log.schema, 1).unwrap());
        }
        log.clock.wall_us.store(u64::MAX / 2, SeqCst); // which makes no difference
        log.clock.running_us.fetch_add(SILENCE_US / 4, SeqCst);
        let large = vec![1; 60_000];
        log.write_bytes(&large);
        log.synced_write();
        log.seal();
        assert!(log.close());
    }
    assert_eq!(known, [0, 1, 1, 1, 1, 0]);
}
