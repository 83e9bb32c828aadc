//! A number that rises whenever something may have become true, for those who wait for more than one thing.

use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Is read before what is waited for, so that nothing that comes in between is missed.
#[derive(Debug, Default)]
pub struct Generation {
    inner: Mutex<Inner>,
    risen: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    number: u64,
    waiting: Vec<Waker>,
}

impl Generation {
    /// The number now.
    pub fn number(&self) -> u64 {
        self.inner.lock().number
    }

    /// Waits, as a thread, until the number is above one that was seen, and returns it; or as it is after the time.
    pub fn wait_above(&self, seen: u64, timeout: Duration) -> u64 {
        let mut inner = self.inner.lock();
        self.risen
            .wait_while_for(&mut inner, |inner| inner.number <= seen, timeout);
        inner.number
    }

    /// Waits, as a task, until the number is above one that was seen.
    pub fn above(&self, seen: u64) -> impl Future<Output = ()> + Send + '_ {
        poll_fn(move |context| {
            let mut inner = self.inner.lock();
            if inner.number > seen {
                return Poll::Ready(());
            }
            if !inner
                .waiting
                .iter()
                .any(|waker| waker.will_wake(context.waker()))
            {
                inner.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
    }

    pub(crate) fn rise(&self) {
        let mut inner = self.inner.lock();
        inner.number += 1;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.risen.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }
}
