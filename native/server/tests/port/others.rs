use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Ticket};
use bytes::Bytes;
use http::{HeaderMap, Response};
use tonic::{Code, Request};

use crate::support::{DEADLINE, Running, wait_until};

/// Answers every call with what it was sent, in two parts, and with trailers of its own.
fn echo(socket: &Path) {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let (head, mut body) = request.into_parts();
                        let mut said = Vec::new();
                        while let Some(Ok(data)) = body.data().await {
                            let _ = body.flow_control().release_capacity(data.len());
                            said.extend_from_slice(&data);
                        }
                        let response =
                            Response::builder().header("content-type", "application/grpc");
                        let mut stream = respond
                            .send_response(response.body(()).unwrap(), false)
                            .unwrap();
                        if head.uri.path().ends_with("DoGet") {
                            for _ in 0..3 {
                                stream.send_data(Bytes::from(said.clone()), false).unwrap();
                            }
                        }
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", "5".parse().unwrap());
                        trailers.insert("grpc-message", "nothing%20here".parse().unwrap());
                        let seen = head.headers.get("authorization").unwrap().clone();
                        trailers.insert("x-seen", seen);
                        stream.send_trailers(trailers).unwrap();
                    });
                }
            });
        }
    });
}

#[tokio::test]
async fn every_other_call_is_answered_elsewhere() {
    let running = Running::start();
    let mut client = FlightServiceClient::new(running.channel().await);
    let answer = client
        .do_action(Request::new(Action::new("health", "")))
        .await;
    let status = answer.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    echo(&running.others);
    let mut request = Request::new(Action::new("health", "{}"));
    request
        .metadata_mut()
        .insert("authorization", "Bearer secret".parse().unwrap());
    let status = client
        .do_action(request)
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "nothing here")
    );
    assert_eq!(status.metadata().get("x-seen").unwrap(), "Bearer secret");
    // It comes back as it was sent, and is a message with a descriptor to its client.
    const DESCRIPTOR: &[u8] = &[8, 1];
    let ticket = Ticket {
        ticket: DESCRIPTOR.into(),
    };
    let mut request = Request::new(ticket);
    request
        .metadata_mut()
        .insert("authorization", "Bearer secret".parse().unwrap());
    let mut answers = client.do_get(request).await.unwrap().into_inner();
    let mut count = 0;
    let status = loop {
        match answers.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => panic!("an error was sent"),
            Err(status) => break status,
        }
    };
    assert_eq!((count, status.code()), (3, Code::NotFound));
}

/// Asks for the health of gRPC, as its clients do.
async fn ask_health(running: &Running, method: &str) -> h2::RecvStream {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", running.server.port()))
        .await
        .unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://localhost/grpc.health.v1.Health/{method}"))
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    response.await.unwrap().into_body()
}

async fn health(running: &Running) -> Vec<u8> {
    let mut answer = ask_health(running, "Check").await;
    let mut said = Vec::new();
    while let Some(data) = answer.data().await {
        said.extend_from_slice(&data.unwrap());
    }
    let trailers = answer.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    said
}

const SERVING: [u8; 7] = [0, 0, 0, 0, 2, 8, 1];
const NOT_SERVING: [u8; 7] = [0, 0, 0, 0, 2, 8, 2];

#[tokio::test]
async fn health_is_whether_writes_are_taken() {
    let running = Running::start();
    assert_eq!(health(&running).await, NOT_SERVING);
    running.server.set_serving(true);
    assert_eq!(health(&running).await, SERVING);
    running.core.set_backed_up(Some("much waits"));
    assert_eq!(health(&running).await, NOT_SERVING);
    running.core.set_backed_up(None);
    running.core.set_disk_problem(Some("the disk is full"));
    assert_eq!(health(&running).await, NOT_SERVING);
    running.core.set_disk_problem(None);
    assert_eq!(health(&running).await, SERVING);
    running.core.stop_accepting("another server has taken over");
    assert_eq!(health(&running).await, NOT_SERVING);
}

