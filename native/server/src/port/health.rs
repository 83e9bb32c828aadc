//! `grpc.health.v1`: whether the server takes writes, by the same rule as `/readyz` and the health action of Flight.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;

use super::Shared;
use super::call::{answer, refuse};
use crate::grpc::{FRAME_BYTES, finish_frame};
use crate::refusal::{Refusal, ok_trailers};

pub const CHECK: &str = "/grpc.health.v1.Health/Check";
pub const WATCH: &str = "/grpc.health.v1.Health/Watch";

const STATUS: u8 = 1 << 3;
const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;
/// How often a watcher's answer is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Answers for every service alike: there is one, and it is the server.
pub async fn check(respond: SendResponse<Bytes>, is_ready: bool) {
    let Some(mut outbox) = answer(respond) else {
        return;
    };
    if outbox.send(frame(is_ready)).await.is_ok() {
        outbox.end(ok_trailers());
    }
}

/// Says how it is, and again whenever that changes.
pub async fn watch(respond: SendResponse<Bytes>, server: Arc<Shared>) {
    let Some(mut outbox) = answer(respond) else {
        return;
    };
    let mut closing = server.closing.subscribe();
    let mut said = None;
    loop {
        let is_closing = *closing.borrow();
        let now = server.is_ready();
        if said != Some(now) && outbox.send(frame(now)).await.is_err() {
            return;
        }
        said = Some(now);
        if is_closing {
            return refuse(
                &mut outbox,
                &Refusal::unavailable("the server is shutting down"),
            );
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AFTER) => {}
            _ = closing.wait_for(|closing| *closing) => {}
            () = outbox.gone() => return,
        }
    }
}

fn frame(is_ready: bool) -> Bytes {
    let mut data = BytesMut::zeroed(FRAME_BYTES);
    data.put_slice(&[STATUS, if is_ready { SERVING } else { NOT_SERVING }]);
    finish_frame(data)
}
