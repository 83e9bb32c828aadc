//! The rows that are written, of a number and a text: encoded once and sent repeatedly.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::error::LoadError;

const DISTINCT: usize = 64;
const ID_BYTES: usize = 8;

/// Messages of a stream as any Arrow Flight client would encode them.
#[derive(Debug)]
pub struct Messages {
    schema: FlightData,
    batches: Vec<FlightData>,
    first_metadata: Bytes,
}

impl Messages {
    pub fn new(config: &Config) -> Result<Messages, LoadError> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("payload", DataType::Utf8, true),
        ]));
        let rows = config.coalesce;
        let batches: Vec<RecordBatch> = (0..DISTINCT)
            .map(|number| batch(&schema, number * rows, rows, config.payload))
            .collect::<Result<_, _>>()
            .map_err(|error| LoadError::Config(error.to_string()))?;
        let mut encoded = batches_to_flight_data(&schema, &batches)
            .map_err(|error| LoadError::Config(error.to_string()))?
            .into_iter();
        let mut begin = encoded
            .next()
            .ok_or_else(|| LoadError::Config("a schema was not encoded".to_owned()))?;
        begin.flight_descriptor = Some(FlightDescriptor::new_path(vec![
            "streaming_write".to_owned(),
            config.collection.clone(),
        ]));
        let metadata = metadata_of(rows, None);
        let batches = encoded
            .map(|mut data| {
                data.app_metadata = metadata.clone();
                data
            })
            .collect();
        Ok(Messages {
            schema: begin,
            batches,
            first_metadata: metadata_of(rows, config.levels.as_deref()),
        })
    }

    /// Returns the message that opens a stream.
    pub fn begin(&self) -> FlightData {
        self.schema.clone()
    }

    /// Returns a stream's batch with this number. The first one carries the options, if there are any.
    pub fn batch(&self, number: u64) -> FlightData {
        let mut data = self.batches[(number % self.batches.len() as u64) as usize].clone();
        if number == 0 {
            data.app_metadata = self.first_metadata.clone();
        }
        data
    }
}

fn batch(
    schema: &Arc<Schema>,
    first: usize,
    rows: usize,
    payload: usize,
) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let length = payload.saturating_sub(ID_BYTES).max(1);
    let ids = Int64Array::from_iter_values((first..first + rows).map(|id| id as i64));
    let texts = StringArray::from_iter_values((first..first + rows).map(|id| text(id, length)));
    RecordBatch::try_new(
        Arc::clone(schema),
        vec![Arc::new(ids) as ArrayRef, Arc::new(texts)],
    )
}

/// Returns letters that look random, by a linear congruential generator, so that nothing compresses them away.
fn text(id: usize, length: usize) -> String {
    let mut state = id as u64;
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + ((state >> 33) % 26) as u8)
        })
        .collect()
}

fn metadata_of(rows: usize, levels: Option<&[String]>) -> Bytes {
    let mut metadata = Map::new();
    if let Some(levels) = levels {
        metadata.insert("levels".to_owned(), json!(levels));
    }
    if rows > 1 {
        metadata.insert("rows".to_owned(), json!(vec![1; rows]));
    }
    if metadata.is_empty() {
        Bytes::new()
    } else {
        Value::Object(metadata).to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_flight::utils::flight_data_to_batches;

    fn messages(extra: &str) -> Messages {
        let json = format!(r#"{{"url": "grpc://h:1", "collection": "c", "seconds": 1{extra}}}"#);
        Messages::new(&Config::parse(&json).unwrap()).unwrap()
    }

    #[test]
    fn a_client_without_options_sends_no_metadata() {
        let messages = messages("");
        assert!(messages.batch(0).app_metadata.is_empty());
        let batches =
            flight_data_to_batches(&[messages.begin(), messages.batch(0), messages.batch(65)]);
        assert!(batches.unwrap().iter().all(|batch| batch.num_rows() == 1));
        let descriptor = messages.begin().flight_descriptor.unwrap();
        assert_eq!(descriptor.path, ["streaming_write", "c"]);
    }

    #[test]
    fn coalesced_writes_are_told_apart_by_rows() {
        let messages = messages(r#", "coalesce": 3, "levels": ["MEMORY"]"#);
        assert_eq!(
            messages.batch(0).app_metadata,
            r#"{"levels":["MEMORY"],"rows":[1,1,1]}"#
        );
        assert_eq!(messages.batch(1).app_metadata, r#"{"rows":[1,1,1]}"#);
        let batches = flight_data_to_batches(&[messages.begin(), messages.batch(1)]).unwrap();
        assert_eq!(batches[0].num_rows(), 3);
    }
}
