//! What waits to be written, in the order of its LSNs, and how a group of it becomes records.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::completion::Completion;
use crate::format::{self, WritesHead};
use crate::state::ProducerName;

// A record's length has 32 bits, and what is read back as one piece is held in memory as one.
const MOST_BYTES_OF_A_RECORD: u64 = 32 << 20;
// A message that is larger is copied before the lock is taken: others wait for no more than this.
const LARGE: usize = 64 << 10;

/// A schema under which a collection's writes are kept. Those with the same content are one and the same.
#[derive(Debug)]
pub struct Schema {
    pub(crate) id: u64,
    pub collection: Arc<str>,
    /// An Arrow IPC message.
    pub message: Box<[u8]>,
}

/// The bytes of a message: Arrow IPC, as long as a multiple of eight.
pub(crate) enum Bytes<'a> {
    Pieces(&'a [&'a [u8]]),
    Own(Box<[u8]>),
}

impl<'a> Bytes<'a> {
    /// Copies a large message, so that this does not happen under the lock.
    pub fn new(pieces: &'a [&'a [u8]]) -> Bytes<'a> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > LARGE {
            Bytes::Own(pieces.concat().into_boxed_slice())
        } else {
            Bytes::Pieces(pieces)
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Bytes::Pieces(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Bytes::Own(data) => data.len() as u64,
        }
    }
}

/// A message that waits for the log: one write, or several that the client has coalesced.
pub(crate) struct NewWrites<'a> {
    pub schema: &'a Arc<Schema>,
    pub producer: Option<&'a Arc<ProducerName>>,
    /// Of the first write; 0 without a producer.
    pub seq: u64,
    pub count: u32,
    /// Rows of each write; None if the message is one.
    pub rows: Option<&'a [u32]>,
    pub bytes: Bytes<'a>,
    pub accepted_us: u64,
}

impl NewWrites<'_> {
    /// What they take until they are written: the row counts of many small writes are more than their data.
    pub fn size(&self) -> u64 {
        self.bytes.len() + self.rows.map_or(0, |rows| size_of_val(rows) as u64)
    }
}

/// Neighbours that become one record: their LSNs are consecutive, and so are their sequence numbers.
#[derive(Debug)]
pub(crate) struct PendingWrites {
    pub schema: Arc<Schema>,
    pub producer: Option<Arc<ProducerName>>,
    pub first_lsn: u64,
    pub first_seq: u64,
    pub accepted_us: u64,
    pub count: u32,
    messages: u32,
    rows: Option<Range<usize>>,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// A part of the group's own bytes.
    Range(Range<usize>),
    Own(Box<[u8]>),
}

impl PendingWrites {
    pub fn last_lsn(&self) -> u64 {
        self.first_lsn + u64::from(self.count) - 1
    }

    pub fn last_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count) - 1
    }
}

/// A collection that waits for the log.
#[derive(Debug)]
pub(crate) struct PendingCollection {
    pub name: Arc<str>,
    pub encoded: Box<[u8]>,
    pub done: Arc<Completion>,
}

#[derive(Debug)]
pub(crate) enum Pending {
    Writes(PendingWrites),
    Collection(PendingCollection),
}

/// What is synced together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub pending: Vec<Pending>,
    payload: Vec<u8>,
    rows: Vec<u32>,
    /// Of the messages and their row counts.
    pub bytes: u64,
    pub messages: u64,
}

