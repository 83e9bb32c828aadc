//! Events of the log, for the tasks that upload and commit its segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::format::SegmentHeader;

/// A segment file that is not written any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub header: SegmentHeader,
    /// The bytes that count.
    pub length: u64,
    /// The highest LSN in it; one less than the header's first if the log had none before either.
    pub last_lsn: u64,
    /// The highest LSN of each collection that it has writes of.
    pub last_lsns: BTreeMap<Arc<str>, u64>,
    /// When the first write of it was accepted.
    pub first_accepted_us: Option<u64>,
    /// Whether it begins with the log's whole state, so that nothing before it is needed to know that.
    pub has_state: bool,
}

/// An event that occurs once per segment, or less often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A segment has ended, and the header of the next one, which says where, is synced.
    Sealed(Segment),
    /// The disk refuses writes, for this reason; or takes them again.
    Failing(Option<String>),
    /// Nothing will be written any more, for this reason.
    Failed(String),
}

/// The file name of a segment.
pub fn segment_name(number: u64) -> String {
    format!("{number:020}.wal")
}
