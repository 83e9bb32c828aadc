use std::sync::atomic::Ordering::SeqCst;

use arrow_flight::FlightData;
use headrace_core::Limits as LogLimits;
use headrace_server::access::Token;
use headrace_server::port::{Limits, Shared};
use headrace_server::refusal::Refusal;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Exchange, Running, flight_data, ids, refusal_of, wait_until};

const ORDERS: &[&str] = &["streaming_write", "orders"];
const LEVELS: [&str; 4] = ["MEMORY", "LOCAL_DISK", "OBJECT_STORAGE", "COMMITTED"];

#[tokio::test]
async fn each_batch_gets_one_lsn_and_a_row_for_each_tier() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    for number in 0..10 {
        stream.send(&vec![1; number + 1], &Value::Null);
    }
    stream
        .until(|stream| stream.lsns("LOCAL_DISK").len() == 10)
        .await;
    let lsns = stream.lsns("MEMORY");
    assert_eq!(lsns, (lsns[0]..lsns[0] + 10).collect::<Vec<_>>());
    running.settle(lsns[9], 77);
    stream.done_writing();
    stream.end().await.unwrap();
    assert_eq!(
        stream.columns,
        [
            "lsn",
            "durability_level",
            "is_durability_update",
            "timestamp"
        ]
    );
    for level in LEVELS {
        assert_eq!(stream.lsns(level), lsns, "{level}");
    }
    assert!(
        stream
            .messages
            .iter()
            .all(|message| *message == json!({"snapshot_id": 77}))
    );
    assert_eq!(running.core.statistics().rows, 55);
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_told_nothing() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    stream.send_raw(flight_data(&ids(&[1])).0);
    stream.done_writing();
    stream.end().await.unwrap();
    assert_eq!(
        (
            stream.acks.len(),
            stream.messages.len(),
            stream.columns.len()
        ),
        (0, 0, 4)
    );
}

#[tokio::test]
async fn options_come_with_the_first_batch_or_alone_before_it() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &json!({"levels": ["LOCAL_DISK"]}));
    stream
        .until(|stream| !stream.lsns("LOCAL_DISK").is_empty())
        .await;
    assert_eq!(stream.messages[0]["session"]["collection"], "orders");
    assert_eq!(stream.messages[0]["session"]["lost"], json!([[5, 6]]));
    assert!(stream.lsns("MEMORY").is_empty());
    let mut stream = running.open(ORDERS).await;
    stream.options(&json!({"levels": ["MEMORY"]}));
    stream.until(|stream| !stream.messages.is_empty()).await;
    stream.send(&[1], &Value::Null);
    stream.send(&[2], &Value::Null);
    stream
        .until(|stream| stream.lsns("MEMORY").len() == 2)
        .await;
    stream.send(&[3], &json!({"acks": "watermark"}));
    let (code, refusal) = stream.refusal().await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::Unknown, &json!("ConfigError"))
    );
    assert_eq!(
        refusal["message"],
        "options come with the first message of a stream, not with a later one"
    );
}

#[tokio::test]
async fn a_producer_sends_again_what_was_not_answered() {
    let running = Running::start();
    let options = json!({"producer": "till", "levels": ["MEMORY"], "seq": 1, "rows": [1, 2]});
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1, 2, 3], &options);
    stream
        .until(|stream| stream.lsns("MEMORY").len() == 2)
        .await;
    let first = stream.lsns("MEMORY")[0];
    assert_eq!(stream.messages[1], json!({"assigned": [[1, first, 2]]}));
    let mut again = running.open(ORDERS).await;
    again.send(
        &[2, 3, 4, 5],
        &json!({"producer": "till", "levels": ["MEMORY"], "seq": 2, "rows": [2, 1, 1], "resume_after": 0}),
    );
    again.until(|stream| stream.lsns("MEMORY").len() == 3).await;
    let session = &again.messages[0]["session"];
    assert_eq!(
        (&session["last_seq"], &session["assigned"]),
        (&json!(2), &json!([[1, first, 2]]))
    );
    assert_eq!(again.lsns("MEMORY"), [first + 1, first + 2, first + 3]);
    assert_eq!(running.core.statistics().rows, 5); // of the second message only the new ones
    stream.send(&[9], &json!({"seq": 9}));
    let (code, refusal) = stream.refusal().await;
    assert_eq!((code, &refusal["error"]), (Code::Unknown, &json!("Fenced")));
}

