use super::*;

fn schema(id: u64) -> Arc<Schema> {
    Arc::new(Schema {
        id,
        collection: "orders".into(),
        message: b"schema..".as_slice().into(),
    })
}

fn push(group: &mut Group, lsn: u64, schema: &Arc<Schema>, data: &[u8]) {
    let pieces = [data];
    let new = NewWrites {
        schema,
        producer: None,
        seq: 0,
        count: 1,
        rows: None,
        bytes: Bytes::new(&pieces),
        accepted_us: 9,
    };
    group.push(lsn, new);
}

#[test]
fn a_record_has_a_size_that_can_be_read_back() {
    let (mut group, schema) = (Group::default(), schema(1));
    let data = vec![1; LARGE];
    let fit = MOST_BYTES_OF_A_RECORD / LARGE as u64;
    for lsn in 0..2 * fit + 1 {
        push(&mut group, lsn, &schema, &data);
    }
    assert_eq!(
        group
            .writes()
            .map(|one| u64::from(one.count))
            .collect::<Vec<_>>(),
        [fit, fit, 1]
    );
}

#[test]
fn a_small_message_costs_no_allocation_of_its_own() {
    let (mut group, schema) = (Group::default(), schema(1));
    for lsn in 0..1000 {
        push(&mut group, lsn, &schema, &[1; 8]);
    }
    assert_eq!(
        (group.pending.len(), group.bytes, group.messages),
        (1, 8_000, 1_000)
    );
}

#[test]
fn a_group_that_was_large_gives_its_room_back() {
    let (mut group, schema) = (Group::default(), schema(1));
    for lsn in 0..100 {
        push(&mut group, lsn, &schema, &vec![1; LARGE]);
    }
    assert!(group.payload.capacity() >= 100 * LARGE);
    group.clear(1 << 20);
    assert!(group.payload.capacity() <= 2 << 20);
    assert!(group.is_empty() && group.bytes == 0);
}

#[test]
fn a_group_is_the_same_in_another_segment_but_for_the_numbers_of_its_schemas() {
    let (mut group, one, other) = (Group::default(), schema(1), schema(2));
    push(&mut group, 1, &one, &[1; 8]);
    push(&mut group, 2, &other, &[2; 8]);
    let (mut first, mut again, mut later) = (Vec::new(), Vec::new(), Vec::new());
    group.encode(&mut HashMap::new(), &mut first);
    let mut schemas = HashMap::new();
    group.encode(&mut schemas, &mut again);
    assert_eq!(first, again);
    group.encode(&mut schemas, &mut later);
    assert!(later.len() < first.len()); // they are named already
}
