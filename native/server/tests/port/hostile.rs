//! Clients that send what stock ones do not.

use arrow_flight::FlightData;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use bytes::Bytes;
use headrace_core::Limits as LogLimits;
use headrace_server::port::Limits;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{DEADLINE, Running, batch, framed, ids, schema, wait_until};

const ORDERS: &[&str] = &["streaming_write", "orders"];
const LARGEST_FRAME: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// One call of HTTP/2, frame by frame.
struct Frames(TcpStream);

impl Frames {
    async fn open(running: &Running) -> Self {
        let address = ("127.0.0.1", running.server.port());
        let mut frames = Self(TcpStream::connect(address).await.unwrap());
        frames
            .0
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        frames.send(SETTINGS, 0, 0, &[]).await;
        // Windows are those of the server's settings from when these have been agreed to.
        while frames.read().await.unwrap() != (SETTINGS, 0) {}
        frames.send(SETTINGS, ACK, 0, &[]).await;
        let mut headers = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/arrow.flight.protocol.FlightService/DoExchange"),
            (":authority", "localhost"),
        ] {
            headers.extend([0, name.len() as u8]);
            headers.extend(name.as_bytes());
            headers.push(value.len() as u8);
            headers.extend(value.as_bytes());
        }
        frames.send(HEADERS, 4, 1, &headers).await;
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        // One that was hung up on is found out about where the answer is read.
        let _ = self.0.write_all(&frame(kind, flags, stream, payload)).await;
    }

    /// Sends each byte in a frame of its own.
    async fn bytes(&mut self, data: &[u8]) {
        let frames = data.iter().flat_map(|byte| frame(DATA, 0, 1, &[*byte]));
        let _ = self.0.write_all(&frames.collect::<Vec<_>>()).await;
    }

    async fn data(&mut self, data: &[u8]) {
        for part in data.chunks(LARGEST_FRAME) {
            self.send(DATA, 0, 1, part).await;
        }
    }

    /// The next frame's kind and flags.
    async fn read(&mut self) -> Option<(u8, u8)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4]))
    }

    /// Waits until the server has read everything that was sent, or has hung up.
    async fn is_alive(&mut self) -> bool {
        self.send(PING, 0, 0, &[7; 8]).await;
        let answered = async {
            loop {
                match self.read().await {
                    Some((PING, ACK)) => return true,
                    None | Some((GOAWAY | RESET, _)) => return false,
                    Some(_) => {}
                }
            }
        };
        tokio::time::timeout(DEADLINE, answered).await.unwrap()
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A write as small as clients in Go and C++ send it.
fn small_batch() -> Vec<u8> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap();
    let (mut dictionaries, mut context) =
        (DictionaryTracker::new(false), IpcWriteContext::default());
    let (_, data) = IpcDataGenerator::default()
        .encode(&ids(&[1]), &mut dictionaries, &options, &mut context)
        .unwrap();
    let data = FlightData::new()
        .with_data_header(data.ipc_message)
        .with_data_body(data.arrow_data);
    framed(&data)
}

fn is_throttled(running: &Running) -> bool {
    let streams = running.core.streams();
    streams.iter().any(|stream| stream.throttled.is_some())
}

#[tokio::test]
async fn who_sends_each_small_write_in_a_frame_of_its_own_may_be_made_to_wait() {
    let running = Running::start();
    let mut client = Frames::open(&running).await;
    client.data(&schema()).await;
    let small = small_batch();
    client.data(&small).await;
    // Until the first numbers are set aside, a stream waits for them instead.
    wait_until("a write", || running.core.statistics().writes == 1).await;
    running.core.set_backed_up(Some("the log is full"));
    client.data(&small).await;
    wait_until("a stream that is not read", || is_throttled(&running)).await;
    let count = (252 << 10) / small.len(); // all that there is a window for
    for _ in 0..count {
        client.data(&small).await;
    }
    assert!(client.is_alive().await);
    running.core.set_backed_up(None);
    let all = count as u64 + 2;
    wait_until("all writes", || running.core.statistics().writes == all).await;
}

/// Of a frame of one byte HTTP/2's buffer keeps a few hundred, and everything that came with it.
#[tokio::test]
async fn what_waits_takes_no_more_memory_in_frames_of_a_byte() {
    let running = Running::start();
    let mut client = Frames::open(&running).await;
    let first = [schema(), small_batch()].concat();
    client.data(&first).await;
    wait_until("a write", || running.core.statistics().writes == 1).await;
    running.core.set_backed_up(Some("the log is full"));
    client.data(&small_batch()).await;
    wait_until("a stream that is not read", || is_throttled(&running)).await;
    let small = small_batch();
    let count = (252 << 10) / small.len();
    for number in 0..count {
        client.bytes(&small).await;
        // All of them in the buffer at once would be too many.
        if number % 16 == 0 {
            assert!(client.is_alive().await);
        }
    }
    assert!(client.is_alive().await);
    running.core.set_backed_up(None);
    let all = count as u64 + 2;
    wait_until("all writes", || running.core.statistics().writes == all).await;
}

#[tokio::test]
async fn who_waits_for_the_log_holds_no_room_for_messages() {
    let running = Running::start();
    let parts = &running.server.shared().parts;
    let free = parts.free_bytes();
    let mut stream = running.open(ORDERS).await;
    // Until the first numbers are set aside, a stream waits for them instead.
    stream.send(&[7], &Value::Null);
    stream
        .until(|stream| !stream.lsns("MEMORY").is_empty())
        .await;
    running.core.set_backed_up(Some("the log is full"));
    stream.send(&vec![7; 100_000], &Value::Null);
    wait_until("a stream that is not read", || is_throttled(&running)).await;
    assert_eq!(parts.free_bytes(), free);
}

#[tokio::test]
async fn those_who_each_have_a_part_of_a_message_do_not_wait_for_each_other() {
    const PART: usize = 160 << 10;
    let limits = Limits {
        receive_bytes: 8 << 20,
        message_bytes: 2 << 20,
        ..Limits::default()
    };
    let running = Running::with(LogLimits::default(), limits, None);
    let parts = &running.server.shared().parts;
    let message = Bytes::from(batch(&vec![7; 200_000]));
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut stream = exchange(&running).await;
        stream.send_data(schema().into(), false).unwrap();
        clients.push((stream, message.clone()));
    }
    while parts.free_bytes() >= PART {
        for (stream, left) in &mut clients {
            let free = parts.free_bytes();
            stream.send_data(left.split_to(PART), false).unwrap();
            wait_until("a part", || parts.free_bytes() < free.max(PART)).await;
        }
    }
    for (stream, left) in &mut clients {
        assert!(left.len() > 2 * PART);
        stream.send_data(left.clone(), false).unwrap();
    }
    wait_until("both messages", || running.core.statistics().writes == 2).await;
}

/// What a client sends in a call that it never reads.
async fn exchange(running: &Running) -> h2::SendStream<Bytes> {
    let stream = TcpStream::connect(("127.0.0.1", running.server.port()))
        .await
        .unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let path = "http://localhost/arrow.flight.protocol.FlightService/DoExchange";
    let request = http::Request::post(path).body(()).unwrap();
    let (answer, stream) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, false)
        .unwrap();
    tokio::spawn(async move {
        let _open = answer.await;
        std::future::pending::<()>().await;
    });
    stream
}
