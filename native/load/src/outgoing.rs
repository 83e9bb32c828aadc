//! The messages of one stream, each made when it is due or when there is room for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_flight::FlightData;
use futures::Stream;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::ledger::Ledger;
use crate::messages::Messages;
use crate::run::Clock;

/// The state that the two directions of a stream share.
#[derive(Debug)]
pub struct Exchange {
    pub ledger: Mutex<Ledger>,
    /// Wakes the sending side when there is room in the window again.
    pub room: AtomicWaker,
}

/// When the next message is to be sent.
pub enum Pace {
    /// When the schedule says so; each item is the time at which a message is due.
    Open(UnboundedReceiver<u64>),
    /// When fewer than `window` writes wait for their first acknowledgement, until the time or the number is reached.
    Closed {
        window: u64,
        until: u64,
        writes: u64,
    },
}

pub struct Outgoing {
    pub exchange: Arc<Exchange>,
    pub messages: Arc<Messages>,
    pub pace: Pace,
    pub clock: Clock,
    /// None before the stream is opened.
    pub next: Option<u64>,
}

impl Outgoing {
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>> {
        match &mut self.pace {
            Pace::Open(due) => due.poll_recv(context),
            Pace::Closed {
                window,
                until,
                writes,
            } => {
                let now = self.clock.now();
                if now >= *until {
                    return Poll::Ready(None);
                }
                // Before the look at the window, so that an acknowledgement in between is not missed.
                self.exchange.room.register(context.waker());
                let ledger = self.exchange.ledger.lock();
                if ledger.sent() >= *writes {
                    Poll::Ready(None)
                } else if ledger.waiting() < *window {
                    Poll::Ready(Some(now))
                } else {
                    Poll::Pending
                }
            }
        }
    }
}

impl Stream for Outgoing {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        let Some(number) = self.next else {
            self.next = Some(0);
            return Poll::Ready(Some(self.messages.begin()));
        };
        match self.poll_due(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(due)) => {
                self.exchange.ledger.lock().on_sent(due);
                self.next = Some(number + 1);
                Poll::Ready(Some(self.messages.batch(number)))
            }
        }
    }
}
