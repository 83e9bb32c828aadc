//! The messages of a session without a batch, as JSON.

use headrace_core::{Greeting, Run, Tier};
use serde_json::{Value, json};

use crate::control::Facts;

/// Returns the first message to a client that sent options.
pub fn session(collection: &str, greeting: &Greeting, facts: &Facts) -> Vec<u8> {
    let watermarks = json!({
        Tier::Memory.name(): greeting.memory,
        Tier::LocalDisk.name(): greeting.local_disk,
        Tier::ObjectStorage.name(): greeting.object_storage,
        Tier::Committed.name(): facts.committed_lsn,
    });
    let mut session = json!({
        "collection": collection,
        "last_seq": greeting.last_seq,
        "forgotten_lsn": greeting.forgotten_lsn,
        "assigned": runs(&greeting.assigned),
        "lost": facts.lost,
        "watermarks": watermarks,
        "survives": facts.survives,
    });
    if greeting.unsure_until > 0 {
        session["unsure_until"] = greeting.unsure_until.into();
    }
    json!({ "session": session }).to_string().into_bytes()
}

/// Why the stream is not read now, or that it is read again.
pub fn throttled(reason: Option<&str>) -> Vec<u8> {
    json!({ "throttled": reason }).to_string().into_bytes()
}

pub fn assigned(assigned: &[Run]) -> Vec<u8> {
    json!({ "assigned": runs(assigned) })
        .to_string()
        .into_bytes()
}

pub fn snapshot(id: Option<i64>) -> Vec<u8> {
    json!({ "snapshot_id": id }).to_string().into_bytes()
}

fn runs(runs: &[Run]) -> Value {
    runs.iter()
        .map(|run| json!([run.seq, run.lsn, run.count]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_where_the_client_stands() {
        let greeting = Greeting {
            last_seq: Some(41),
            forgotten_lsn: 0,
            assigned: vec![Run {
                seq: 40,
                lsn: 1007,
                count: 2,
            }],
            unsure_until: 0,
            memory: 1008,
            local_disk: 1008,
            object_storage: 1006,
        };
        let survives = json!({"MEMORY": "nothing"});
        let facts = Facts {
            committed_lsn: 900,
            lost: vec![(1009, 65536)],
            survives,
        };
        assert_eq!(
            String::from_utf8(session("orders", &greeting, &facts)).unwrap(),
            concat!(
                r#"{"session":{"collection":"orders","last_seq":41,"forgotten_lsn":0,"assigned":[[40,1007,2]],"#,
                r#""lost":[[1009,65536]],"watermarks":{"MEMORY":1008,"LOCAL_DISK":1008,"OBJECT_STORAGE":1006,"#,
                r#""COMMITTED":900},"survives":{"MEMORY":"nothing"}}}"#
            )
        );
        let unsure = Greeting {
            unsure_until: 7,
            ..greeting
        };
        let said = String::from_utf8(session("orders", &unsure, &facts)).unwrap();
        assert!(said.ends_with(r#","unsure_until":7}}"#));
        assert_eq!(throttled(None), br#"{"throttled":null}"#);
        assert_eq!(snapshot(Some(-3)), br#"{"snapshot_id":-3}"#);
    }
}
