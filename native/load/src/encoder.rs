//! Acknowledgements of the floor: a message for each number of rows is encoded once and then filled in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_flight::FlightData;
use arrow_flight::utils::batches_to_flight_data;
use arrow_schema::ArrowError;
use bytes::Bytes;

use crate::acks::{TIERS, ack_schema};

const LSN_BUFFER: usize = 1;
const TIMESTAMP_BUFFER: usize = 8;

struct Template {
    header: Bytes,
    body: Vec<u8>,
    lsns_at: usize,
    times_at: usize,
}

pub struct AckEncoder {
    schema: FlightData,
    templates: HashMap<usize, Template>,
}

impl AckEncoder {
    pub fn new() -> Result<AckEncoder, ArrowError> {
        let schema = batches_to_flight_data(&ack_schema(), &[])?.remove(0);
        Ok(AckEncoder {
            schema,
            templates: HashMap::new(),
        })
    }

    pub fn schema(&self) -> FlightData {
        self.schema.clone()
    }

    /// Acknowledges `rows` writes from `first` on at MEMORY.
    pub fn encode(
        &mut self,
        first: u64,
        rows: usize,
        at_us: i64,
    ) -> Result<FlightData, ArrowError> {
        let template = match self.templates.entry(rows) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(template(rows)?),
        };
        let mut body = template.body.clone();
        for row in 0..rows {
            let (lsn, time) = (template.lsns_at + 8 * row, template.times_at + 8 * row);
            body[lsn..lsn + 8].copy_from_slice(&(first + row as u64).to_le_bytes());
            body[time..time + 8].copy_from_slice(&at_us.to_le_bytes());
        }
        Ok(FlightData::new()
            .with_data_header(template.header.clone())
            .with_data_body(body))
    }
}

fn template(rows: usize) -> Result<Template, ArrowError> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![0; rows])),
        Arc::new(StringArray::from(vec![TIERS[0]; rows])),
        Arc::new(BooleanArray::from(vec![false; rows])),
        Arc::new(TimestampMicrosecondArray::from(vec![0; rows])),
    ];
    let batch = RecordBatch::try_new(ack_schema(), columns)?;
    let data = batches_to_flight_data(&ack_schema(), &[batch])?.remove(1);
    let offset = |buffer: usize| {
        let message = arrow_ipc::root_as_message(&data.data_header)
            .map_err(|error| ArrowError::IpcError(error.to_string()))?;
        let buffers = message
            .header_as_record_batch()
            .and_then(|batch| batch.buffers());
        let found = buffers
            .filter(|buffers| buffers.len() > buffer)
            .map(|buffers| buffers.get(buffer).offset());
        found
            .map(|offset| offset as usize)
            .ok_or_else(|| ArrowError::IpcError("a buffer is missing".to_owned()))
    };
    Ok(Template {
        lsns_at: offset(LSN_BUFFER)?,
        times_at: offset(TIMESTAMP_BUFFER)?,
        body: data.data_body.to_vec(),
        header: data.data_header,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acks::{Ack, Decoder};

    #[test]
    fn what_is_encoded_is_what_a_client_decodes() {
        let (mut encoder, mut decoder) = (AckEncoder::new().unwrap(), Decoder::new());
        let mut found = Vec::new();
        let messages = [
            encoder.schema(),
            encoder.encode(1, 1, 10).unwrap(),
            encoder.encode(2, 3, 20).unwrap(),
            encoder.encode(5, 1, 30).unwrap(),
        ];
        for data in &messages {
            let note = |ack| {
                found.push(ack);
                Ok(())
            };
            decoder.decode(data, note).unwrap();
        }
        let expected = [(1, 10), (2, 20), (3, 20), (4, 20), (5, 30)];
        assert_eq!(
            found,
            expected.map(|(lsn, at_us)| Ack {
                lsn,
                tier: 0,
                at_us
            })
        );
    }
}
