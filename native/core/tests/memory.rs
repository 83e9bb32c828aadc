//! What a million writes cost that wait to be announced at their last tier.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_core::{
    Appended, Config, Core, Defects, DiskFiles, Limits, LogState, Message, NoHooks, Recovered,
    StreamOptions, SystemClock, Tier, Tiers,
};

const A_MILLION: u64 = 1_000_000;

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The worst case is two streams of which no two writes are neighbours, because the other one writes in between.
#[test]
fn a_million_writes_in_flight_stay_under_fifty_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        folder: folder.path().to_owned(),
        term: 0,
        number: 1,
        previous_length: 0,
        uploaded_segment: 0,
        uploaded_lsn: 0,
        limits: Limits {
            group_bytes: 1 << 20,
            waiting_bytes: 1 << 20,
            ..Limits::default()
        },
        files: Box::new(DiskFiles::new(Arc::new(NoHooks), Defects::default())),
        clock: Arc::new(SystemClock::new()),
        defects: Defects::default(),
        on_event: Box::new(|_| {}),
    };
    let state = LogState {
        reserved_until: 1,
        ..LogState::default()
    };
    let core = Core::open(
        config,
        Recovered {
            state,
            runs: Vec::new(),
        },
    )
    .unwrap();
    let options = StreamOptions {
        collection: "orders".into(),
        producer: String::new(),
        levels: Tiers::ALL,
        by_watermark: false,
        resume_after: None,
        first_seq: 1,
        peer: String::new(),
    };
    let streams = [
        core.open_stream(options.clone()).0,
        core.open_stream(options).0,
    ];
    let schema = core.schema("orders", b"schema..");
    let before = resident_bytes();
    let mut written = 0;
    while written < A_MILLION {
        let stream = &streams[(written % 2) as usize]; // in turn
        let message = Message {
            schema: &schema,
            pieces: &[&[1; 16], &[2; 120]],
            seq: 0,
            rows: None,
            row_count: 1,
            size: 0,
            arrived: Instant::now(),
        };
        match stream.append(&message).unwrap() {
            Appended::Written { .. } => written += 1,
            other => assert_eq!(other, Appended::NoNumbers),
        }
        while stream.must_wait().is_some() {
            core.advances()
                .wait_above(core.advances().number(), Duration::from_millis(1));
        }
    }
    let mut most = resident_bytes() - before;
    for stream in &streams {
        assert_eq!(stream.pending(Tier::Committed), A_MILLION / 2);
        while stream.pending(Tier::Memory) > 0 {
            stream.announce();
            most = most.max(resident_bytes() - before);
        }
    }
    assert!(most < 50 << 20, "{most} bytes");
}