#[tokio::test]
async fn a_producer_that_is_not_known_may_not_go_on_counting() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &json!({"producer": "till", "seq": 7}));
    let (_, refusal) = stream.refusal().await;
    assert_eq!(refusal["error"], "UnknownProducer");
    assert_eq!(
        refusal["fields"],
        json!({"producer": "till", "collection": "orders", "first_seq": 7})
    );
}

#[tokio::test]
async fn what_came_before_an_error_is_acknowledged_first() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &Value::Null);
    let (_, mut bad) = flight_data(&ids(&[1, 2]));
    bad.data_body = bad.data_body.slice(..8);
    stream.send_raw(bad);
    let (code, refusal) = stream.refusal().await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::Unknown, &json!("ConfigError"))
    );
    assert_eq!(
        (stream.lsns("MEMORY").len(), stream.lsns("LOCAL_DISK").len()),
        (1, 1)
    );
    let statistics = running.core.statistics();
    assert_eq!((statistics.writes, statistics.refused), (1, 1));
}

#[tokio::test]
async fn a_schema_that_is_refused_ends_the_stream_with_the_reason() {
    let running = Running::start();
    *running.control.refusal.lock() = Some(Refusal::schema("orders", "it is too wide"));
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &Value::Null);
    let (code, refusal) = stream.refusal().await;
    assert_eq!(code, Code::Unknown);
    assert_eq!(refusal["message"], "collection 'orders': it is too wide");
    assert_eq!(running.core.statistics().writes, 0);
}

#[tokio::test]
async fn a_panic_ends_one_stream_alone() {
    let running = Running::start();
    let mut other = running.open(ORDERS).await;
    other.send(&[1], &json!({"levels": ["MEMORY"]}));
    other.until(|stream| stream.lsns("MEMORY").len() == 1).await;
    running.control.panics.store(true, SeqCst);
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &Value::Null);
    let (code, refusal) = stream.refusal().await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::Internal, &json!("InternalError"))
    );
    assert_eq!(refusal["transient"], false);
    other.send(&[2], &Value::Null);
    other.until(|stream| stream.lsns("MEMORY").len() == 2).await;
    wait_until("the end of the stream", || {
        running.core.streams().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let running = Running::start();
    let free = |shared: &Shared| (shared.windows.free_bytes(), shared.parts.free_bytes());
    let at_first = free(running.server.shared());
    for number in 0..20 {
        let mut stream = running.open(ORDERS).await;
        stream.send(&[1], &Value::Null);
        if number % 2 == 0 {
            stream
                .until(|stream| !stream.lsns("MEMORY").is_empty())
                .await;
        }
    }
    wait_until("the end of all streams", || {
        running.core.streams().is_empty()
    })
    .await;
    let shared = running.server.shared();
    wait_until("the end of all connections", || {
        shared.gate.count() == (0, 0)
    })
    .await;
    wait_until("the return of all room", || free(shared) == at_first).await;
}

#[tokio::test]
async fn who_does_not_read_acknowledgements_holds_up_nobody_else() {
    let log = LogLimits {
        ranges: 1000,
        ..LogLimits::default()
    };
    let running = Running::with(log, Limits::default(), None);
    let mut deaf = running.open_narrow(ORDERS).await;
    let mut other = running.open(ORDERS).await;
    other.send(&[1], &json!({"levels": ["MEMORY"]}));
    deaf.send(&[1], &json!({"producer": "deaf", "seq": 1}));
    for seq in 1..20_000u64 {
        deaf.send(&[1], &json!({"seq": 2 * seq}));
    }
    let throttled = || {
        running
            .core
            .streams()
            .iter()
            .any(|stream| stream.throttled.is_some())
    };
    wait_until("a stream that is not read", throttled).await;
    other.send(&[2], &Value::Null);
    other.until(|stream| stream.lsns("MEMORY").len() == 2).await;
    deaf.until(|stream| stream.lsns("LOCAL_DISK").len() == 20_000)
        .await;
    assert!(
        deaf.messages
            .iter()
            .any(|message| message["throttled"].is_string())
    );
    assert!(
        deaf.messages
            .iter()
            .any(|message| message["throttled"].is_null())
    );
}

fn token(secret: &str, write: &[&str]) -> Token {
    Token {
        name: "till".to_owned(),
        digest: digest(&SHA256, secret.as_bytes())
            .as_ref()
            .try_into()
            .unwrap(),
        write: write.iter().map(|name| (*name).to_owned()).collect(),
        is_admin: false,
        other_roles: Vec::new(),
    }
}

async fn refused(running: &Running, path: &[&str], secret: Option<&str>) -> (Code, Value) {
    let opened = Exchange::open_with(running.channel().await, path, secret).await;
    match opened {
        Err(status) => refusal_of(&status),
        Ok(mut stream) => {
            stream.send(&[1], &Value::Null);
            stream.refusal().await
        }
    }
}

#[tokio::test]
async fn a_token_says_what_may_be_written() {
    let tokens = Some(vec![token("a long secret", &["orders"])]);
    let running = Running::with(LogLimits::default(), Limits::default(), tokens);
    let (code, refusal) = refused(&running, ORDERS, None).await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::Unauthenticated, &json!("Unauthenticated"))
    );
    assert_eq!(
        refused(&running, ORDERS, Some("another secret")).await.0,
        Code::Unauthenticated
    );
    let secret = Some("a long secret");
    let (code, refusal) = refused(&running, &["streaming_write", "returns"], secret).await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::PermissionDenied, &json!("Unauthorized"))
    );
    let mut stream = Exchange::open_with(running.channel().await, ORDERS, Some("a long secret"))
        .await
        .unwrap();
    stream.send(&[1], &Value::Null);
    stream
        .until(|stream| stream.lsns("MEMORY").len() == 1)
        .await;
    // Withdrawn, it ends its stream at one of the next messages: it is looked at once a second.
    *running.control.tokens.lock() = Some(Vec::new());
    let status = loop {
        stream.send(&[1], &Value::Null);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        if let Err(status) = stream.read().await {
            break status;
        }
    };
    let (code, refusal) = refusal_of(&status);
    assert_eq!(code, Code::Unauthenticated);
    assert_eq!(
        refusal["message"],
        "token 'till' was changed or withdrawn: connect again"
    );
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let running = Running::start();
    let mut stream = running.open(ORDERS).await;
    stream.send(&[1], &Value::Null);
    stream
        .until(|stream| stream.lsns("LOCAL_DISK").len() == 1)
        .await;
    let stopping = tokio::task::spawn_blocking(move || {
        running.server.stop(std::time::Duration::from_secs(10));
        running
    });
    let (code, refusal) = stream.refusal().await;
    assert_eq!(
        (code, &refusal["error"]),
        (Code::Unavailable, &json!("ServerUnavailable"))
    );
    drop(stream);
    let running = stopping.await.unwrap();
    assert!(running.core.streams().is_empty());
}

