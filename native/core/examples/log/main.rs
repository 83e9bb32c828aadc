//! Lets tests in Python drive the log: a request is a line of JSON, and so is its answer.

mod disk;
mod schedule;

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use headrace_core::format::{self, WritesHead};
use headrace_core::{LogState, SegmentHeader};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Answers with the bytes of records, in hexadecimal digits.
    Encode(Vec<Record>),
    /// Answers with a state as it is written again.
    State(Value),
    /// Answers with what a log promised, and what its disk had whenever its machine could have stopped.
    Live(schedule::Life),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Header {
        term: u64,
        number: u64,
        first_lsn: u64,
        reserved_until: u64,
        previous_length: u64,
        nonce: u64,
    },
    Mark {
        durable: u64,
        reserved_until: u64,
        nonce: u64,
    },
    Schema {
        id: u32,
        collection: String,
        message: String,
    },
    Collection(Value),
    Writes(Box<Writes>),
}

#[derive(Deserialize)]
struct Writes {
    first_lsn: u64,
    first_seq: u64,
    accepted_us: u64,
    count: u32,
    schema_id: u32,
    messages: u32,
    producer: String,
    rows: Option<Vec<u32>>,
    payload: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Encode(records) => json!(hex(&encode(records)?)),
            Request::State(state) => encode_again(&state)?,
            Request::Live(life) => schedule::live(&life)?,
        };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn encode(records: Vec<Record>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut out = Vec::new();
    for record in records {
        match record {
            Record::Header {
                term,
                number,
                first_lsn,
                reserved_until,
                previous_length,
                nonce,
            } => {
                SegmentHeader {
                    term,
                    number,
                    first_lsn,
                    reserved_until,
                    previous_length,
                    nonce,
                }
                .encode(&mut out);
            }
            Record::Mark {
                durable,
                reserved_until,
                nonce,
            } => format::mark(&mut out, durable, reserved_until, nonce),
            Record::Schema {
                id,
                collection,
                message,
            } => format::schema(&mut out, id, &collection, &bytes(&message)?),
            Record::Collection(json) => format::collection(&mut out, json.to_string().as_bytes()),
            Record::Writes(writes) => {
                let head = WritesHead {
                    first_lsn: writes.first_lsn,
                    first_seq: writes.first_seq,
                    accepted_us: writes.accepted_us,
                    count: writes.count,
                    schema_id: writes.schema_id,
                    messages: writes.messages,
                    producer: &writes.producer,
                    rows: writes.rows.as_deref(),
                };
                format::writes(&mut out, &head, &bytes(&writes.payload)?);
            }
        }
    }
    Ok(out)
}

fn encode_again(state: &Value) -> Result<Value, serde_json::Error> {
    let state = LogState::decode(state.to_string().as_bytes())?;
    let mut out = Vec::new();
    state.encode(&state.silent(), &mut out);
    serde_json::from_slice(&out)
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Result<Vec<u8>, std::num::ParseIntError> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
        .collect()
}