impl Group {
    /// Takes in writes, which get their LSNs from here on. There is no allocation for one that joins its neighbour.
    pub fn push(&mut self, lsn: u64, new: NewWrites<'_>) {
        let length = new.bytes.len();
        self.bytes += new.size();
        self.messages += 1;
        let joined = match &mut self.pending[..] {
            [.., Pending::Writes(last)] if joins(last, &new, length) => Some(last),
            _ => None,
        };
        if let Some(last) = joined {
            last.count += new.count;
            last.messages += 1;
            if let (Some(range), Some(rows)) = (&mut last.rows, new.rows) {
                self.rows.extend_from_slice(rows);
                range.end = self.rows.len();
            }
            if let (Payload::Range(range), Bytes::Pieces(pieces)) = (&mut last.payload, &new.bytes)
            {
                pieces
                    .iter()
                    .for_each(|piece| self.payload.extend_from_slice(piece));
                range.end = self.payload.len();
            }
            return;
        }
        let rows = new.rows.map(|rows| {
            let start = self.rows.len();
            self.rows.extend_from_slice(rows);
            start..self.rows.len()
        });
        let payload = match new.bytes {
            Bytes::Own(data) => Payload::Own(data),
            Bytes::Pieces(pieces) => {
                let start = self.payload.len();
                pieces
                    .iter()
                    .for_each(|piece| self.payload.extend_from_slice(piece));
                Payload::Range(start..self.payload.len())
            }
        };
        self.pending.push(Pending::Writes(PendingWrites {
            schema: new.schema.clone(),
            producer: new.producer.cloned(),
            first_lsn: lsn,
            first_seq: new.seq,
            accepted_us: new.accepted_us,
            count: new.count,
            messages: 1,
            rows,
            payload,
        }));
    }

    pub fn declare(&mut self, collection: PendingCollection) {
        self.pending.push(Pending::Collection(collection));
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn writes(&self) -> impl Iterator<Item = &PendingWrites> {
        self.pending.iter().filter_map(|pending| match pending {
            Pending::Writes(writes) => Some(writes),
            Pending::Collection(_) => None,
        })
    }

    /// Appends the group's records. `schemas` has the number of each schema that the segment has named already.
    pub fn encode(&self, schemas: &mut HashMap<u64, u32>, out: &mut Vec<u8>) {
        for pending in &self.pending {
            let writes = match pending {
                Pending::Collection(collection) => {
                    format::collection(out, &collection.encoded);
                    continue;
                }
                Pending::Writes(writes) => writes,
            };
            let schema = &writes.schema;
            let next = schemas.len() as u32;
            let schema_id = *schemas.entry(schema.id).or_insert_with(|| {
                format::schema(out, next, &schema.collection, &schema.message);
                next
            });
            let payload = match &writes.payload {
                Payload::Range(range) => &self.payload[range.clone()],
                Payload::Own(data) => data,
            };
            let head = WritesHead {
                first_lsn: writes.first_lsn,
                first_seq: writes.first_seq,
                accepted_us: writes.accepted_us,
                count: writes.count,
                schema_id,
                messages: writes.messages,
                producer: writes.producer.as_ref().map_or("", |name| &name.id),
                rows: writes.rows.clone().map(|range| &self.rows[range]),
            };
            format::writes(out, &head, payload);
        }
    }

    /// Makes room for another group, whose bytes take the room of this one's if that is not unusually much.
    pub fn clear(&mut self, most_bytes: u64) {
        self.pending.clear();
        self.payload.clear();
        self.rows.clear();
        self.payload.shrink_to(2 * most_bytes as usize);
        self.rows.shrink_to(most_bytes as usize / size_of::<u32>());
        self.pending
            .shrink_to(most_bytes as usize / size_of::<Pending>());
        (self.bytes, self.messages) = (0, 0);
    }
}

/// Whether writes can be in one record with those before them. Without a producer it does not matter by which stream
/// they came.
fn joins(last: &PendingWrites, new: &NewWrites<'_>, length: u64) -> bool {
    let same_producer = match (&last.producer, new.producer) {
        (None, None) => true,
        (Some(mine), Some(its)) => Arc::ptr_eq(mine, its) && last.last_seq() + 1 == new.seq,
        _ => false,
    };
    let Payload::Range(payload) = &last.payload else {
        return false;
    };
    same_producer
        && Arc::ptr_eq(&last.schema, new.schema)
        && last.rows.is_some() == new.rows.is_some()
        && matches!(new.bytes, Bytes::Pieces(_))
        && payload.len() as u64 + length <= MOST_BYTES_OF_A_RECORD
        && last.count.checked_add(new.count).is_some()
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
