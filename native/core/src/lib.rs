//! The log, group commit, sequencing and watermarks of ingest: what happens to every write. It knows neither Arrow nor
//! tonic.
//!
//! # Following a write
//!
//! 1. A client opens a stream: [`Core::open_stream`] takes its producer over, and returns a [`StreamHandle`] with the
//!    [`Greeting`]. Once its schema is admitted, [`Core::schema`] gives the [`Schema`] under which its writes are kept.
//! 2. [`Stream::append`] gives a checked [`Message`] its LSNs, under one lock and without waiting. The message is then
//!    in the group that is written next. What the producer has written before is left out and acknowledged again.
//! 3. The log's thread takes the group, writes and syncs it, and advances the watermark of LOCAL_DISK. Those who pass
//!    segments on advance the others: [`Core::uploaded`], [`Core::committed`].
//! 4. Each advance wakes the streams that wait for its tier. [`Stream::news`] returns, and [`Stream::announce`] says
//!    what there is to acknowledge: all that is ready, in one go.
//!
//! # A server's session
//!
//! Two tasks share a stream. The one that reads holds the [`StreamHandle`]:
//!
//! ```text
//! loop {
//!     message = read and check the next message
//!     loop {
//!         match stream.append(&message)? {                 // a Refusal ends the stream
//!             Written { .. } | Duplicate => break,
//!             Rest { known } => message = message without its first `known` writes (seq + known),
//!             NoNumbers => stream.room().await?,
//!         }
//!     }
//!     if let Some(reason) = stream.must_wait() {
//!         stream.set_throttled(Some(reason)); tell the client; stream.wake()
//!         stream.room().await?;                            // a Refusal ends the stream here, too
//!         stream.set_throttled(None); tell the client
//!     }
//! }
//! ```
//!
//! The one that acknowledges holds an `Arc<Stream>` ([`StreamHandle::share`]):
//!
//! ```text
//! loop {
//!     if !stream.news().await.hurry { wait for at most the linger, or until stream.hurried().await }
//!     send statuses
//!     loop {
//!         announcement = stream.announce();
//!         send it; stream.announced(announcement.since);
//!         if !announcement.more { break }
//!     }
//!     if stopping || (finishing && stream.is_done()) { return }
//! }
//! ```
//!
//! To wait until what a stream has written is synced, as before an error: read [`Core::advances`]`().number()`, look at
//! [`Stream::is_synced`], and wait for [`Generation::above`] it. The server counts `refused` and `disconnects` in
//! [`Stream::counters`] itself.
//!
//! # What Python does
//!
//! It recovers the log and opens it ([`Core::open`] with [`Config`] and [`Recovered`]; [`LogState::decode`] reads what
//! its `LogState.encode` writes), declares collections ([`Core::declare`]), takes sealed segments ([`Event::Sealed`],
//! then [`Core::segment_taken`] once its index has them), and says what is uploaded, committed, refused or backed up.

mod acks;
mod clock;
mod completion;
mod config;
mod core;
mod defects;
mod events;
mod files;
pub mod format;
mod generation;
mod given_up;
mod health;
mod in_flight;
mod lsn;
mod parts;
mod pending;
mod producers;
mod refusal;
mod segment;
mod sequencer;
mod signal;
mod state;
mod statistics;
mod stream;
mod stream_values;
mod sync;
mod tier;
mod watermarks;
mod writer;

pub use crate::acks::{Announcement, MOST_ROWS};
pub use crate::clock::{Clock, SystemClock};
pub use crate::config::{Config, Limits, Recovered};
pub use crate::core::{Core, OpenError, StreamHandle};
pub use crate::defects::Defects;
pub use crate::events::{Event, Segment, segment_name};
pub use crate::files::{DiskFiles, Files, Hooks, NoHooks, SegmentFile};
pub use crate::format::{MOST_BYTES_OF_A_MESSAGE, SegmentHeader};
pub use crate::generation::Generation;
pub use crate::health::Health;
pub use crate::lsn::{first_lsn_of, last_lsn_of};
pub use crate::parts::LogPart;
pub use crate::pending::Schema;
pub use crate::producers::{GivenUpNumbers, KnownNumbers, Run};
pub use crate::refusal::{Quoted, Refusal};
pub use crate::state::{Committed, LogState, ProducerName, ProducerState, Range};
pub use crate::statistics::{Counters, Statistics};
pub use crate::stream::Stream;
pub use crate::stream_values::{
    Appended, Greeting, Message, News, StreamDescription, StreamOptions,
};
pub use crate::tier::{Tier, Tiers};
pub use crate::watermarks::{DurableRange, Watermark, Watermarks};
