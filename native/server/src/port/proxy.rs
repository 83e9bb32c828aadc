//! Every other call is answered by the server in Python, on a unix socket of the process. Bytes, headers and
//! trailers go through untouched.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Uri};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::call::{answer, refuse};
use crate::budget::{Parts, Room};
use crate::refusal::Refusal;
use crate::repr::grouped;

const WINDOW: u32 = 256 << 10;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// The other server has the whole of a request in memory before it looks whose it is.
const MOST_REQUEST_BYTES: usize = 32 << 20;
/// More than this of a request counts against the budget for parts of messages.
const SMALL_REQUEST: usize = 64 << 10;

/// The way to the other server for one connection. Each of its calls has a window to itself, so that a reader that
/// stops holds up no other.
pub struct Proxy {
    socket: Arc<PathBuf>,
    most_calls: u32,
    parts: Arc<Parts>,
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

impl Proxy {
    pub fn new(socket: Arc<PathBuf>, most_calls: u32, parts: Arc<Parts>) -> Self {
        Self {
            socket,
            most_calls,
            parts,
            sender: Mutex::new(None),
        }
    }

    pub async fn forward(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        match self.connected().await {
            Ok(sender) => forward(sender, request, respond, Sent::new(&self.parts)).await,
            Err(error) => {
                let refusal = Refusal::unavailable(format!(
                    "the server does not answer such calls now: {error}"
                ));
                if let Some(mut outbox) = answer(respond) {
                    refuse(&mut outbox, &refusal);
                }
            }
        }
    }

    async fn connected(&self) -> io::Result<SendRequest<Bytes>> {
        let mut sender = self.sender.lock().await;
        if let Some(open) = sender.take()
            && let Ok(open) = open.ready().await
        {
            *sender = Some(open.clone());
            return Ok(open);
        }
        let stream = UnixStream::connect(&*self.socket).await?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(
                WINDOW.saturating_mul(self.most_calls).min(LARGEST_WINDOW),
            )
            .enable_push(false);
        let (opened, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        *sender = Some(opened.clone());
        opened.ready().await.map_err(io::Error::other)
    }
}

/// How much of a request was passed on.
struct Sent<'a> {
    parts: &'a Parts,
    bytes: usize,
    rooms: Vec<Room>,
}

impl<'a> Sent<'a> {
    fn new(parts: &'a Parts) -> Self {
        Self {
            parts,
            bytes: 0,
            rooms: Vec::new(),
        }
    }

    fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes += bytes;
        if self.bytes > MOST_REQUEST_BYTES {
            let most = grouped(MOST_REQUEST_BYTES);
            return Err(Refusal::config(format!(
                "a request has more than {most} bytes"
            )));
        }
        if self.bytes > SMALL_REQUEST {
            let room = self.parts.try_reserve(bytes);
            self.rooms.push(room.ok_or_else(|| {
                Refusal::unavailable("the server has no room for a request of this size: try again")
            })?);
        }
        Ok(())
    }
}

async fn forward(
    mut sender: SendRequest<Bytes>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    mut sent: Sent<'_>,
) {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = Uri::builder()
        .scheme("http")
        .authority("localhost")
        .path_and_query(path)
        .build()
        .unwrap_or_else(|_| Uri::from_static("http://localhost/"));
    let is_whole = body.is_end_stream();
    let Ok((response, upload)) = sender.send_request(Request::from_parts(parts, ()), is_whole)
    else {
        respond.send_reset(Reason::REFUSED_STREAM);
        return;
    };
    let uploading = async {
        if is_whole {
            return Ok(());
        }
        pump(body, upload, |bytes| sent.add(bytes)).await
    };
    let downloading = async {
        let response = tokio::select! {
            response = response => response,
            _ = poll_fn(|context| respond.poll_reset(context)) => return,
        };
        match response {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let is_whole = body.is_end_stream();
                let response = http::Response::from_parts(parts, ());
                if let Ok(download) = respond.send_response(response, is_whole)
                    && !is_whole
                {
                    let _ = pump(body, download, |_| Ok(())).await;
                }
            }
            Err(error) => respond.send_reset(error.reason().unwrap_or(Reason::INTERNAL_ERROR)),
        }
    };
    let refusal = {
        // Once the answer is there, what the client still sends is of no use.
        tokio::pin!(uploading, downloading);
        let mut is_uploaded = false;
        loop {
            tokio::select! {
                () = &mut downloading => return,
                uploaded = &mut uploading, if !is_uploaded => match uploaded {
                    Ok(()) => is_uploaded = true,
                    Err(refusal) => break refusal,
                },
            }
        }
    };
    if let Some(mut outbox) = answer(respond) {
        refuse(&mut outbox, &refusal);
    }
}

/// Passes data and trailers on, as fast as they are taken, unless their size is refused.
async fn pump(
    mut from: RecvStream,
    mut to: SendStream<Bytes>,
    mut add: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    loop {
        let data = tokio::select! {
            data = from.data() => data,
            _ = poll_fn(|context| to.poll_reset(context)) => return Ok(()),
        };
        match data {
            Some(Ok(data)) => {
                let size = data.len();
                add(size)?;
                if !send(&mut to, data).await {
                    return Ok(());
                }
                let _ = from.flow_control().release_capacity(size);
            }
            Some(Err(error)) => {
                to.send_reset(error.reason().unwrap_or(Reason::CANCEL));
                return Ok(());
            }
            None => break,
        }
    }
    match from.trailers().await {
        Ok(Some(trailers)) => drop(to.send_trailers(trailers)),
        Ok(None) => drop(to.send_data(Bytes::new(), true)),
        Err(error) => to.send_reset(error.reason().unwrap_or(Reason::CANCEL)),
    }
    Ok(())
}

async fn send(to: &mut SendStream<Bytes>, mut data: Bytes) -> bool {
    while !data.is_empty() {
        to.reserve_capacity(data.len());
        let capacity = poll_fn(|context| {
            if to.poll_reset(context).is_ready() {
                return Poll::Ready(None);
            }
            to.poll_capacity(context)
        });
        let Some(Ok(capacity)) = capacity.await else {
            return false;
        };
        let part = data.split_to(capacity.min(data.len()));
        if !part.is_empty() && to.send_data(part, false).is_err() {
            return false;
        }
    }
    true
}
