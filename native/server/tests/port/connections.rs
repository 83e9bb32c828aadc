//! What connections may take up, and that those who take too much hold up nobody else.

use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use headrace_core::Limits as LogLimits;
use headrace_server::port::Limits;
use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{DEADLINE, Running, batch, schema, wait_until};

const ORDERS: &[&str] = &["streaming_write", "orders"];
const EXCHANGE: &str = "http://localhost/arrow.flight.protocol.FlightService/DoExchange";

async fn connect(running: &Running) -> TcpStream {
    TcpStream::connect(("127.0.0.1", running.server.port()))
        .await
        .unwrap()
}

async fn raw_client(running: &Running) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(connect(running).await).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Opens a stream of writes, of which nothing is sent yet.
async fn raw_exchange(client: SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(EXCHANGE).body(()).unwrap();
    let mut client = client.ready().await.unwrap();
    client.send_request(request, false).unwrap()
}

/// Sends as much as the windows let through.
async fn send_raw(stream: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await;
        let part = data.split_to(capacity.unwrap().unwrap().min(data.len()));
        stream.send_data(part, false).unwrap();
    }
}

/// A schema, and a write under it.
fn first_write() -> Bytes {
    [schema(), batch(&[1])].concat().into()
}

/// Ends a call without a message, and waits for the answer.
async fn refused((answer, mut stream): (ResponseFuture, SendStream<Bytes>)) {
    stream.send_data(Bytes::new(), true).unwrap();
    let mut body = in_time("an answer", answer).await.unwrap().into_body();
    let trailers = in_time("trailers", body.trailers()).await.unwrap();
    assert_eq!(trailers.unwrap()["grpc-status"], "2");
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(DEADLINE, future).await;
    ended.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

#[tokio::test]
async fn messages_of_many_streams_come_in_pieces_through_one_connection() {
    const SIZE: u32 = 100_000;
    let running = Running::start();
    let client = raw_client(&running).await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        let (answer, stream) = raw_exchange(client.clone()).await;
        streams.push((answer, stream));
    }
    let frame = [&[0][..], &SIZE.to_be_bytes(), &vec![0xff; SIZE as usize]].concat();
    for piece in Bytes::from(frame).chunks(10_000) {
        for (_, stream) in &mut streams {
            let piece = Bytes::copy_from_slice(piece);
            in_time("a window", send_raw(stream, piece)).await;
        }
    }
    for (answer, _stream) in streams {
        let mut body = in_time("an answer", answer).await.unwrap().into_body();
        let trailers = in_time("trailers", body.trailers()).await.unwrap();
        assert!(trailers.unwrap().contains_key("grpc-status"));
    }
    let shared = running.server.shared();
    assert_eq!(shared.parts.free_bytes(), 128 << 20);
}

/// Has two streams of a connection wait for the log, with as much behind them as they may send.
#[tokio::test]
async fn streams_that_wait_hold_up_no_other_of_their_connection() {
    let running = Running::start();
    let client = raw_client(&running).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let (answer, mut stream) = raw_exchange(client.clone()).await;
        // Until the first numbers are set aside, a stream waits for them instead.
        let before = running.core.statistics().writes;
        in_time("a window", send_raw(&mut stream, first_write())).await;
        wait_until("a write", || running.core.statistics().writes > before).await;
        waiting.push((answer, stream));
    }
    running.core.set_backed_up(Some("the log is full"));
    for (_, stream) in &mut waiting {
        let write = Bytes::from(batch(&[1]));
        in_time("a window", send_raw(stream, write.clone())).await;
        let left = (256 << 10) - first_write().len() - write.len();
        in_time("a window", send_raw(stream, vec![0; left].into())).await;
    }
    // A message that is larger than what is beside one stream comes through.
    let before = running.core.statistics().writes;
    let (_answer, mut other) = raw_exchange(client).await;
    let write = [schema(), batch(&vec![7; 20_000])].concat();
    in_time("a window", send_raw(&mut other, write.into())).await;
    wait_until("a write", || running.core.statistics().writes > before).await;
}

async fn writes(running: &Running) {
    let mut stream = in_time("a connection", running.open(ORDERS)).await;
    stream.send(&[1], &json!({"levels": ["MEMORY"]}));
    stream
        .until(|stream| stream.lsns("MEMORY").len() == 1)
        .await;
}

