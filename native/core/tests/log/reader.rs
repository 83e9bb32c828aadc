//! Reads segments back, by docs/wal.md alone.

use std::fs;
use std::path::Path;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub first_lsn: u64,
    pub reserved_until: u64,
    pub previous_length: u64,
    pub nonce: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Mark {
        durable: u64,
        reserved_until: u64,
        nonce: u64,
    },
    State(Value),
    Schema {
        id: u32,
        collection: String,
        message: Vec<u8>,
    },
    Collection(Vec<u8>),
    Writes(Writes),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writes {
    pub first_lsn: u64,
    pub first_seq: u64,
    pub accepted_us: u64,
    pub count: u32,
    pub schema_id: u32,
    pub messages: u32,
    pub producer: String,
    pub rows: Option<Vec<u32>>,
    pub payload: Vec<u8>,
}

#[derive(Debug)]
pub struct Segment {
    pub header: Header,
    pub length: u64,
    /// Each with the offset at which it begins.
    pub records: Vec<(u64, Record)>,
}

impl Segment {
    pub fn writes(&self) -> impl Iterator<Item = &Writes> {
        self.records.iter().filter_map(|(_, record)| match record {
            Record::Writes(writes) => Some(writes),
            _ => None,
        })
    }

    pub fn state(&self) -> Option<&Value> {
        self.records.iter().find_map(|(_, record)| match record {
            Record::State(state) => Some(state),
            _ => None,
        })
    }
}

/// The segments of a folder, each up to where the next one says that it ends, and the last up to what is whole.
pub fn read(folder: &Path) -> Vec<Segment> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let files: Vec<Vec<u8>> = names.iter().map(|path| fs::read(path).unwrap()).collect();
    let files: Vec<_> = files.iter().filter(|data| data.len() >= 64).collect();
    let headers: Vec<Header> = files.iter().map(|data| header(data)).collect();
    let mut segments = Vec::new();
    for (index, data) in files.iter().enumerate() {
        let end = headers
            .get(index + 1)
            .map_or(data.len(), |next| next.previous_length as usize);
        let (records, length) = records(&data[..end]);
        let is_last = index + 1 == files.len();
        assert!(
            is_last || length == end as u64,
            "a segment has less than was synced"
        );
        segments.push(Segment {
            header: headers[index].clone(),
            length,
            records,
        });
    }
    segments
}

pub fn lsns_in(folder: &Path) -> Vec<u64> {
    let segments = read(folder);
    let writes = segments.iter().flat_map(Segment::writes);
    writes
        .flat_map(|one| one.first_lsn..one.first_lsn + u64::from(one.count))
        .collect()
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
}

fn u16_at(data: &[u8], at: usize) -> usize {
    u16::from_le_bytes(data[at..at + 2].try_into().unwrap()).into()
}

fn header(data: &[u8]) -> Header {
    assert_eq!(&data[..8], b"HEADRWAL");
    assert_eq!(u32_at(data, 8), 2);
    assert_eq!(u32_at(data, 60), crc32fast::hash(&data[..60]));
    Header {
        number: u64_at(data, 24),
        first_lsn: u64_at(data, 32),
        reserved_until: u64_at(data, 40),
        previous_length: u64_at(data, 48),
        nonce: u64::from(u32_at(data, 12)) << 32 | u64::from(u32_at(data, 56)),
    }
}

fn records(data: &[u8]) -> (Vec<(u64, Record)>, u64) {
    let mut found = Vec::new();
    let mut at = 64;
    while at + 16 <= data.len() && &data[at..at + 4] == b"HRDW" {
        let length = u32_at(data, at + 4) as usize;
        let end = at + 16 + length.next_multiple_of(8);
        if end > data.len() {
            break;
        }
        let body = &data[at + 16..at + 16 + length];
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&data[at + 4..at + 8]);
        hasher.update(&data[at + 12..at + 13]);
        hasher.update(body);
        if hasher.finalize() != u32_at(data, at + 8) {
            break;
        }
        assert!(data[at + 13..at + 16].iter().all(|byte| *byte == 0));
        assert!(data[at + 16 + length..end].iter().all(|byte| *byte == 0));
        found.push((at as u64, record(data[at + 12], body)));
        at = end;
    }
    (found, at as u64)
}

fn record(kind: u8, body: &[u8]) -> Record {
    match kind {
        1 => Record::Mark {
            durable: u64_at(body, 0),
            reserved_until: u64_at(body, 8),
            nonce: u64_at(body, 16),
        },
        2 => Record::State(serde_json::from_slice(body).unwrap()),
        3 => {
            let end = 8 + u16_at(body, 4);
            Record::Schema {
                id: u32_at(body, 0),
                collection: String::from_utf8(body[8..end].to_vec()).unwrap(),
                message: body[end.next_multiple_of(8)..].to_vec(),
            }
        }
        4 => Record::Collection(body.to_vec()),
        5 => Record::Writes(writes(body)),
        _ => panic!("kind {kind}"),
    }
}

fn writes(body: &[u8]) -> Writes {
    let count = u32_at(body, 24);
    let mut end = 40 + u16_at(body, 36);
    let producer = String::from_utf8(body[40..end].to_vec()).unwrap();
    let rows = (u16_at(body, 38) & 1 == 0).then(|| {
        let begin = end.next_multiple_of(4);
        end = begin + 4 * count as usize;
        (begin..end).step_by(4).map(|at| u32_at(body, at)).collect()
    });
    Writes {
        first_lsn: u64_at(body, 0),
        first_seq: u64_at(body, 8),
        accepted_us: u64_at(body, 16),
        count,
        schema_id: u32_at(body, 28),
        messages: u32_at(body, 32),
        producer,
        rows,
        payload: body[end.next_multiple_of(8)..].to_vec(),
    }
}
