//! Acknowledgements as RecordBatches of the four columns that every client expects, encoded by hand: a batch
//! of a few rows costs less so than the objects would that make one.

use std::sync::{Arc, OnceLock};

use arrow_ipc::{
    Buffer, FieldNode, Message, MessageArgs, MessageHeader, MetadataVersion, RecordBatch,
    RecordBatchArgs, convert::IpcSchemaEncoder,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bytes::{BufMut, Bytes, BytesMut};
use flatbuffers::FlatBufferBuilder;
use headrace_core::{DurableRange, Tier};

use crate::grpc::{FRAME_BYTES, finish_frame};

const HEADER: u32 = 2;
const APP_METADATA: u32 = 3;
const BODY: u32 = 1000;

/// The writes that have reached one tier.
pub type Notice = (Tier, Vec<DurableRange>);

fn rows_of((_, reached): &Notice) -> u64 {
    reached.iter().map(rows).sum()
}

fn rows(range: &DurableRange) -> u64 {
    range.last - range.first + 1
}

pub fn ack_schema() -> Schema {
    Schema::new(vec![
        Field::new("lsn", DataType::UInt64, false),
        Field::new("durability_level", DataType::Utf8, false),
        Field::new("is_durability_update", DataType::Boolean, false),
        Field::new(
            "timestamp",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            false,
        ),
    ])
}

/// The first message of every answer, as a gRPC frame.
pub fn schema_frame() -> Bytes {
    static FRAME: OnceLock<Bytes> = OnceLock::new();
    FRAME
        .get_or_init(|| {
            let mut builder = FlatBufferBuilder::new();
            let schema =
                IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, &Arc::new(ack_schema()));
            let message = MessageArgs {
                version: MetadataVersion::V5,
                header_type: MessageHeader::Schema,
                header: Some(schema.as_union_value()),
                bodyLength: 0,
                custom_metadata: None,
            };
            let message = Message::create(&mut builder, &message);
            builder.finish(message, None);
            frame(&[(HEADER, builder.finished_data())])
        })
        .clone()
}

/// A message without a batch, as a gRPC frame.
pub fn metadata_frame(metadata: &[u8]) -> Bytes {
    frame(&[(APP_METADATA, metadata)])
}

/// Encodes batches of acknowledgements; kept by a stream for the memory that it reuses.
#[derive(Default)]
pub struct AckEncoder {
    builder: FlatBufferBuilder<'static>,
    body: Vec<u8>,
}

impl AckEncoder {
    /// One row for each LSN and tier, as a gRPC frame.
    pub fn frame(&mut self, notices: &[Notice], metadata: &[u8]) -> Bytes {
        let buffers = self.write_body(notices);
        let rows: u64 = notices.iter().map(rows_of).sum();
        let builder = &mut self.builder;
        builder.reset();
        let node = FieldNode::new(rows as i64, 0);
        let nodes = builder.create_vector(&[node; 4]);
        let buffers = builder.create_vector(&buffers);
        let batch = RecordBatchArgs {
            length: rows as i64,
            nodes: Some(nodes),
            buffers: Some(buffers),
            compression: None,
            variadicBufferCounts: None,
        };
        let batch = RecordBatch::create(builder, &batch);
        let message = MessageArgs {
            version: MetadataVersion::V5,
            header_type: MessageHeader::RecordBatch,
            header: Some(batch.as_union_value()),
            bodyLength: self.body.len() as i64,
            custom_metadata: None,
        };
        let message = Message::create(builder, &message);
        builder.finish(message, None);
        let header = (HEADER, builder.finished_data());
        if metadata.is_empty() {
            frame(&[header, (BODY, &self.body)])
        } else {
            frame(&[header, (APP_METADATA, metadata), (BODY, &self.body)])
        }
    }

    /// The columns one after the other, each with a validity that is left out, since nothing is null.
    fn write_body(&mut self, notices: &[Notice]) -> Vec<Buffer> {
        let body = &mut self.body;
        body.clear();
        let mut buffers = Vec::with_capacity(9);
        let runs = || notices.iter().flat_map(|(_, reached)| reached);
        column(body, &mut buffers, |body| {
            for lsn in runs().flat_map(|run| run.first..=run.last) {
                body.put_u64_le(lsn);
            }
        });
        column(body, &mut buffers, |body| {
            let mut end = 0;
            body.put_i32_le(end);
            for notice in notices {
                for _ in 0..rows_of(notice) {
                    end += notice.0.name().len() as i32;
                    body.put_i32_le(end);
                }
            }
        });
        buffer(body, &mut buffers, |body| {
            for notice in notices {
                for _ in 0..rows_of(notice) {
                    body.put_slice(notice.0.name().as_bytes());
                }
            }
        });
        column(body, &mut buffers, |body| {
            let mut at = 0;
            for notice in notices {
                for _ in 0..rows_of(notice) {
                    if at % 8 == 0 {
                        body.push(0);
                    }
                    if notice.0 != Tier::Memory
                        && let Some(bits) = body.last_mut()
                    {
                        *bits |= 1 << (at % 8);
                    }
                    at += 1;
                }
            }
        });
        column(body, &mut buffers, |body| {
            for run in runs() {
                for _ in 0..rows(run) {
                    body.put_u64_le(run.at_us);
                }
            }
        });
        buffers
    }
}

