"""Epochs in a Kafka topic, read by a plain consumer: in open transactions, which anybody can commit once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.errors import ConfigError, EndpointError, Fenced, SchemaError, UnexpectedFailure
from headrace.sinks.contract import Epoch, Place
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.registry import find_sink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.kafka_world import NAME, World
from tests.sinks.together import polled, run_together
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    return World(kafka_broker)


@pytest.fixture
def started(world: World) -> KafkaSink:
    sink = world.sink()
    sink.start(None, None, 1)
    return sink


def test_it_is_found_by_its_format() -> None:
    assert find_sink("kafka") is KafkaSink


def test_nothing_is_seen_before_the_commit_and_all_after_it(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    handle = started.prepare(an_epoch(12), rows(12))
    assert json.loads(json.dumps(handle)) == handle
    assert (handle["rows"], world.messages()) == (3, [])
    assert world.state().state == "Ongoing"
    world.sink().commit(12, handle)
    messages = world.messages()
    first = min(messages, key=lambda message: json.loads(message.value() or b"")["value"])
    assert json.loads(first.value() or b"") == {
        "odd name.": 0,
        "value": 120,
        "at": "2026-11-16T08:00:00.123456Z",
    }
    headers = dict(first.headers() or ())
    assert headers.pop("headrace.attempt")
    assert headers == {"headrace.epoch": b"12", "headrace.materialization": world.writer.encode()}
    assert first.key() is None
    assert world.values() == [120, 121, 122]


def test_a_commit_has_one_effect_however_often_and_after_later_ones(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    first = started.prepare(an_epoch(0), rows(0))
    for _ in range(2):
        world.sink().commit(0, first)
    second = started.prepare(an_epoch(1), rows(1))
    world.sink().commit(0, first)  # while the next one is open under the same id
    assert world.state().state == "Ongoing"
    for _ in range(2):
        world.sink().commit(1, second)
        world.sink().commit(0, first)
        assert world.values() == [0, 1, 2, 10, 11, 12]


def test_two_who_commit_at_once(world: World, started: KafkaSink, rows: Rows) -> None:
    handle = started.prepare(an_epoch(0), rows(0))
    sinks = [world.sink() for _ in range(2)]
    run_together([partial(sink.commit, 0, handle) for sink in sinks])
    assert world.values() == [0, 1, 2]


def test_an_abort_hides_the_rows_for_good_and_may_be_repeated(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    handle = started.prepare(an_epoch(0), rows(0))
    for _ in range(2):
        world.sink().abort(0, handle)
    assert (world.state().state, world.values()) == ("CompleteAbort", [])
    started.commit(0, started.prepare(an_epoch(0), rows(0, 1)))
    assert world.values() == [0]


def test_an_epoch_without_rows_leaves_no_trace(world: World, started: KafkaSink, rows: Rows) -> None:
    for empty in (None, rows(0, 0)):
        handle = started.prepare(an_epoch(0), empty)
        assert handle == {}
        started.commit(0, handle)
        started.abort(0, handle)
        started.start(0, handle, 2)
    assert (world.values(), started.committed()) == ([], None)


@pytest.mark.full
def test_shards_have_a_transaction_each_even_if_one_has_no_rows(
    world: World, rows: Rows, spark: SparkSession
) -> None:
    sink = world.sink(shards="3", key="value")
    sink.start(None, None, 1)
    handle = sink.prepare(an_epoch(0), rows(0, 1))
    ids = [one["transactional_id"] for one in handle["transactions"]]
    assert ids == [world.id(0), world.id(1), world.id(2)]
    assert (handle["rows"], world.values()) == (1, [])
    sink.commit(0, handle)
    assert world.values() == [0]
    assert sink.committed() == {"offsets": 0}
    empty = sink.prepare(an_epoch(1), rows(1, 0))
    assert empty == {}
    assert [world.state(shard).is_open for shard in range(3)] == [False, False, False]


@pytest.mark.full
def test_an_epoch_waits_for_the_one_before_which_has_the_same_transactional_id(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    first = started.prepare(an_epoch(0), rows(0))
    waiting = Epoch(1, 1, {}, lambda: started.commit(0, first))
    started.commit(1, started.prepare(waiting, rows(1)))
    assert world.values() == [0, 1, 2, 10, 11, 12]


@pytest.mark.full
def test_who_reads_while_epochs_are_committed_sees_whole_ones(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    with polled(world.by_epoch) as seen:
        for number in range(2):
            started.commit(number, started.prepare(an_epoch(number), rows(number, 500)))
    assert {count for epochs in seen for count in epochs.values()} <= {500}
    assert dict(seen[-1]) == dict.fromkeys(range(2), 500)


@pytest.mark.full
def test_keys_are_plain_text_of_one_column_or_json_of_several(
    kafka_broker: KafkaBroker, spark: SparkSession
) -> None:
    row = spark.sql(
        "select 0L as epoch, 7L as id, 'a b' as name, date'2026-11-16' as day, "
        "cast(1.50 as decimal(9,2)) as amount"
    )
    for key, expected in {
        "name": b"a b",
        "id": b"7",
        "day": b"2026-11-16",
        "amount": b"1.50",
        "id, name": b'{"id":7,"name":"a b"}',
    }.items():
        world = World(kafka_broker, config={"cleanup.policy": "compact"})
        sink = world.sink(key=key)
        sink.start(None, None, 1)
        sink.commit(0, sink.prepare(an_epoch(0), row))
        (message,) = world.messages()
        assert message.key() == expected
        assert json.loads(message.value() or b"")["amount"] == "1.50"


def test_a_key_that_is_no_column(world: World, rows: Rows) -> None:
    sink = world.sink(key="nothing")
    sink.start(None, None, 1)
    with pytest.raises(ConfigError, match="the option key names 'nothing', which is no column"):
        sink.prepare(an_epoch(0), rows(0))


@pytest.mark.full
def test_headers_of_the_users_own(world: World, rows: Rows) -> None:
    sink = world.sink(header__origin="Graz", header__kind="sale")
    sink.start(None, None, 1)
    sink.commit(0, sink.prepare(an_epoch(0), rows(0, 1)))
    headers = dict(world.messages()[0].headers() or ())
    assert (headers["origin"], headers["kind"]) == (b"Graz", b"sale")


TYPED = """select 0L as epoch, 1 as small, 2L as large, 0.5D as number, 'x' as text, true as flag,
    date'2026-11-16' as day, timestamp'2026-11-16 08:00:00.123456' as at,
    cast(-1.5 as decimal(20,9)) as amount, array(1, null) as list, named_struct('a', 1) as inner,
    cast(null as string) as nothing"""
TYPED_DDL = """epoch bigint, small int, large bigint, number double, text string, flag boolean, day date,
    at timestamp, amount decimal(20,9), list array<int>, inner struct<a:int>, nothing string"""
TYPED_VALUES: dict[str, Any] = {
    "small": 1,
    "large": 2,
    "number": 0.5,
    "text": "x",
    "flag": True,
    "day": datetime(2026, 11, 16, tzinfo=UTC).date(),
    "at": datetime(2026, 11, 16, 8, 0, 0, 123456, tzinfo=UTC),
    "amount": Decimal("-1.500000000"),
    "list": [1, None],
    "inner": {"a": 1},
    "nothing": None,
}


def test_avro_has_its_schema_in_a_header(world: World, spark: SparkSession) -> None:
    sink = world.sink(value_format="avro")
    sink.start(None, None, 1)
    sink.commit(0, sink.prepare(an_epoch(0), spark.sql(TYPED)))
    (message,) = world.messages()
    schema = json.loads(dict(message.headers() or ())["headrace.schema"] or b"")
    value: Any = fastavro.schemaless_reader(BytesIO(message.value() or b""), schema, None)
    assert value == TYPED_VALUES


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_rows_are_read_back_in_their_types(world: World, spark: SparkSession, value_format: str) -> None:
    sink = world.sink(value_format=value_format)
    sink.start(None, None, 1)
    sink.commit(0, sink.prepare(an_epoch(0), spark.sql(TYPED)))
    options = world.place().options
    place = Place(world.topic, world.writer, TYPED_DDL, options=options)
    (batch,) = KafkaSink.read(place, ["epoch", *TYPED_VALUES], None)
    assert batch.to_pylist() == [{"epoch": 0, **TYPED_VALUES}]
    assert batch.schema.field("amount").type.scale == 9
    assert list(KafkaSink.read(place, ["small"], 1)) == []
    other = Place(world.topic, "somebody else", TYPED_DDL, options=options)
    assert list(KafkaSink.read(other, ["small"], None)) == []


@pytest.mark.parametrize("value_format", ["json", pytest.param("avro", marks=pytest.mark.full)])
def test_new_columns_come_and_nothing_else_changes(
    world: World, spark: SparkSession, value_format: str
) -> None:
    def row(epoch: int, columns: str) -> DataFrame:
        return spark.sql(f"select {epoch}L as epoch, {columns}")

    sink = world.sink(value_format=value_format)
    sink.start(None, None, 1)
    sink.commit(0, sink.prepare(an_epoch(0), row(0, "1L as a")))
    sink.commit(1, sink.prepare(an_epoch(1), row(1, "1L as a, 'x' as b")))
    before = world.state().identity
    for again in (sink, world.sink(value_format=value_format)):
        with pytest.raises(SchemaError, match=r"has the column 'a' as long, and it comes as string"):
            again.prepare(an_epoch(2), row(2, "'1' as a, 'x' as b"))
        with pytest.raises(SchemaError, match=r"has a column 'b', and 'B' differs in case only"):
            again.prepare(an_epoch(2), row(2, "1L as a, 'x' as B"))
    assert world.state().identity == before  # nothing was even begun
    sink.commit(2, sink.prepare(an_epoch(2), row(2, "1L as a")))  # b is null
    with pytest.raises(SchemaError, match="has the column 'b' as string, and it comes as integer"):
        world.sink(value_format=value_format).prepare(an_epoch(3), row(3, "1L as a, 1 as b"))


def test_names_and_types_that_avro_does_not_have(world: World, rows: Rows, spark: SparkSession) -> None:
    sink = world.sink(value_format="avro")
    with pytest.raises(SchemaError, match=r"Avro has no field 'odd name.'"):
        sink.prepare(an_epoch(0), rows(0))
    with pytest.raises(SchemaError, match="Avro has no type for map<int,int>"):
        sink.prepare(an_epoch(0), spark.sql("select map(1, 2) as a"))


def test_a_number_that_json_does_not_have_fails_the_epoch(
    world: World, started: KafkaSink, spark: SparkSession
) -> None:
    with pytest.raises(UnexpectedFailure, match="cannot prepare epoch 0"):
        started.prepare(an_epoch(0), spark.sql("select 0L as epoch, double('NaN') as value"))
    assert world.values() == []


def test_a_start_ends_all_but_what_was_decided(world: World, started: KafkaSink, rows: Rows) -> None:
    never = world.handle(0, [7, 8])
    world.sink().start(None, None, 2)
    assert world.state().state == "CompleteAbort" or not world.state().is_open
    decided = world.handle(0, [1, 2])
    of_others = world.sink(f"{world.writer} else")
    of_others.start(None, None, 1)
    theirs = of_others.prepare(an_epoch(0), rows(9, 1))
    world.sink().start(0, decided, 3)
    world.sink().commit(0, decided)
    of_others.commit(0, theirs)
    assert world.values() == [1, 2, 90]
    assert never["transactions"][0]["producer_epoch"] < decided["transactions"][0]["producer_epoch"]


def test_a_start_leaves_alone_what_a_later_one_prepared(world: World, started: KafkaSink) -> None:
    later = world.sink()
    later.start(None, None, 3)
    handle = world.handle(0, [1, 2], fence=3)
    world.sink().start(None, None, 2)
    assert world.state().state == "Ongoing"
    later.commit(0, handle)
    assert world.values() == [1, 2]


def test_who_was_replaced_before_its_start_does_not_start(world: World, started: KafkaSink) -> None:
    world.sink().start(None, None, 3)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        world.sink().start(0, None, 2)


@pytest.mark.full
def test_a_log_that_begins_anew_begins_with_its_fences_too(world: World, rows: Rows) -> None:
    world.sink().start(None, None, 7)
    world.handle(0, [5], fence=7)
    for fence in (1, 2):
        sink = world.sink()
        sink.start(fence - 2 if fence > 1 else None, None, fence)
        sink.commit(fence - 1, sink.prepare(an_epoch(fence - 1, fence), rows(fence - 1, 1)))
    assert world.values() == [0, 10]


def test_who_was_replaced_prepares_nothing_and_disturbs_nobody(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    started.commit(0, started.prepare(an_epoch(0), rows(0, 1)))
    successor = world.sink()
    successor.start(0, None, 2)
    theirs = successor.prepare(an_epoch(1, fence=2), rows(1, 1))
    with pytest.raises(Fenced, match=r"another process writes to topic .* \(fence 2, and ours is 1\)"):
        started.prepare(an_epoch(1), rows(5, 1))
    successor.commit(1, theirs)
    assert world.values() == [0, 10]


def test_ids_of_shards_that_are_no_more_are_fenced_off(world: World, rows: Rows) -> None:
    world.sink(shards="2").start(None, None, 1)
    left = world.handle(0, [1, 2], shards="2")
    world.sink().start(None, None, 2)
    assert [world.state(shard).is_open for shard in range(2)] == [False, False]
    with world.transactions() as transactions:
        for one in left["transactions"]:
            assert (
                world.state(int(one["transactional_id"][-1])).identity.producer_epoch > one["producer_epoch"]
            )
        assert transactions.list(world.options().prefix) == [world.id(0), world.id(1)]


def test_an_epoch_that_readers_have_is_not_prepared_again(
    world: World, started: KafkaSink, rows: Rows
) -> None:
    started.commit(3, started.prepare(an_epoch(3), rows(3)))
    with pytest.raises(
        EndpointError, match=r"has the epochs of .* up to 3, and epoch 2 was never decided here"
    ):
        world.sink().prepare(an_epoch(2), rows(2))


def test_a_topic_cannot_go_back(world: World, started: KafkaSink, rows: Rows) -> None:
    started.rewind(-1)
    started.commit(0, started.prepare(an_epoch(0), rows(0)))
    started.rewind(0)
    for go_back in (started.refuse_rewind, started.rewind):
        with pytest.raises(
            ConfigError, match="have the epochs up to 0, which cannot be taken back to epoch -1"
        ):
            go_back(-1)


def test_the_cluster_tells_what_was_committed(world: World, started: KafkaSink, rows: Rows) -> None:
    assert started.committed() is None
    started.commit(0, started.prepare(an_epoch(0), rows(0)))
    handle = started.prepare(an_epoch(1), rows(1))
    started.abort(1, handle)
    assert world.sink().committed() == {"offsets": 0}
    place = world.place()
    assert list(KafkaSink.audit(place, {0: 3})) == []
    assert list(KafkaSink.audit(place, {0: 3, 1: 3})) == [
        "epoch 1 was committed with 3 rows, and 0 are there"
    ]


def test_offsets_of_the_source_travel_in_the_transaction(
    world: World, kafka_broker: KafkaBroker, rows: Rows
) -> None:
    kafka_broker.create_topic(f"{world.topic}-in", 2)
    sink = world.sink(offsets_group=world.topic)
    sink.start(None, None, 1)
    entry = f'v1\n{{}}\n{{"{world.topic}-in":{{"0":41,"1":7}}}}\n{{"snapshot_id":5}}\n-'
    epoch = Epoch(2, 1, {"offsets": {"1": "", "2": entry}}, lambda: None)
    handle = sink.prepare(epoch, rows(2))
    assert group_offsets(world, kafka_broker) == [-1001, -1001]
    sink.commit(2, handle)
    assert group_offsets(world, kafka_broker) == [41, 7]


def group_offsets(world: World, broker: KafkaBroker) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": world.topic,
            "isolation.level": "read_uncommitted",  # or it would wait for what is open
        }
    )
    try:
        wanted = [TopicPartition(f"{world.topic}-in", partition) for partition in range(2)]
        return [found.offset for found in consumer.committed(wanted, DEADLINE_SECONDS)]
    finally:
        consumer.close()


def test_transactions_that_a_recovery_would_find_aborted_are_refused(world: World) -> None:
    with pytest.raises(
        ConfigError, match=r"transaction.timeout.ms is 60000, which is shorter than a recovery"
    ):
        world.sink(transaction__timeout__ms="60000").start(None, None, 1)
    with pytest.raises(ConfigError, match=r"raise their transaction\.max\.timeout\.ms"):
        world.sink(transaction__timeout__ms="3600000").start(None, None, 1)
    world.sink(transaction__timeout__ms="60000", recovery_time="60s").start(None, None, 1)


def test_a_topic_is_no_view(world: World, spark: SparkSession) -> None:
    place = Place(world.topic, "view", keys=("a",), options=world.place().options)
    with pytest.raises(ConfigError, match="make it compacted and set the option key"):
        KafkaSink.open(NAME, place, spark)
    assert not KafkaSink.can_keep_views
    assert KafkaSink.open(NAME, world.place(), spark).name == NAME
