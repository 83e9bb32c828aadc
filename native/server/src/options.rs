//! What a client says in the `app_metadata` of its messages.

use headrace_core::{Quoted, Tier, Tiers};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::refusal::Refusal;
use crate::repr::{grouped, repr};

pub const LONGEST_PRODUCER: usize = 200;
const MOST_SEQ: u64 = 1 << 63;
/// Of the value of an option; a longer one would take many times its length as a value.
const LONGEST_OPTION: usize = 64 << 10;
const KEYS: &str = "producer, levels, acks, resume_after, first_seq, seq, rows";

/// What holds for a whole stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Empty without a producer.
    pub producer: String,
    /// The tiers that are announced.
    pub levels: Tiers,
    pub by_watermark: bool,
    pub resume_after: Option<u64>,
    /// Where the producer's numbers begin: from one that is not known, a first number above it is refused.
    pub first_seq: u64,
    /// Whether the client sent any: then it understands messages without a batch.
    pub is_given: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            producer: String::new(),
            levels: Tiers::ALL,
            by_watermark: false,
            resume_after: None,
            first_seq: 1,
            is_given: false,
        }
    }
}

/// What a message says of the writes in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbering {
    /// The first write's sequence number; 0 without a producer.
    pub seq: u64,
    /// Rows of each write; `None`: the message is one write.
    pub rows: Option<Vec<u32>>,
}

impl Numbering {
    /// Leaves out writes at the front, and says how many rows they have.
    pub fn skip(&mut self, writes: u32) -> usize {
        self.seq += u64::from(writes);
        let Some(rows) = &mut self.rows else { return 0 };
        rows.drain(..(writes as usize).min(rows.len()))
            .map(|rows| rows as usize)
            .sum()
    }
}

/// The `app_metadata` of one message, as JSON: known keys, and values of any kind.
#[derive(Debug, Default)]
pub struct Metadata<'a> {
    producer: Option<Value>,
    levels: Option<Value>,
    acks: Option<Value>,
    resume_after: Option<Value>,
    first_seq: Option<Value>,
    seq: Option<Value>,
    /// Read as a list of integers at once: there may be thousands of them in a message.
    rows: Option<&'a RawValue>,
}

impl<'a> Metadata<'a> {
    pub fn parse(metadata: &'a [u8]) -> Result<Self, Refusal> {
        if metadata.is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_slice(metadata) {
            Ok(Parsed::Known(metadata)) => Ok(*metadata),
            Ok(Parsed::TooLong(key, length)) => Err(Refusal::config(format!(
                "{key} has {} bytes and may have {}",
                grouped(length),
                grouped(LONGEST_OPTION)
            ))),
            Ok(Parsed::Unknown(key)) => Err(Refusal::config(format!(
                "the app_metadata of a message has a key {}; the keys are {KEYS}",
                Quoted(&key)
            ))),
            Err(_) => Err(not_an_object(metadata)),
        }
    }

    pub fn has_options(&self) -> bool {
        let options = [
            &self.producer,
            &self.levels,
            &self.acks,
            &self.resume_after,
            &self.first_seq,
        ];
        options.iter().any(|option| option.is_some())
    }

    pub fn options(&self) -> Result<Options, Refusal> {
        let defaults = Options::default();
        let producer = match &self.producer {
            None => String::new(),
            Some(Value::String(producer)) if producer.len() <= LONGEST_PRODUCER => producer.clone(),
            Some(other) => {
                let most = format!("option producer is a text of at most {LONGEST_PRODUCER} bytes");
                return Err(wrong(&most, other));
            }
        };
        let by_watermark = match &self.acks {
            None => false,
            Some(Value::String(acks)) if acks == "per-lsn" => false,
            Some(Value::String(acks)) if acks == "watermark" => true,
            Some(other) => return Err(wrong("option acks is 'per-lsn' or 'watermark'", other)),
        };
        let levels = match &self.levels {
            None => None,
            Some(Value::Array(levels)) if !levels.is_empty() => Some(levels),
            Some(other) => {
                return Err(wrong("option levels is a list of durability levels", other));
            }
        };
        let resume_after = match &self.resume_after {
            None | Some(Value::Null) => None,
            Some(other) => Some(
                other
                    .as_u64()
                    .ok_or_else(|| wrong("option resume_after is an LSN", other))?,
            ),
        };
        let first_seq = match &self.first_seq {
            None => defaults.first_seq,
            Some(other) => seq_of(other)
                .ok_or_else(|| wrong("option first_seq is an integer from 1 on", other))?,
        };
        let levels = match levels {
            None => defaults.levels,
            Some(named) => named.iter().map(tier).collect::<Result<_, _>>()?,
        };
        Ok(Options {
            producer,
            levels,
            by_watermark,
            resume_after,
            first_seq,
            is_given: true,
        })
    }