/// Adds an empty validity and a buffer.
fn column(body: &mut Vec<u8>, buffers: &mut Vec<Buffer>, write: impl FnOnce(&mut Vec<u8>)) {
    buffers.push(Buffer::new(body.len() as i64, 0));
    buffer(body, buffers, write);
}

fn buffer(body: &mut Vec<u8>, buffers: &mut Vec<Buffer>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = body.len();
    write(body);
    buffers.push(Buffer::new(start as i64, (body.len() - start) as i64));
    body.resize(body.len().next_multiple_of(8), 0);
}

/// A FlightData message with these fields.
fn frame(fields: &[(u32, &[u8])]) -> Bytes {
    let size: usize = fields.iter().map(|(_, value)| value.len() + 8).sum();
    let mut data = BytesMut::with_capacity(FRAME_BYTES + size);
    data.put_bytes(0, FRAME_BYTES);
    for (number, value) in fields {
        prost::encoding::encode_key(
            *number,
            prost::encoding::WireType::LengthDelimited,
            &mut data,
        );
        prost::encoding::encode_varint(value.len() as u64, &mut data);
        data.put_slice(value);
    }
    finish_frame(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, BooleanArray, StringArray, TimestampMicrosecondArray, UInt64Array};
    use arrow_flight::FlightData;
    use arrow_flight::utils::flight_data_to_batches;
    use prost::Message as _;

    fn decoded(frame: &Bytes) -> FlightData {
        assert_eq!(frame[0], 0);
        let length = u32::from_be_bytes(frame[1..5].try_into().unwrap());
        assert_eq!(length as usize, frame.len() - 5);
        FlightData::decode(frame.slice(5..)).unwrap()
    }

    fn reached(first: u64, last: u64, at_us: u64) -> DurableRange {
        DurableRange {
            first,
            last,
            at_us,
            snapshot_id: None,
        }
    }

    #[test]
    fn a_batch_has_a_row_for_each_lsn_and_tier() {
        let notices = [
            (Tier::Memory, vec![reached(7, 8, 70), reached(10, 16, 71)]),
            (Tier::LocalDisk, vec![reached(5, 6, 72)]),
        ];
        let mut encoder = AckEncoder::default();
        encoder.frame(&notices[..1], b"");
        let data = decoded(&encoder.frame(&notices, br#"{"assigned":[]}"#));
        assert_eq!(&data.app_metadata[..], br#"{"assigned":[]}"#);
        let batches = flight_data_to_batches(&[decoded(&schema_frame()), data]).unwrap();
        let [batch] = &batches[..] else {
            panic!("one batch")
        };
        assert_eq!(batch.schema().fields(), ack_schema().fields());
        let lsns: &UInt64Array = batch.column(0).as_any().downcast_ref().unwrap();
        assert_eq!(lsns.values(), &[7, 8, 10, 11, 12, 13, 14, 15, 16, 5, 6]);
        let levels: &StringArray = batch.column(1).as_any().downcast_ref().unwrap();
        let updates: &BooleanArray = batch.column(2).as_any().downcast_ref().unwrap();
        let times: &TimestampMicrosecondArray = batch.column(3).as_any().downcast_ref().unwrap();
        for row in 0..11 {
            let is_update = row >= 9;
            assert_eq!(
                levels.value(row),
                if is_update { "LOCAL_DISK" } else { "MEMORY" }
            );
            assert_eq!(updates.value(row), is_update);
            assert_eq!(
                times.value(row),
                [70, 71, 72][usize::from(row >= 2) + usize::from(is_update)]
            );
        }
        batch
            .columns()
            .iter()
            .for_each(|column| column.to_data().validate_full().unwrap());
    }

    #[test]
    fn a_message_without_a_batch_has_metadata_alone() {
        let data = decoded(&metadata_frame(b"{}"));
        assert_eq!(
            (&data.app_metadata[..], data.data_header.len()),
            (&b"{}"[..], 0)
        );
    }
}
