//! What a call answers: frames, no more of them than its client reads, and trailers.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use h2::SendStream;
use http::HeaderMap;

/// The client went away.
#[derive(Debug, thiserror::Error)]
#[error("the client went away")]
pub struct Gone;

pub struct Outbox {
    stream: SendStream<Bytes>,
}

impl Outbox {
    pub fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream }
    }

    /// Hands a frame over, as soon as the client's window has room for it.
    pub async fn send(&mut self, mut frame: Bytes) -> Result<(), Gone> {
        while !frame.is_empty() {
            self.stream.reserve_capacity(frame.len());
            let capacity = poll_fn(|context| {
                if self.stream.poll_reset(context).is_ready() {
                    return Poll::Ready(None);
                }
                self.stream.poll_capacity(context)
            });
            let Some(Ok(capacity)) = capacity.await else {
                return Err(Gone);
            };
            let part = frame.split_to(capacity.min(frame.len()));
            if !part.is_empty() {
                self.stream.send_data(part, false).map_err(|_| Gone)?;
            }
        }
        Ok(())
    }

    /// Waits until the client goes away.
    pub async fn gone(&mut self) {
        poll_fn(|context| self.stream.poll_reset(context).map(drop)).await;
    }

    pub fn end(&mut self, trailers: HeaderMap) {
        // It fails if the client is gone, which nobody needs to know any more.
        let _ = self.stream.send_trailers(trailers);
    }
}
