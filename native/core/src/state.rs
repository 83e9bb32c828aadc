//! The state of the log besides its writes. It is stored as JSON at the start of a segment, and Python reads it.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

/// First and last, both included.
pub type Range = (u64, u64);

/// A producer that has been silent for this long, while servers of the log ran, is forgotten when the log's state is
/// next written down. Without an end to it, clients that make up a new id at each start would fill it.
pub const PRODUCER_SILENCE_US: u64 = 7 * 24 * 3600 * 1_000_000;

const EMPTY_BYTES: u64 = 150; // of a state
const ENTRY_BYTES: u64 = 48;

/// A producer in one collection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerName {
    pub collection: Arc<str>,
    pub id: Arc<str>,
}

/// The last write of a producer in one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    pub last_seq: u64,
    pub last_lsn: u64,
    /// When it was last heard of, in the log's own time: `LogState::uptime_us`.
    pub seen_us: u64,
}

/// How far a collection's table is: every write at or below the LSN is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    pub lsn: u64,
    pub snapshot_id: Option<i64>,
}

/// The state with which a log is opened, and which is updated as the log grows.
#[derive(Debug, Default)]
pub struct LogState {
    /// The last LSN in the log.
    pub last_lsn: u64,
    /// LSNs below this may have been given away.
    pub reserved_until: u64,
    /// For how long servers of this log have run. Nobody sets it, as the clock on the wall is set: what is forgotten
    /// by it cannot be brought back.
    pub uptime_us: u64,
    /// Each as it was encoded when it was declared, in the order of the first declarations.
    pub collections: Vec<(Arc<str>, Box<[u8]>)>,
    pub producers: HashMap<Arc<ProducerName>, ProducerState>,
    /// LSNs that were or may have been given away, and whose writes died with a process or a disk.
    pub lost: Vec<Range>,
    /// The last known positions; a table may be ahead of its position here.
    pub committed: HashMap<Arc<str>, Committed>,
    /// No producer was ever forgotten whose last write has a higher LSN than this.
    pub forgotten_lsn: u64,
}

