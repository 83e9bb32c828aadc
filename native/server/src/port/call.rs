//! One call: which part of the server answers it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response};

use super::Shared;
use super::gate::Call;
use super::health;
use super::inbox::Ended;
use super::outbox::Outbox;
use super::proxy::Proxy;
use super::windows::Windows;
use crate::refusal::{Refusal, ok_trailers};
use crate::session;

const DO_EXCHANGE: &str = "/arrow.flight.protocol.FlightService/DoExchange";

const FAILED: &str = "a bug of the server broke this stream off, and would again: report it with the log of the server";

/// How messages may be compressed by gRPC.
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// What the calls of one connection share.
pub struct Caller {
    pub server: Arc<Shared>,
    pub windows: Arc<Windows>,
    pub proxy: Proxy,
    pub peer: String,
}

/// Its connection is not idle until this returns.
pub async fn serve(
    caller: Arc<Caller>,
    _call: Call,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    match request.uri().path() {
        DO_EXCHANGE => exchange(caller, request, respond).await,
        health::CHECK => {
            drop(request);
            health::check(respond, caller.server.is_ready()).await;
        }
        health::WATCH => {
            drop(request);
            health::watch(respond, Arc::clone(&caller.server)).await;
        }
        _ => caller.proxy.forward(request, respond).await,
    }
}

/// Whatever happens in a stream, a panic included, ends that stream alone.
async fn exchange(caller: Arc<Caller>, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let Some(outbox) = answer(respond) else {
        return;
    };
    let outbox = Arc::new(tokio::sync::Mutex::new(outbox));
    let session = session::run(Arc::clone(&caller), request, Arc::clone(&outbox));
    let ended = AssertUnwindSafe(session).catch_unwind().await;
    // Who sends acknowledgements has it until they are sent.
    let mut outbox = outbox.lock().await;
    match ended {
        Ok(Ok(())) => outbox.end(ok_trailers()),
        Ok(Err(Ended::Refused(refusal))) => refuse(&mut outbox, &refusal),
        Ok(Err(Ended::Done)) => {}
        // Who is gone does not hear it; if nobody is, what sends acknowledgements has failed.
        Ok(Err(Ended::Gone)) | Err(_) => refuse(&mut outbox, &Refusal::internal(FAILED)),
    }
}

/// Begins an answer of gRPC; `None` if the client is gone.
pub fn answer(mut respond: SendResponse<Bytes>) -> Option<Outbox> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    respond.send_response(response, false).ok().map(Outbox::new)
}

pub fn refuse(outbox: &mut Outbox, refusal: &Refusal) {
    outbox.end(refusal.trailers());
}
