//! The contents of a segment: a header, then records framed with length and checksum. docs/wal.md draws the format.
//!
//! Everything is little-endian and every record starts at a multiple of eight bytes, so that the Arrow messages in
//! it can be read in place.

use crc32fast::Hasher;

const MAGIC: &[u8; 8] = b"HEADRWAL";
const VERSION: u32 = 2;
const ALIGNMENT: usize = 8;
/// How long the header of a segment is.
pub const HEADER_BYTES: usize = 64;
/// How long the frame of a record is.
pub const FRAME_BYTES: usize = 16;
const FRAME_MAGIC: &[u8; 4] = b"HRDW";
/// A record's length has 32 bits; what stands in it besides its messages and row counts is far below this.
pub const MOST_BYTES_OF_A_MESSAGE: u64 = u32::MAX as u64 - (1 << 20);

const ONE_EACH: u16 = 1; // flag: every message is one write

/// The kinds of records, as they stand in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Mark = 1,
    State = 2,
    Schema = 3,
    Collection = 4,
    Writes = 5,
}

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    pub term: u64,
    pub number: u64,
    /// No write of this segment has a lower one.
    pub first_lsn: u64,
    /// LSNs below this may have been given away when the segment was begun.
    pub reserved_until: u64,
    /// How many bytes of the segment before this one count; what follows them there was never synced.
    pub previous_length: u64,
    /// Tells it from a segment of the same number that a server with a copy of the data folder began, and its marks
    /// from whatever a client sends. No client learns it.
    pub nonce: u64,
}

impl SegmentHeader {
    /// The header as it stands in the file.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&((self.nonce >> 32) as u32).to_le_bytes());
        for field in [
            self.term,
            self.number,
            self.first_lsn,
            self.reserved_until,
            self.previous_length,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&(self.nonce as u32).to_le_bytes());
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }
}

/// Appends one record; `body` appends what stands in it.
fn frame(out: &mut Vec<u8>, kind: Kind, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(FRAME_MAGIC);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    let body_start = out.len();
    body(out);
    let length = ((out.len() - body_start) as u32).to_le_bytes();
    let mut hasher = Hasher::new();
    hasher.update(&length);
    hasher.update(&[kind as u8]);
    hasher.update(&out[body_start..]);
    out[start + 4..start + 8].copy_from_slice(&length);
    out[start + 8..start + 12].copy_from_slice(&hasher.finalize().to_le_bytes());
    pad(out, body_start, ALIGNMENT);
}

/// Appends zeros until what began at an offset has a length that is a multiple.
fn pad(out: &mut Vec<u8>, since: usize, multiple: usize) {
    let length = out.len() - since;
    out.resize(since + length.next_multiple_of(multiple), 0);
}

/// Appends the mark that stands before each group of records that is synced together.
pub fn mark(out: &mut Vec<u8>, durable: u64, reserved_until: u64, nonce: u64) {
    frame(out, Kind::Mark, |out| {
        for number in [durable, reserved_until, nonce] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
}

/// Appends the log's state, which is JSON.
pub fn state(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    frame(out, Kind::State, encode);
}

/// Appends a collection, which is JSON.
pub fn collection(out: &mut Vec<u8>, encoded: &[u8]) {
    frame(out, Kind::Collection, |out| out.extend_from_slice(encoded));
}

/// Appends a schema that writes of the segment refer to by number.
pub fn schema(out: &mut Vec<u8>, id: u32, collection: &str, message: &[u8]) {
    frame(out, Kind::Schema, |out| {
        let start = out.len();
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(collection.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(collection.as_bytes());
        pad(out, start, ALIGNMENT);
        out.extend_from_slice(message);
    });
}

/// The fields of a record of writes, apart from its messages.
#[derive(Debug, Clone, Copy)]
pub struct WritesHead<'a> {
    pub first_lsn: u64,
    /// The sequence number of the first write; 0 without a producer.
    pub first_seq: u64,
    pub accepted_us: u64,
    pub count: u32,
    pub schema_id: u32,
    pub messages: u32,
    pub producer: &'a str,
    /// Rows of each write; None if each message is one.
    pub rows: Option<&'a [u32]>,
}

/// Appends a record of writes.
pub fn writes(out: &mut Vec<u8>, head: &WritesHead<'_>, payload: &[u8]) {
    frame(out, Kind::Writes, |out| {
        let start = out.len();
        for number in [head.first_lsn, head.first_seq, head.accepted_us] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [head.count, head.schema_id, head.messages] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let flags = if head.rows.is_none() { ONE_EACH } else { 0 };
        out.extend_from_slice(&(head.producer.len() as u16).to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(head.producer.as_bytes());
        if let Some(rows) = head.rows {
            pad(out, start, size_of::<u32>());
            for count in rows {
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
        pad(out, start, ALIGNMENT);
        out.extend_from_slice(payload);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_starts_where_arrow_can_read_in_place() {
        let mut out = Vec::new();
        for length in 0..20_usize {
            let producer = "p".repeat(length);
            let rows = vec![1; length + 1];
            let head = WritesHead {
                first_lsn: 1,
                first_seq: 1,
                accepted_us: 1,
                count: rows.len() as u32,
                schema_id: 0,
                messages: 1,
                producer: &producer,
                rows: (length % 2 == 0).then_some(&rows),
            };
            let before = out.len();
            writes(&mut out, &head, &[7; 16]);
            assert_eq!(out.len() % ALIGNMENT, 0);
            // The messages end the body, and they are as long as a multiple of eight.
            assert_eq!(&out[out.len() - 16..], &[7; 16]);
            collection(&mut out, &vec![b'x'; length]);
            assert_eq!(out.len() % ALIGNMENT, 0);
            assert_eq!(&out[before..before + 4], FRAME_MAGIC);
        }
    }

    #[test]
    fn a_header_has_its_length() {
        let mut out = Vec::new();
        let header = SegmentHeader {
            term: 1,
            number: 2,
            first_lsn: 3,
            reserved_until: 4,
            previous_length: 5,
            nonce: u64::MAX,
        };
        header.encode(&mut out);
        assert_eq!(out.len(), HEADER_BYTES);
    }
}
