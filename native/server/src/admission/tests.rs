use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int8Type;
use arrow_array::{Array, Int64Array, ListArray, StringArray, StringViewArray, StructArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};

use super::*;

const MOST: usize = 1 << 20;

fn batch(column: ArrayRef) -> RecordBatch {
    let field = Field::new("a", column.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap()
}

fn plan(kept: DataType, required: &[usize]) -> Plan {
    let schema = Schema::new(vec![Field::new("a", kept, true)]);
    Plan {
        kept_schema: encapsulated(&schema_header(&schema)),
        required: required.to_vec(),
    }
}

fn schema_header(schema: &Schema) -> Bytes {
    let stream = written(schema, None);
    Bytes::copy_from_slice(metadata_of(&stream).unwrap())
}

fn written(schema: &Schema, batch: Option<&RecordBatch>) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), schema).unwrap();
    batch.map_or(Ok(()), |batch| writer.write(batch)).unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

/// Header and body of the message at an offset, which then is where the next one is.
fn message_at(stream: &Bytes, at: &mut usize) -> (Bytes, Bytes) {
    let header = stream
        .slice(*at + 8..)
        .slice(..metadata_of(&stream[*at..]).unwrap().len());
    let length = message::open(&header).unwrap().bodyLength() as usize;
    let start = *at + 8 + header.len();
    *at = start + length;
    (header, stream.slice(start..*at))
}

/// Headers and bodies of the schema, the dictionaries and the batch.
fn messages(batch: &RecordBatch) -> Vec<(Bytes, Bytes)> {
    const END: usize = 8;
    let stream = written(&batch.schema(), Some(batch));
    let mut at = 0;
    let mut found = Vec::new();
    while at + END < stream.len() {
        found.push(message_at(&stream, &mut at));
    }
    found
}

async fn admitted(messages: Vec<(Bytes, Bytes)>, plan: &Plan) -> Result<Admitted, Refusal> {
    let mut admission = Admission::new("c", MOST, Arc::new(Unpacking::new(4 * MOST)));
    let mut has_plan = false;
    for (header, body) in messages {
        if let Arrived::Batch(batch) = admission.arrived(header, body)? {
            return admission.admit(batch).await;
        }
        if !std::mem::replace(&mut has_plan, true) {
            admission.follow(plan)?;
        }
    }
    panic!("there was no batch")
}

async fn refusal(messages: Vec<(Bytes, Bytes)>, plan: &Plan) -> String {
    admitted(messages, plan).await.unwrap_err().message
}

#[tokio::test]
async fn a_storable_batch_is_kept_to_the_last_byte() {
    let sent = batch(Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])));
    let messages = messages(&sent);
    let (header, body) = messages[1].clone();
    let admitted = admitted(messages, &plan(DataType::Int64, &[]))
        .await
        .unwrap();
    assert_eq!((&admitted.body, admitted.rows), (&body, 3));
    assert_eq!(
        metadata_of(&admitted.front).unwrap()[..header.len()],
        header[..]
    );
    assert!((admitted.front.len() + admitted.body.len()).is_multiple_of(8));
    assert!(admitted.size > body.len());
}

#[tokio::test]
async fn a_batch_without_rows_or_with_a_null_where_none_may_be_is_refused() {
    let empty = batch(Arc::new(Int64Array::from(Vec::<i64>::new())));
    let plan = plan(DataType::Int64, &[0]);
    assert_eq!(
        refusal(messages(&empty), &plan).await,
        "a write has no rows: leave it out"
    );
    let null = batch(Arc::new(Int64Array::from(vec![None, Some(1)])));
    assert_eq!(
        refusal(messages(&null), &plan).await,
        "collection 'c': column 'a' is required and the write has a null in it: fill it"
    );
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_refused_wherever_it_is_cut() {
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(3)]),
    ]);
    let sent = batch(Arc::new(lists.clone()));
    let plan = plan(lists.data_type().clone(), &[]);
    let whole = messages(&sent);
    assert!(admitted(whole.clone(), &plan).await.is_ok());
    for end in 0..whole[1].1.len() {
        let cut = vec![
            whole[0].clone(),
            (whole[1].0.clone(), whole[1].1.slice(..end)),
        ];
        assert!(
            refusal(cut, &plan)
                .await
                .starts_with("a message cannot be read as Arrow")
        );
    }
}

