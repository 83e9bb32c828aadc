//! How a task that waits is woken: without an allocation, and without a wake-up that is lost.

use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicU8, Mutex, Ordering::SeqCst};

/// Flags that any thread raises and one task waits for.
#[derive(Debug)]
pub(crate) struct Signal {
    raised: AtomicU8,
    waiting: Waiting,
}

impl Signal {
    pub fn new() -> Signal {
        Signal {
            raised: AtomicU8::new(0),
            waiting: Waiting::new(),
        }
    }

    /// Raises flags. Those that are up already have woken the task, or it will look before it sleeps.
    pub fn raise(&self, flags: u8) {
        if self.raised.fetch_or(flags, SeqCst) & flags != flags {
            self.waiting.wake();
        }
    }

    /// Lowers flags, and returns which of them were up.
    pub fn lower(&self, flags: u8) -> u8 {
        self.raised.fetch_and(!flags, SeqCst) & flags
    }

    /// Is ready while one of the flags is up.
    pub fn poll(&self, context: &mut Context<'_>, flags: u8) -> Poll<()> {
        self.waiting.poll(context, || {
            (self.raised.load(SeqCst) & flags != 0).then_some(())
        })
    }
}

/// One task that waits for something to become true. Whoever makes it true calls `wake` afterwards.
#[derive(Debug)]
pub(crate) struct Waiting(Mutex<Option<Waker>>);

impl Waiting {
    pub fn new() -> Waiting {
        Waiting(Mutex::new(None))
    }

    pub fn wake(&self) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Is ready as soon as `look` finds something. It looks again once the waker is there, so that what becomes true
    /// in between is not missed.
    pub fn poll<T>(&self, context: &mut Context<'_>, look: impl Fn() -> Option<T>) -> Poll<T> {
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        *self.0.lock() = Some(context.waker().clone());
        look().map_or(Poll::Pending, Poll::Ready)
    }
}