    pub fn numbering(
        &self,
        rows_in_batch: usize,
        has_producer: bool,
    ) -> Result<Numbering, Refusal> {
        let seq = match &self.seq {
            None => 0,
            Some(value) => {
                seq_of(value).ok_or_else(|| wrong("seq is an integer from 1 on", value))?
            }
        };
        if has_producer && seq == 0 {
            return Err(Refusal::config(
                "a message of a producer needs a seq: the sequence number of its first write",
            ));
        }
        if seq != 0 && !has_producer {
            return Err(Refusal::config(
                "seq needs the option producer in the first message",
            ));
        }
        let Some(rows) = self.rows.filter(|rows| rows.get() != "null") else {
            return Ok(Numbering { seq, rows: None });
        };
        let counts: Vec<u64> = serde_json::from_str(rows.get()).unwrap_or_default();
        if counts.is_empty() || counts.contains(&0) {
            return Err(Refusal::config(
                "rows is a list with the number of rows of each write, each at least 1",
            ));
        }
        let sum: u128 = counts.iter().map(|count| u128::from(*count)).sum();
        let narrow = counts.iter().map(|count| u32::try_from(*count)).collect();
        match narrow {
            Ok(rows) if sum == rows_in_batch as u128 => Ok(Numbering {
                seq,
                rows: Some(rows),
            }),
            _ => Err(Refusal::config(format!(
                "rows adds up to {sum}, but the batch has {rows_in_batch} rows"
            ))),
        }
    }
}

fn wrong(should_be: &str, value: &Value) -> Refusal {
    Refusal::config(format!("{should_be}, not {}", repr(value)))
}

fn not_an_object(metadata: &[u8]) -> Refusal {
    if metadata.len() > LONGEST_OPTION && serde_json::from_slice::<IgnoredAny>(metadata).is_ok() {
        return Refusal::config(
            "the app_metadata of a message is not an object: leave it out, or send an object",
        );
    }
    match serde_json::from_slice::<Value>(metadata) {
        Ok(other) => Refusal::config(format!(
            "the app_metadata of a message is {}: leave it out, or send an object",
            repr(&other)
        )),
        Err(_) => Refusal::config(
            "the app_metadata of a message is not JSON: leave it out, or send an object",
        ),
    }
}

fn seq_of(value: &Value) -> Option<u64> {
    value.as_u64().filter(|seq| (1..MOST_SEQ).contains(seq))
}

fn tier(level: &Value) -> Result<Tier, Refusal> {
    let is_named = |name: &str| {
        Tier::ALL
            .into_iter()
            .find(|tier| tier.name().eq_ignore_ascii_case(name))
    };
    level.as_str().and_then(is_named).ok_or_else(|| {
        let names = Tier::ALL.map(Tier::name).join(", ");
        Refusal::config(format!(
            "{} is not a durability level: {names}",
            repr(level)
        ))
    })
}