#[tokio::test]
async fn dictionaries_and_views_are_written_out_within_the_limit() {
    let mut texts = StringDictionaryBuilder::<Int8Type>::new();
    let long = "x".repeat(1000);
    texts.extend(["a", &long].into_iter().chain(["a"; 100]).map(Some));
    texts.append_null();
    let sent = batch(Arc::new(texts.finish()));
    let plan = plan(DataType::Utf8, &[]);
    let few = admitted(messages(&sent), &plan).await.unwrap();
    assert_eq!(few.rows, 103);
    let mut texts = StringDictionaryBuilder::<Int8Type>::new();
    texts.extend(std::iter::repeat_n(Some(&*long), 2000));
    let sent = batch(Arc::new(texts.finish()));
    let said = refusal(messages(&sent), &plan).await;
    assert!(
        said.starts_with("with a copy of its value for each row a message has 2,"),
        "{said}"
    );
    let views = StringViewArray::from_iter_values(std::iter::repeat_n("more than twelve bytes", 3));
    let kept = admitted(messages(&batch(Arc::new(views))), &plan)
        .await
        .unwrap();
    assert_eq!(kept.rows, 3);
}

#[tokio::test]
async fn a_dictionary_that_was_not_sent_or_that_nobody_asked_for_is_refused() {
    let mut texts = StringDictionaryBuilder::<Int8Type>::new();
    texts.extend(["a", "b"].map(Some));
    let plan = plan(DataType::Utf8, &[]);
    let with_dictionary = messages(&batch(Arc::new(texts.finish())));
    let [schema, dictionary, indices] = &with_dictionary[..] else {
        panic!("three messages")
    };
    let said = refusal(vec![schema.clone(), indices.clone()], &plan).await;
    assert!(said.contains("a dictionary has not been sent"), "{said}");
    let plain = messages(&batch(Arc::new(StringArray::from(vec!["a"]))));
    let said = refusal(vec![plain[0].clone(), dictionary.clone()], &plan).await;
    assert!(said.contains("a dictionary is of no column"), "{said}");
}

#[test]
fn a_schema_may_not_be_deeper_than_those_can_read_who_read_the_log() {
    let nested = |levels: usize| {
        let mut column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        for _ in 0..levels {
            let field = Arc::new(Field::new("f", column.data_type().clone(), true));
            column = Arc::new(StructArray::from(vec![(field, column)]));
        }
        let header = schema_header(&batch(column).schema());
        let mut admission = Admission::new("c", MOST, Arc::new(Unpacking::new(MOST)));
        admission.arrived(header, Bytes::new()).map(drop)
    };
    // Each level takes two of the verifier's, which has 128.
    assert!(nested(60).is_ok());
    assert!(nested(64).is_err());
    assert!(nested(200).is_err());
}

#[tokio::test]
async fn what_is_left_of_a_message_is_a_message() {
    let sent = batch(Arc::new(StringArray::from(vec!["a", "bb", "ccc"])));
    let plan = plan(DataType::Utf8, &[]);
    let mut admission = Admission::new("c", MOST, Arc::new(Unpacking::new(MOST)));
    let [schema, (header, body)] = &messages(&sent)[..] else {
        panic!("two messages")
    };
    admission.arrived(schema.0.clone(), Bytes::new()).unwrap();
    admission.follow(&plan).unwrap();
    let Arrived::Batch(batch) = admission.arrived(header.clone(), body.clone()).unwrap() else {
        panic!("a batch")
    };
    let whole = admission.admit(batch).await.unwrap();
    let rest = admission.without(&whole, 2).unwrap();
    assert_eq!(rest.rows, 1);
    let data = arrow_flight::FlightData::new()
        .with_data_header(metadata_of(&rest.front).unwrap().to_vec())
        .with_data_body(rest.body.clone());
    let schema = sent.schema();
    let read = arrow_flight::utils::flight_data_to_arrow_batch(&data, schema, &HashMap::new());
    assert_eq!(read.unwrap(), sent.slice(2, 1));
}

