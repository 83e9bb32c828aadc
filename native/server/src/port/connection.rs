//! One connection: its calls, its windows, and whether somebody is still there.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Ping, PingPong, Reason, RecvStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::Shared;
use super::call::{self, Caller};
use super::gate::Entered;
use super::proxy::Proxy;
use super::windows::Windows;

const LARGEST_FRAME: u32 = 64 << 10;
const LARGEST_HEADERS: u32 = 16 << 10;
/// Of answers that wait for a client to read them, for each call.
const MOST_UNSENT: usize = 256 << 10;
/// Of what frames take besides their data until they are taken out of HTTP/2's buffer, which is done at once, also for
/// a stream that waits. A small write is about 150 bytes and may come in a frame of its own, and a window full of them
/// may come before anybody looks: who has more than this is hung up on.
const MOST_OVERHEAD: usize = 2 << 20;
/// Nothing that a client sends can make more of these than it is worth to remember.
const MOST_RESETS: usize = 64;
/// How long somebody who has to make room may take to hear of it.
const GOODBYE: Duration = Duration::from_secs(1);
/// When the server stops, calls have this long to end by themselves.
const HANG_UP_AFTER: Duration = Duration::from_secs(5);

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
pub type Io = Box<dyn Stream>;
pub type Connection = h2::server::Connection<Io, Bytes>;

pub async fn handshake(io: Io, shared: &Shared, windows: &Windows) -> Option<Connection> {
    let handshake = h2::server::Builder::new()
        .initial_window_size(windows.of_stream())
        .initial_connection_window_size(windows.of_connection())
        .max_frame_size(LARGEST_FRAME)
        .max_header_list_size(LARGEST_HEADERS)
        .max_concurrent_streams(shared.limits.streams)
        .max_concurrent_reset_streams(MOST_RESETS)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_send_buffer_size(MOST_UNSENT)
        .data_frame_budget(MOST_OVERHEAD)
        .handshake(io);
    handshake.await.ok()
}

/// Serves until the client hangs up, is found dead, has to make room, or the server stops.
pub async fn serve(
    mut connection: Connection,
    entered: Entered,
    mut sent_away: oneshot::Receiver<()>,
    shared: Arc<Shared>,
    windows: Arc<Windows>,
    peer: String,
) {
    let (others, parts) = (Arc::clone(&shared.others), Arc::clone(&shared.parts));
    let proxy = Proxy::new(others, shared.limits.streams, parts);
    let mut closing = shared.closing.subscribe();
    let dead = is_dead(
        connection.ping_pong(),
        shared.limits.ping_after,
        shared.limits.pong_within,
    );
    tokio::pin!(dead);
    let caller = Arc::new(Caller {
        server: shared,
        windows: Arc::clone(&windows),
        proxy,
        peer,
    });
    let mut is_closing = false;
    loop {
        tokio::select! {
            accepted = accept(&mut connection) => match accepted {
                Some(Ok((request, mut respond))) => match entered.call() {
                    Some(call) => {
                        tokio::spawn(call::serve(Arc::clone(&caller), call, request, respond));
                    }
                    // Clients send it again, on another connection.
                    None => respond.send_reset(Reason::REFUSED_STREAM),
                },
                Some(Err(_)) | None => return,
            },
            () = windows.changed() => {
                let window = windows.of_connection();
                connection.set_target_window_size(window);
                windows.told(window);
                // Fails while the client has not acknowledged the change before; the next one says both.
                let _ = connection.set_initial_window_size(windows.of_stream());
            }
            () = &mut dead => return connection.abrupt_shutdown(Reason::NO_ERROR),
            _ = &mut sent_away => break,
            _ = closing.wait_for(|closing| *closing), if !is_closing => {
                is_closing = true;
                connection.graceful_shutdown();
            }
            () = tokio::time::sleep(HANG_UP_AFTER), if is_closing => return,
        }
    }
    say_goodbye(connection).await;
}

/// Says that nothing was begun of what is on its way, so that a client can send it again.
async fn say_goodbye(mut connection: Connection) {
    connection.abrupt_shutdown(Reason::NO_ERROR);
    let said = poll_fn(|context| connection.poll_closed(context));
    let _ = tokio::time::timeout(GOODBYE, said).await;
}

type Accepted = Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>;

async fn accept(connection: &mut Connection) -> Option<Accepted> {
    poll_fn(|context| connection.poll_accept(context)).await
}

/// Ends when a ping was not answered.
async fn is_dead(pings: Option<PingPong>, ping_after: Duration, pong_within: Duration) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(ping_after).await;
        if pings.send_ping(Ping::opaque()).is_err() {
            continue;
        }
        let pong = poll_fn(|context| pings.poll_pong(context));
        if !matches!(tokio::time::timeout(pong_within, pong).await, Ok(Ok(_))) {
            return;
        }
    }
}
