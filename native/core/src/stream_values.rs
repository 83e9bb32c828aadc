//! The arguments and results of a stream's methods.

use std::sync::Arc;
use std::time::Instant;

use crate::pending::Schema;
use crate::producers::Run;
use crate::statistics::Statistics;
use crate::tier::Tiers;

/// The options of a client, which apply to its whole stream.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    pub collection: Arc<str>,
    /// Empty: none.
    pub producer: String,
    /// The tiers that are announced.
    pub levels: Tiers,
    /// A row says that this LSN, and every one below it, is at the tier.
    pub by_watermark: bool,
    pub resume_after: Option<u64>,
    /// Where the producer's numbers begin: from one that is not known, a first number above it is refused.
    pub first_seq: u64,
    /// The address of the client, for the list of open streams.
    pub peer: String,
}

/// The part of the first message to a client that the log knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// None: the producer is not known, or there is none.
    pub last_seq: Option<u64>,
    pub forgotten_lsn: u64,
    /// The LSNs of the producer's writes after `resume_after`.
    pub assigned: Vec<Run>,
    /// Nobody knows which of the numbers at or below it were committed and which were given up, but for those that
    /// have an LSN; or 0.
    pub unsure_until: u64,
    pub memory: u64,
    pub local_disk: u64,
    pub object_storage: u64,
}

/// A message that is checked.
#[derive(Debug)]
pub struct Message<'a> {
    pub schema: &'a Arc<Schema>,
    /// An encapsulated Arrow IPC message in pieces; in all as long as a multiple of eight.
    pub pieces: &'a [&'a [u8]],
    /// The sequence number of the first write; 0 without a producer.
    pub seq: u64,
    /// Rows of each write; None: the message is one write.
    pub rows: Option<&'a [u32]>,
    /// Rows of all writes.
    pub row_count: u64,
    /// The memory that the message took before it was converted into this form, if that was more.
    pub size: u64,
    /// When it came.
    pub arrived: Instant,
}

/// The outcome of appending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Its writes have LSNs from this one on.
    Written { first_lsn: u64, count: u64 },
    /// All of it had been written before, and is acknowledged again.
    Duplicate,
    /// So many of its first writes had been written before, and are acknowledged again; append the rest, without them.
    Rest { known: u32 },
    /// Nothing has happened: wait for room, then append it again.
    NoNumbers,
}

/// The reasons to wake the task that sends acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// There is something that does not wait for more news of tiers.
    pub hurry: bool,
}

/// One of the streams that are open.
#[derive(Debug, Clone)]
pub struct StreamDescription {
    /// Tells it from every other stream of this log.
    pub id: u64,
    pub peer: String,
    pub collection: Arc<str>,
    pub producer: String,
    pub statistics: Statistics,
    pub throttled: Option<Arc<str>>,
    /// How many writes are not yet announced, by tier.
    pub pending: [u64; 4],
}