#[tokio::test]
async fn what_grows_by_more_than_it_says_waits_for_room_for_all_of_it() {
    const LARGE: usize = 64 << 20;
    let mut texts = StringDictionaryBuilder::<Int8Type>::new();
    let long = "x".repeat(100_000);
    texts.extend(std::iter::repeat_n(Some(&*long), 500));
    let messages = messages(&batch(Arc::new(texts.finish())));
    let room = Arc::new(Unpacking::new(8 * LARGE));
    let mut admission = Admission::new("c", LARGE, Arc::clone(&room));
    for (header, body) in &messages[..2] {
        admission.arrived(header.clone(), body.clone()).unwrap();
    }
    admission.follow(&plan(DataType::Utf8, &[])).unwrap();
    let (header, body) = messages[2].clone();
    let Arrived::Batch(batch) = admission.arrived(header, body).unwrap() else {
        panic!("a batch")
    };
    let free = room.passing.free_bytes();
    let others = room.passing.reserve(free - (8 << 20)).await;
    let admitted = admission.admit(batch);
    tokio::pin!(admitted);
    // It takes 50 MB, and there are eight.
    assert!(futures::poll!(&mut admitted).is_pending());
    drop(others);
    assert_eq!(admitted.await.unwrap().rows, 500);
    assert_eq!(room.passing.free_bytes(), free);
}

#[test]
fn a_dictionary_that_grows_by_nothing_takes_nothing() {
    let mut texts = StringDictionaryBuilder::<Int8Type>::new();
    texts.extend(["a"].map(Some));
    let [schema, first, _] = &messages(&batch(Arc::new(texts.finish())))[..] else {
        panic!("three messages")
    };
    let mut admission = Admission::new("c", MOST, Arc::new(Unpacking::new(MOST)));
    for (header, body) in [schema, first] {
        admission.arrived(header.clone(), body.clone()).unwrap();
    }
    let (header, body) = empty_delta();
    for _ in 0..1000 {
        admission.arrived(header.clone(), body.clone()).unwrap();
    }
    assert_eq!(admission.dictionary_rooms.values().flatten().count(), 1);
}

/// The first dictionary of a stream, grown by no texts.
fn empty_delta() -> (Bytes, Bytes) {
    use arrow_ipc::{
        Buffer, DictionaryBatch, DictionaryBatchArgs, FieldNode, Message, MessageArgs,
        RecordBatchArgs,
    };
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let nodes = builder.create_vector(&[FieldNode::new(0, 0)]);
    let buffers = builder.create_vector(&[Buffer::new(0, 0); 3]);
    let data = RecordBatchArgs {
        nodes: Some(nodes),
        buffers: Some(buffers),
        ..RecordBatchArgs::default()
    };
    let data = arrow_ipc::RecordBatch::create(&mut builder, &data);
    let delta = DictionaryBatchArgs {
        id: 0,
        data: Some(data),
        isDelta: true,
    };
    let delta = DictionaryBatch::create(&mut builder, &delta);
    let message = MessageArgs {
        version: MetadataVersion::V5,
        header_type: MessageHeader::DictionaryBatch,
        header: Some(delta.as_union_value()),
        ..MessageArgs::default()
    };
    let message = Message::create(&mut builder, &message);
    builder.finish(message, None);
    (
        Bytes::copy_from_slice(builder.finished_data()),
        Bytes::new(),
    )
}