#[tokio::test]
async fn messages_of_any_size_come_through_and_too_large_ones_are_refused() {
    let limits = Limits {
        message_bytes: 8 << 20,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let mut stream = running.open(ORDERS).await;
    for rows in [1, 1000, 100_000, 900_000] {
        stream.send(&vec![7; rows], &Value::Null);
    }
    stream
        .until(|stream| stream.lsns("LOCAL_DISK").len() == 4)
        .await;
    assert_eq!(running.core.statistics().rows, 1_001_001);
    stream.send(&vec![7; 1_100_000], &Value::Null);
    let (_, refusal) = stream.refusal().await;
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.ends_with("bytes and may have 8,388,608: split it"),
        "{message}"
    );
}

#[tokio::test]
async fn nonsense_ends_the_stream_in_a_sentence() {
    let running = Running::start();
    let (schema, batch) = flight_data(&ids(&[1]));
    for (messages, said) in [
        (vec![], "the stream ended before its first message"),
        (vec![FlightData::new()], "the descriptor is not a path"),
        (
            vec![schema.clone(), schema.clone()],
            "the schema came a second time",
        ),
        (vec![batch], "a batch came before its schema"),
        (
            vec![FlightData {
                data_header: vec![9; 90].into(),
                ..schema
            }],
            "cannot be read as Arrow",
        ),
    ] {
        let mut stream = running
            .open(if said.contains("path") { &[] } else { ORDERS })
            .await;
        messages
            .into_iter()
            .for_each(|message| stream.send_raw(message));
        stream.done_writing();
        let (code, refusal) = stream.refusal().await;
        assert_eq!(
            (code, &refusal["error"]),
            (Code::Unknown, &json!("ConfigError"))
        );
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
    }
}
