//! What a log says of itself.

use std::time::Duration;

/// How the log is.
#[derive(Debug, Clone)]
pub struct Health {
    /// Why the disk refuses writes, or nothing will be written any more.
    pub failure: Option<String>,
    /// The log is over: restart the server.
    pub has_failed: bool,
    /// How long ago the log's thread showed a sign of life.
    pub beat_age: Duration,
    pub is_alive: bool,
    pub waiting_bytes: u64,
    /// When the oldest message was accepted that is not yet synced.
    pub unsynced_since_us: Option<u64>,
    /// When the oldest message was accepted that is in no sealed segment.
    pub unsealed_since_us: Option<u64>,
}