enum Parsed<'a> {
    Known(Box<Metadata<'a>>),
    /// An option, and how long its value is.
    TooLong(&'static str, usize),
    Unknown(String),
}

impl<'de> Deserialize<'de> for Parsed<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Parsed<'de>;

            fn expecting(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed<'de>, A::Error> {
                let mut found = Metadata::default();
                let (mut unknown, mut too_long) = (None, None);
                while let Some(key) = map.next_key::<std::borrow::Cow<str>>()? {
                    let (name, option) = match key.as_ref() {
                        "producer" => ("producer", &mut found.producer),
                        "levels" => ("levels", &mut found.levels),
                        "acks" => ("acks", &mut found.acks),
                        "resume_after" => ("resume_after", &mut found.resume_after),
                        "first_seq" => ("first_seq", &mut found.first_seq),
                        "seq" => ("seq", &mut found.seq),
                        "rows" => {
                            found.rows = Some(map.next_value()?);
                            continue;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            unknown.get_or_insert(key.into_owned());
                            continue;
                        }
                    };
                    let value: &RawValue = map.next_value()?;
                    if value.get().len() > LONGEST_OPTION {
                        too_long = Some(Parsed::TooLong(name, value.get().len()));
                    } else {
                        let value = serde_json::from_str(value.get());
                        *option = Some(value.map_err(serde::de::Error::custom)?);
                    }
                }
                Ok(unknown
                    .map(Parsed::Unknown)
                    .or(too_long)
                    .unwrap_or_else(|| Parsed::Known(Box::new(found))))
            }
        }
        from.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(raw: &Value) -> Result<Options, Refusal> {
        Metadata::parse(raw.to_string().as_bytes())?.options()
    }

    fn numbering(raw: &Value, has_producer: bool) -> Result<Numbering, Refusal> {
        Metadata::parse(raw.to_string().as_bytes())?.numbering(3, has_producer)
    }

    #[test]
    fn options_are_all_optional() {
        assert!(!Metadata::parse(b"").unwrap().has_options());
        assert!(
            !Metadata::parse(br#"{"seq": 1, "rows": [1]}"#)
                .unwrap()
                .has_options()
        );
        assert_eq!(
            options(&json!({})),
            Ok(Options {
                is_given: true,
                ..Options::default()
            })
        );
    }

    #[test]
    fn options_are_understood() {
        let raw = json!({"producer": "till-1", "levels": ["COMMITTED", "memory"], "acks": "watermark",
                         "resume_after": 0, "first_seq": 7});
        assert_eq!(
            options(&raw),
            Ok(Options {
                producer: "till-1".to_owned(),
                levels: Tiers::NONE.with(Tier::Memory).with(Tier::Committed),
                by_watermark: true,
                resume_after: Some(0),
                first_seq: 7,
                is_given: true,
            })
        );
        assert_eq!(
            options(&json!({"resume_after": null}))
                .unwrap()
                .resume_after,
            None
        );
    }

    #[test]
    fn wrong_options_are_refused_in_a_sentence() {
        for (raw, message) in [
            (
                json!({"producer": 5}),
                "option producer is a text of at most 200 bytes, not 5",
            ),
            (
                json!({"producer": "ü".repeat(101)}),
                "option producer is a text of at most 200 bytes",
            ),
            (json!({"producer": null}), "not None"),
            (
                json!({"acks": "each"}),
                "option acks is 'per-lsn' or 'watermark', not 'each'",
            ),
            (
                json!({"levels": "MEMORY"}),
                "option levels is a list of durability levels, not 'MEMORY'",
            ),
            (
                json!({"levels": []}),
                "option levels is a list of durability levels, not []",
            ),
            (
                json!({"levels": ["DISK"]}),
                "'DISK' is not a durability level: MEMORY, LOCAL_DISK",
            ),
            (
                json!({"levels": [["MEMORY"]]}),
                "['MEMORY'] is not a durability level",
            ),
            (
                json!({"resume_after": -1}),
                "option resume_after is an LSN, not -1",
            ),
            (
                json!({"resume_after": true}),
                "option resume_after is an LSN, not True",
            ),
            (
                json!({"first_seq": 0}),
                "option first_seq is an integer from 1 on, not 0",
            ),
            (
                json!({"resume_after": 1.5}),
                "option resume_after is an LSN, not 1.5",
            ),
            (
                json!({"levels": vec![0; 100_000]}),
                "levels has 200,001 bytes and may have 65,536",
            ),
        ] {
            let refusal = options(&raw).unwrap_err();
            assert_eq!(refusal.name, "ConfigError");
            assert!(refusal.message.contains(message), "{}", refusal.message);
        }
    }

    #[test]
    fn metadata_that_is_not_ours_is_refused() {
        for (data, message) in [
            (&b"{"[..], "not JSON: leave it out, or send an object"),
            (b"\xff\xfe", "not JSON"),
            (b"[1]", "is [1]: leave it out, or send an object"),
            (
                format!("[{}1]", "0,".repeat(100_000)).as_bytes(),
                "is not an object: leave it out, or send an object",
            ),
            (br#"{"producer": "\ud800"}"#, "not JSON"),
            (
                br#"{"prodcer": "x", "seq": 1}"#,
                "a key 'prodcer'; the keys are producer, levels, acks, resume_after, first_seq, seq, rows",
            ),
        ] {
            let refusal = Metadata::parse(data).unwrap_err();
            assert!(refusal.message.contains(message), "{}", refusal.message);
        }
        assert!(Metadata::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn numbers_are_understood() {
        let three = |seq, rows| Ok(Numbering { seq, rows });
        assert_eq!(numbering(&json!({"seq": 7}), true), three(7, None));
        assert_eq!(
            numbering(&json!({"seq": 7, "rows": [2, 1]}), true),
            three(7, Some(vec![2, 1]))
        );
        assert_eq!(
            numbering(&json!({"rows": [2, 1]}), false),
            three(0, Some(vec![2, 1]))
        );
        assert_eq!(numbering(&json!({"rows": null}), false), three(0, None));
        assert_eq!(numbering(&json!({}), false), three(0, None));
    }

    #[test]
    fn wrong_numbers_are_refused_in_a_sentence() {
        let most = u64::MAX;
        for (raw, has_producer, message) in [
            (json!({}), true, "a message of a producer needs a seq"),
            (json!({"seq": 3}), false, "seq needs the option producer"),
            (
                json!({"seq": 0}),
                true,
                "seq is an integer from 1 on, not 0",
            ),
            (
                json!({"seq": true}),
                true,
                "seq is an integer from 1 on, not True",
            ),
            (
                json!({"seq": 1u64 << 63}),
                true,
                "seq is an integer from 1 on",
            ),
            (json!({"rows": []}), false, "rows is a list"),
            (json!({"rows": 3}), false, "rows is a list"),
            (json!({"rows": [3, 0]}), false, "each at least 1"),
            (json!({"rows": [3, -1, 1]}), false, "each at least 1"),
            (json!({"rows": [true, 2]}), false, "rows is a list"),
            (
                json!({"rows": [1, 1]}),
                false,
                "rows adds up to 2, but the batch has 3 rows",
            ),
            (
                json!({"rows": [most, most]}),
                false,
                "rows adds up to 36893488147419103230,",
            ),
        ] {
            let refusal = numbering(&raw, has_producer).unwrap_err();
            assert!(refusal.message.contains(message), "{}", refusal.message);
        }
    }
}
