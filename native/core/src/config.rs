//! The settings of a log, and what recovery found in its folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::defects::Defects;
use crate::events::Event;
use crate::files::Files;
use crate::lsn::RESERVED_AT_ONCE;
use crate::producers::Run;
use crate::state::{LogState, ProducerName};

/// When a group is written, and when a segment is sealed.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A segment is sealed when it has this size,
    pub segment_bytes: u64,
    /// or when its first write has waited for this long and the segments before it are uploaded.
    pub segment_time: Duration,
    /// At most this much is written before a sync.
    pub group_bytes: u64,
    /// Under load a group gathers for this long, so that syncs leave time for acknowledgements. There is load if the
    /// group before had several messages: whoever writes one and waits for it does not pay for others.
    pub gather_time: Duration,
    /// Streams wait while this much waits for the disk.
    pub waiting_bytes: u64,
    /// A stream waits while this much of it waits for the disk.
    pub unsynced_bytes: u64,
    /// A stream waits while this many ranges of LSNs, of 16 bytes each, wait to be announced.
    pub ranges: usize,
    /// Of all streams together. Once half of it is taken, a stream waits while it has more than its share of that half.
    pub all_ranges: usize,
    /// A state that is large (many producers) is written down only when the log has grown by this many times its size
    /// since the last one; a small one at the start of every segment.
    pub state_share: u64,
    /// How many LSNs are reserved at once.
    pub reserved_at_once: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            segment_bytes: 64 << 20,
            segment_time: Duration::from_millis(100),
            group_bytes: 8 << 20,
            gather_time: Duration::from_millis(2),
            waiting_bytes: 256 << 20,
            unsynced_bytes: 64 << 20,
            ranges: 1 << 20,
            all_ranges: 32 << 20,
            state_share: 4,
            reserved_at_once: RESERVED_AT_ONCE,
        }
    }
}

/// Where and how a log is written.
pub struct Config {
    pub folder: PathBuf,
    pub term: u64,
    /// The number of the first segment that is written.
    pub number: u64,
    /// How much of the segment before it counts; 0 if there is none.
    pub previous_length: u64,
    /// The last segment that is in object storage.
    pub uploaded_segment: u64,
    /// The last LSN that is in object storage.
    pub uploaded_lsn: u64,
    pub limits: Limits,
    pub files: Box<dyn Files>,
    pub clock: Arc<dyn Clock>,
    pub defects: Defects,
    /// Is called on the log's own thread, and must not wait.
    pub on_event: Box<dyn Fn(Event) + Send + Sync>,
}

/// The state that recovery has read from the log.
#[derive(Debug, Default)]
pub struct Recovered {
    pub state: LogState,
    /// The runs of each producer that the log still holds, in order.
    pub runs: Vec<(ProducerName, Vec<Run>)>,
}