#[derive(Deserialize)]
struct Encoded<'a> {
    last_lsn: u64,
    reserved_until: u64,
    uptime_us: u64,
    #[serde(borrow)]
    collections: Vec<&'a RawValue>,
    producers: Vec<(String, String, u64, u64, u64)>,
    forgotten_lsn: u64,
    lost: Vec<Range>,
    committed: Vec<(String, u64, Option<i64>)>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl LogState {
    /// Reads what `encode` writes, or `LogState.encode` of Python.
    pub fn decode(json: &[u8]) -> Result<LogState, serde_json::Error> {
        let raw: Encoded<'_> = serde_json::from_slice(json)?;
        let collections = raw
            .collections
            .iter()
            .map(|one| {
                let Named { name } = serde_json::from_str(one.get())?;
                Ok((name.into(), one.get().as_bytes().into()))
            })
            .collect::<Result<_, serde_json::Error>>()?;
        let producers =
            raw.producers
                .into_iter()
                .map(|(collection, id, last_seq, last_lsn, seen_us)| {
                    let name = ProducerName {
                        collection: collection.into(),
                        id: id.into(),
                    };
                    (
                        Arc::new(name),
                        ProducerState {
                            last_seq,
                            last_lsn,
                            seen_us,
                        },
                    )
                });
        let committed = raw
            .committed
            .into_iter()
            .map(|(name, lsn, snapshot_id)| (name.into(), Committed { lsn, snapshot_id }));
        Ok(LogState {
            last_lsn: raw.last_lsn,
            reserved_until: raw.reserved_until,
            uptime_us: raw.uptime_us,
            collections,
            producers: producers.collect(),
            lost: raw.lost,
            committed: committed.collect(),
            forgotten_lsn: raw.forgotten_lsn,
        })
    }

    /// Appends the state as it stands in the log, without some producers.
    pub fn encode(&self, without: &Forgotten, out: &mut Vec<u8>) {
        let mut json = JsonWriter { out };
        json.number("{\"last_lsn\":", self.last_lsn);
        json.number(",\"reserved_until\":", self.reserved_until);
        json.number(",\"uptime_us\":", self.uptime_us);
        json.list(
            ",\"collections\":",
            self.collections.iter(),
            |json, (_, encoded)| {
                json.out.extend_from_slice(encoded);
            },
        );
        let kept = self
            .producers
            .iter()
            .filter(|(name, _)| !without.names.contains(*name));
        json.list(",\"producers\":", kept, |json, (name, producer)| {
            json.text("[", &name.collection);
            json.text(",", &name.id);
            for number in [producer.last_seq, producer.last_lsn, producer.seen_us] {
                json.number(",", number);
            }
            json.out.push(b']');
        });
        json.number(
            ",\"forgotten_lsn\":",
            self.forgotten_lsn.max(without.last_lsn),
        );
        json.list(",\"lost\":", self.lost.iter(), |json, (first, last)| {
            json.number("[", *first);
            json.number(",", *last);
            json.out.push(b']');
        });
        json.list(
            ",\"committed\":",
            self.committed.iter(),
            |json, (name, at)| {
                json.text("[", name);
                json.number(",", at.lsn);
                match at.snapshot_id {
                    Some(id) => json.number(",", id),
                    None => json.out.extend_from_slice(b",null"),
                }
                json.out.push(b']');
            },
        );
        json.out.push(b'}');
    }

    /// Notes a collection down that was created or changed.
    pub fn declared(&mut self, name: &Arc<str>, encoded: &[u8]) {
        match self.collections.iter_mut().find(|(known, _)| known == name) {
            Some((_, kept)) => *kept = encoded.into(),
            None => self.collections.push((name.clone(), encoded.into())),
        }
    }

    /// Notes the last write of a producer down.
    pub fn wrote(&mut self, producer: &Arc<ProducerName>, last_seq: u64, last_lsn: u64) {
        let latest = ProducerState {
            last_seq,
            last_lsn,
            seen_us: self.uptime_us,
        };
        match self.producers.get_mut(producer) {
            Some(known) => *known = latest,
            None => {
                self.producers.insert(producer.clone(), latest);
            }
        }
    }

    /// Finds producers that were silent for too long, and whose writes are all committed.
    pub fn silent(&self) -> Forgotten {
        let before = self.uptime_us.saturating_sub(PRODUCER_SILENCE_US);
        let mut forgotten = Forgotten::default();
        for (name, producer) in &self.producers {
            let committed = self.committed.get(&name.collection).map_or(0, |at| at.lsn);
            if producer.seen_us < before && producer.last_lsn <= committed {
                forgotten.last_lsn = forgotten.last_lsn.max(producer.last_lsn);
                forgotten.names.insert(name.clone());
            }
        }
        forgotten
    }

    /// Forgets the producers that a state leaves out, once that state is on the disk: a crash must not bring them back
    /// after they were refused as unknown.
    pub fn forget(&mut self, forgotten: &Forgotten) {
        for name in &forgotten.names {
            self.producers.remove(name);
        }
        self.forgotten_lsn = self.forgotten_lsn.max(forgotten.last_lsn);
    }

    /// Estimates the length of `encode`, which takes long where there is much.
    pub fn about_bytes(&self) -> u64 {
        let others = self.producers.len() + self.lost.len() + self.committed.len();
        let collections: usize = self
            .collections
            .iter()
            .map(|(_, encoded)| encoded.len())
            .sum();
        EMPTY_BYTES + collections as u64 + ENTRY_BYTES * others as u64
    }
}

/// Producers that a state leaves out, and the highest LSN of their last writes.
#[derive(Debug, Default)]
pub struct Forgotten {
    pub names: std::collections::HashSet<Arc<ProducerName>>,
    pub last_lsn: u64,
}

struct JsonWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl JsonWriter<'_> {
    fn number(&mut self, before: &str, number: impl std::fmt::Display) {
        self.out
            .extend_from_slice(format!("{before}{number}").as_bytes());
    }

    fn text(&mut self, before: &str, text: &str) {
        self.out.extend_from_slice(before.as_bytes());
        // Text is always encoded, and to a vector always written.
        let written = serde_json::to_writer(&mut *self.out, text);
        debug_assert!(written.is_ok());
    }

    fn list<T>(
        &mut self,
        before: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.out.extend_from_slice(before.as_bytes());
        self.out.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            write(self, item);
        }
        self.out.push(b']');
    }
}
