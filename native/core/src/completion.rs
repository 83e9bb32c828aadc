//! Something that is done once, and waited for by a thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Completion {
    is_done: Mutex<bool>,
    done: Condvar,
}

impl Completion {
    pub fn complete(&self) {
        *self.is_done.lock() = true;
        self.done.notify_all();
    }

    /// Whether it was done in time.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut is_done = self.is_done.lock();
        self.done
            .wait_while_for(&mut is_done, |done| !*done, timeout);
        *is_done
    }
}
