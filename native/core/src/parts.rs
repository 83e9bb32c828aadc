//! Which segments there are that nobody has taken over from the log: the open one, and those just sealed.

use parking_lot::Mutex;

/// A segment and how much of it is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPart {
    pub number: u64,
    pub length: u64,
}

#[derive(Debug)]
pub(crate) struct Parts(Mutex<Vec<LogPart>>);

impl Parts {
    pub fn new(number: u64) -> Parts {
        Parts(Mutex::new(vec![LogPart { number, length: 0 }]))
    }

    /// A segment was begun; the one before it is sealed, and stays until it is taken.
    pub fn begin(&self, number: u64, length: u64) {
        let mut parts = self.0.lock();
        parts.retain(|part| part.number != number);
        parts.push(LogPart { number, length });
    }

    /// So much of the open segment is synced.
    pub fn grow(&self, length: u64) {
        if let Some(open) = self.0.lock().last_mut() {
            open.length = length;
        }
    }

    pub fn taken(&self, number: u64) {
        let mut parts = self.0.lock();
        let open = parts.last().map(|part| part.number);
        parts.retain(|part| part.number != number || open == Some(number));
    }

    pub fn all(&self) -> Vec<LogPart> {
        self.0.lock().clone()
    }
}
