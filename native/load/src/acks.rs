//! Acknowledgements as they come from the server: record batches with the four columns of the protocol.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use arrow_flight::FlightData;
use arrow_flight::utils::flight_data_to_arrow_batch;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::LoadError;

pub const TIERS: [&str; 4] = ["MEMORY", "LOCAL_DISK", "OBJECT_STORAGE", "COMMITTED"];

pub fn tier_of(name: &str) -> Option<usize> {
    TIERS.iter().position(|tier| *tier == name)
}

pub fn ack_schema() -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    Arc::new(Schema::new(vec![
        Field::new("lsn", DataType::UInt64, false),
        Field::new("durability_level", DataType::Utf8, false),
        Field::new("is_durability_update", DataType::Boolean, false),
        Field::new("timestamp", timestamp, false),
    ]))
}

/// One row: a write's LSN, the tier it has reached, and when the server says it did, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    pub lsn: u64,
    pub tier: usize,
    pub at_us: i64,
}

/// Decodes one stream's acknowledgements.
#[derive(Debug)]
pub struct Decoder {
    schema: SchemaRef,
    begun: bool,
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder {
            schema: ack_schema(),
            begun: false,
        }
    }

    /// Hands every row of a message to `on_ack`, in order. A message without a batch has none.
    pub fn decode(
        &mut self,
        data: &FlightData,
        mut on_ack: impl FnMut(Ack) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        if data.data_header.is_empty() {
            return Ok(());
        }
        if !self.begun {
            return self.begin(data);
        }
        let batch = flight_data_to_arrow_batch(data, Arc::clone(&self.schema), &HashMap::new())
            .map_err(|error| LoadError::Acknowledgement(error.to_string()))?;
        let lsns = batch.column(0).as_primitive::<UInt64Type>().values();
        let levels = batch.column(1).as_string::<i32>();
        let times = batch
            .column(3)
            .as_primitive::<TimestampMicrosecondType>()
            .values();
        // Rows of one tier come together, so the name is looked up only where it changes.
        let (mut last, mut tier) = ("", 0);
        for row in 0..batch.num_rows() {
            let level = levels.value(row);
            if level != last {
                last = level;
                tier = tier_of(level).ok_or_else(|| {
                    LoadError::Acknowledgement(format!("there is no tier {level}"))
                })?;
            }
            on_ack(Ack {
                lsn: lsns[row],
                tier,
                at_us: times[row],
            })?;
        }
        Ok(())
    }

    fn begin(&mut self, data: &FlightData) -> Result<(), LoadError> {
        let schema = Schema::try_from(data)
            .map_err(|error| LoadError::Acknowledgement(error.to_string()))?;
        if schema.fields() != self.schema.fields() {
            let names: Vec<_> = schema
                .fields()
                .iter()
                .map(|field| field.to_string())
                .collect();
            let names = names.join(", ");
            return Err(LoadError::Acknowledgement(format!(
                "its columns are {names}"
            )));
        }
        self.begun = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
    use arrow_array::{StringArray, TimestampMicrosecondArray, UInt64Array};
    use arrow_flight::utils::batches_to_flight_data;

    fn batch(levels: &[&str]) -> RecordBatch {
        let rows = levels.len();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(7..7 + rows as u64)),
            Arc::new(StringArray::from(levels.to_vec())),
            Arc::new(BooleanArray::from(vec![false; rows])),
            Arc::new(TimestampMicrosecondArray::from(vec![42; rows])),
        ];
        RecordBatch::try_new(ack_schema(), columns).unwrap()
    }

    fn decoded(messages: &[FlightData]) -> Result<Vec<Ack>, LoadError> {
        let (mut decoder, mut found) = (Decoder::new(), Vec::new());
        for data in messages {
            decoder.decode(data, |ack| {
                found.push(ack);
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn every_row_is_an_acknowledgement() {
        let batch = batch(&["MEMORY", "COMMITTED"]);
        let mut messages = batches_to_flight_data(&ack_schema(), &[batch]).unwrap();
        messages.insert(0, FlightData::new().with_app_metadata("{}"));
        let expected = [
            Ack {
                lsn: 7,
                tier: 0,
                at_us: 42,
            },
            Ack {
                lsn: 8,
                tier: 3,
                at_us: 42,
            },
        ];
        assert_eq!(decoded(&messages).unwrap(), expected);
    }

    #[test]
    fn a_tier_that_there_is_not_is_an_error() {
        let messages = batches_to_flight_data(&ack_schema(), &[batch(&["TAPE"])]).unwrap();
        assert!(decoded(&messages).unwrap_err().to_string().contains("TAPE"));
    }

    #[test]
    fn other_columns_are_an_error() {
        let schema = Schema::new(vec![Field::new("x", DataType::Int64, true)]);
        let messages = batches_to_flight_data(&schema, &[]).unwrap();
        assert!(
            decoded(&messages)
                .unwrap_err()
                .to_string()
                .contains("columns are")
        );
    }
}