/// Waits until the server hangs up.
async fn hung_up(mut connection: TcpStream) {
    let mut said = [0; 1024];
    let end = async {
        while connection
            .read(&mut said)
            .await
            .is_ok_and(|bytes| bytes > 0)
        {}
    };
    in_time("the end of a connection", end).await;
}

#[tokio::test]
async fn those_who_say_nothing_lock_nobody_out() {
    const SILENT: usize = 100;
    let limits = Limits {
        handshakes: 8,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let mut silent = Vec::new();
    for number in 0..SILENT {
        let mut connection = connect(&running).await;
        if number % 2 == 0 {
            connection.write_all(b"PRI * HTTP").await.unwrap();
        }
        silent.push(connection);
    }
    writes(&running).await;
    let gate = &running.server.shared().gate;
    assert!(gate.turned_away.handshake.load(Relaxed) >= (SILENT - 8) as u64);
    assert_eq!(gate.turned_away.full.load(Relaxed), 0);
    // The oldest have made room.
    for connection in silent.drain(..SILENT / 4) {
        hung_up(connection).await;
    }
}

#[tokio::test]
async fn a_handshake_has_an_end() {
    let limits = Limits {
        handshake: Duration::from_millis(10),
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let mut slow = connect(&running).await;
    slow.write_all(b"PRI * HTTP").await.unwrap();
    hung_up(slow).await;
    hung_up(connect(&running).await).await;
    let gate = &running.server.shared().gate;
    wait_until("room", || gate.count() == (0, 0)).await;
    assert_eq!(gate.turned_away.handshake.load(Relaxed), 2);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_counted_and_those_with_a_call_stay() {
    let limits = Limits {
        connections: 5,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let gate = &running.server.shared().gate;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let client = raw_client(&running).await;
        let call = in_time("a call", raw_exchange(client.clone())).await;
        clients.push((client, call));
    }
    wait_until("all calls", || (gate.count(), gate.idle()) == ((5, 0), 0)).await;
    hung_up(connect(&running).await).await;
    assert_eq!(gate.turned_away.full.load(Relaxed), 1);
    for (client, _) in &clients {
        let _call = in_time("a call", raw_exchange(client.clone())).await;
    }
    clients.pop();
    wait_until("room", || gate.count() == (4, 0)).await;
    writes(&running).await;
}

#[tokio::test]
async fn idle_connections_make_room_and_those_with_a_call_stay() {
    let limits = Limits {
        connections: 5,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let gate = &running.server.shared().gate;
    let mut stays = running.open(ORDERS).await;
    stays.send(&[1], &json!({"levels": ["MEMORY"]}));
    stays.until(|stream| stream.lsns("MEMORY").len() == 1).await;
    let mut idle = Vec::new();
    for number in 1..5 {
        idle.push(
            h2::client::handshake(connect(&running).await)
                .await
                .unwrap(),
        );
        wait_until("a connection", || gate.count() == (number + 1, 0)).await;
    }
    // One whose calls have ended is idle again.
    let (client, connection) = idle.pop().unwrap();
    let connection = tokio::spawn(connection);
    refused(raw_exchange(client.clone()).await).await;
    wait_until("idle connections", || gate.idle() == 4).await;
    for _ in 0..3 {
        let mut other = in_time("a connection", running.open(ORDERS)).await;
        other.send(&[1], &json!({"levels": ["MEMORY"]}));
        other.until(|stream| stream.lsns("MEMORY").len() == 1).await;
        std::mem::forget(other);
    }
    assert_eq!(gate.turned_away.idle.load(Relaxed), 3);
    for (_client, connection) in idle {
        in_time("a goodbye", connection).await.unwrap();
    }
    let _call = in_time("a call", raw_exchange(client)).await;
    wait_until("a call", || gate.idle() == 0).await;
    assert!(!connection.is_finished());
    hung_up(connect(&running).await).await;
    stays.send(&[2], &Value::Null);
    stays.until(|stream| stream.lsns("MEMORY").len() == 2).await;
}

#[tokio::test]
async fn idle_connections_leave_room_for_as_many_as_there_may_be() {
    // Of windows of 256 KiB, this would be enough for half of them.
    let limits = Limits {
        receive_bytes: 64 << 20,
        ..Limits::default()
    };
    let most = limits.most_connections();
    assert_eq!((most, Limits::default().most_connections()), (256, 2048));
    let running = Running::with(LogLimits::default(), limits, None);
    let shared = running.server.shared();
    let mut idle = Vec::new();
    for _ in 1..most {
        idle.push(in_time("a connection", raw_client(&running)).await);
    }
    wait_until("all of them", || shared.gate.count() == (most - 1, 0)).await;
    writes(&running).await;
    assert_eq!(shared.gate.turned_away.full.load(Relaxed), 0);
    assert!(shared.windows.free_bytes() >= shared.windows.bytes() / 2);
}

#[tokio::test]
async fn a_connection_has_so_many_calls_at_a_time() {
    let limits = Limits {
        streams: 3,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let connection = connect(&running).await;
    let (client, connection) = h2::client::handshake(connection).await.unwrap();
    // All of them are sent before the client has read how many there may be.
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(raw_exchange(client.clone()).await);
    }
    tokio::spawn(connection);
    let (beyond, _stream) = calls.pop().unwrap();
    let error = in_time("an answer", beyond).await.unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM));
    refused(calls.pop().unwrap()).await;
    refused(raw_exchange(client.clone()).await).await;
    writes(&running).await;
}

#[tokio::test]
async fn a_peer_that_does_not_answer_is_hung_up_on_and_others_stay() {
    let limits = Limits {
        ping_after: Duration::from_millis(10),
        pong_within: Duration::from_secs(3),
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let mut other = running.open(ORDERS).await;
    other.send(&[1], &json!({"levels": ["MEMORY"]}));
    other.until(|stream| stream.lsns("MEMORY").len() == 1).await;
    let (client, mut connection) = h2::client::handshake(connect(&running).await)
        .await
        .unwrap();
    let gate = &running.server.shared().gate;
    {
        let opened = raw_exchange(client.clone());
        let (_answer, stream) = tokio::select! {
            opened = opened => opened,
            _ = &mut connection => panic!("the connection has ended"),
        };
        tokio::select! {
            () = wait_until("both connections", || gate.count() == (2, 0)) => {}
            _ = &mut connection => panic!("the connection has ended"),
        }
        drop(stream);
    }
    // From here on nobody reads what the server sends, and the socket stays open.
    wait_until("the end of the one", || gate.count() == (1, 0)).await;
    other.send(&[2], &Value::Null);
    other.until(|stream| stream.lsns("MEMORY").len() == 2).await;
    drop((client, connection));
}

#[tokio::test]
async fn windows_that_grew_are_given_back_by_who_became_quiet_and_loses_nothing() {
    let limits = Limits {
        quiet: Duration::from_millis(20),
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let free = || running.server.shared().windows.free_bytes();
    let mut stream = running.open(ORDERS).await;
    let mut sent = 0;
    let mut write = async |size: usize| {
        let metadata = if sent == 0 {
            json!({"levels": ["MEMORY"]})
        } else {
            Value::Null
        };
        stream.send(&vec![7; size / 8], &metadata);
        sent += 1;
        stream
            .until(|stream| stream.lsns("MEMORY").len() == sent)
            .await;
    };
    write(8).await;
    let at_first = free();
    let grown = async {
        while free() == at_first {
            write(8 << 20).await;
        }
    };
    in_time("larger windows", grown).await;
    let given_back = async {
        while free() < at_first {
            write(10 << 10).await;
        }
    };
    in_time("windows as at first", given_back).await;
    for size in [8 << 20, 8, 1 << 20] {
        write(size).await;
    }
    assert_eq!(running.core.statistics().writes as usize, sent);
}

#[tokio::test]
async fn headers_are_no_larger_than_those_of_grpc() {
    let running = Running::start();
    let mut client = raw_client(&running).await.ready().await.unwrap();
    for (size, status) in [(8 << 10, 200), (20 << 10, 431)] {
        let request = Request::post(EXCHANGE).header("x-large", "x".repeat(size));
        let (answer, _stream) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        let answer = in_time("an answer", answer).await.unwrap();
        assert_eq!(answer.status(), status);
    }
}

#[tokio::test]
async fn messages_compressed_by_grpc_are_not_implemented_and_the_answer_says_what_is() {
    let running = Running::start();
    let (answer, mut stream) = raw_exchange(raw_client(&running).await).await;
    let compressed = Bytes::from_static(&[1, 0, 0, 0, 4, 0x1f, 0x8b, 8, 0]);
    stream.send_data(compressed, false).unwrap();
    let answer = in_time("an answer", answer).await.unwrap();
    assert_eq!(answer.headers()["grpc-accept-encoding"], "identity");
    let trailers = in_time("trailers", answer.into_body().trailers()).await;
    assert_eq!(trailers.unwrap().unwrap()["grpc-status"], "12");
}