#[tokio::test]
async fn who_watches_hears_of_every_change_and_of_the_end() {
    let running = Running::start();
    running.server.set_serving(true);
    let mut watch = ask_health(&running, "Watch").await;
    assert_eq!(watch.data().await.unwrap().unwrap()[..], SERVING);
    running.core.set_disk_problem(Some("the disk is full"));
    assert_eq!(watch.data().await.unwrap().unwrap()[..], NOT_SERVING);
    running.core.set_disk_problem(None);
    assert_eq!(watch.data().await.unwrap().unwrap()[..], SERVING);
    let stopping = tokio::task::spawn_blocking(move || {
        running.server.stop(DEADLINE);
        running
    });
    assert_eq!(watch.data().await.unwrap().unwrap()[..], NOT_SERVING);
    assert!(watch.data().await.is_none());
    let trailers = watch.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    drop(watch);
    stopping.await.unwrap();
}

/// Answers a read with more than anybody takes, and every other call with a message.
fn talk(socket: &Path) -> Arc<AtomicBool> {
    let is_waiting = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_waiting);
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let response = Response::builder().header("content-type", "application/grpc");
            let mut stream = respond
                .send_response(response.body(()).unwrap(), false)
                .unwrap();
            let is_read = request.uri().path().ends_with("DoGet");
            let is_waiting = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut sent = 0;
                // Each is a message without anything in it.
                while is_read && sent < 64 << 20 {
                    stream.reserve_capacity(5 << 10);
                    let capacity = poll_fn(|context| {
                        let capacity = stream.poll_capacity(context);
                        is_waiting.store(capacity.is_pending() && sent > 250_000, SeqCst);
                        capacity
                    });
                    let Some(Ok(capacity)) = capacity.await else {
                        return;
                    };
                    let part = capacity / 5 * 5;
                    sent += part;
                    stream.send_data(Bytes::from(vec![0; part]), false).unwrap();
                }
                stream
                    .send_data(Bytes::from_static(&[0; 5]), false)
                    .unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                stream.send_trailers(trailers).unwrap();
            });
        }
    });
    is_waiting
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_no_other_call_of_its_connection() {
    let running = Running::start();
    let is_waiting = talk(&running.others);
    let mut client = FlightServiceClient::new(running.narrow_channel().await);
    let ticket = Ticket {
        ticket: Bytes::new(),
    };
    let _unread = client.do_get(Request::new(ticket)).await.unwrap();
    wait_until("a reader that has enough", || is_waiting.load(SeqCst)).await;
    let action = client.do_action(Request::new(Action::new("health", "")));
    let answer = tokio::time::timeout(DEADLINE, async move {
        action.await.unwrap().into_inner().message().await.unwrap()
    });
    assert!(answer.await.unwrap().is_some());
}

#[tokio::test]
async fn a_request_is_not_larger_than_the_other_server_should_keep() {
    let running = Running::start();
    echo(&running.others);
    let mut client = FlightServiceClient::new(running.channel().await);
    let free = running.server.shared().parts.free_bytes();
    for (size, code, said) in [
        (1 << 20, Code::NotFound, "nothing here"),
        (
            40 << 20,
            Code::Unknown,
            "a request has more than 33,554,432 bytes",
        ),
    ] {
        let mut request = Request::new(Action::new("health", vec![0; size]));
        request
            .metadata_mut()
            .insert("authorization", "Bearer secret".parse().unwrap());
        let status = match client.do_action(request).await {
            Ok(answer) => answer.into_inner().message().await.unwrap_err(),
            Err(status) => status,
        };
        assert_eq!(status.code(), code);
        assert!(status.message().starts_with(said), "{}", status.message());
        wait_until("room", || {
            running.server.shared().parts.free_bytes() == free
        })
        .await;
    }
}
