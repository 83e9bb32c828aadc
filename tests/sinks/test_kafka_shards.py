"""Which task sends which rows, and that every shard has a transaction whoever sends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.sinks.contract import Place
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_options import TopicOptions
from headrace.sinks.kafka_values import KEY, messages, value_fields
from tests.sinks.conftest import an_epoch
from tests.sinks.kafka_world import NAME, World


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    return World(kafka_broker)


def messages_of(rows: DataFrame, *, one_row_each: tuple[str, ...] = (), **options: str) -> DataFrame:
    """`one_row_each`: columns by which an epoch has one row each."""
    place = Place("topic", "view", key=one_row_each, options={"bootstrap": "a:1", **options})
    return messages(rows, value_fields(rows, []), TopicOptions.of(NAME, place))


def is_shuffled(rows: DataFrame) -> bool:
    return "Exchange" in rows._jdf.queryExecution().toString()


def test_rows_that_have_a_key_each_stay_where_they_are_made(spark: SparkSession) -> None:
    rows = spark.range(10, numPartitions=4).selectExpr("id", "id % 3 as other")
    for options in ({}, {"key": "id,other"}, {"key": ""}):
        made = messages_of(rows, one_row_each=("id",), shards="2", **options)
        assert (is_shuffled(made), made.rdd.getNumPartitions()) == (False, 2)
    for one_row_each, key in ((("id",), "other"), (("id", "other"), "id"), ((), "id")):
        made = messages_of(rows, one_row_each=one_row_each, shards="2", key=key)
        assert (is_shuffled(made), made.rdd.getNumPartitions()) == (True, 2)


def test_one_task_sends_what_all_cores_have_made(spark: SparkSession) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    made = messages_of(spark.range(10, numPartitions=4).toDF("id"), one_row_each=("id",))
    assert (is_shuffled(made), made.rdd.getNumPartitions()) == (True, 1)


def test_a_shard_that_no_task_came_for_has_a_transaction_too(world: World, spark: SparkSession) -> None:
    sink = KafkaSink(NAME, replace(world.place(shards="3"), key=("value",)))
    sink.start(None, None, 1)
    handle = sink.prepare(an_epoch(0), spark.range(5, numPartitions=1).selectExpr("0L epoch", "id value"))
    found = [(one["transactional_id"], one["rows"]) for one in handle["transactions"]]
    assert found == [(world.id(0), 5), (world.id(1), 0), (world.id(2), 0)]
    sink.commit(0, handle)
    assert (world.values(), sink.committed()) == (list(range(5)), {"offsets": 0})
    empty = sink.prepare(an_epoch(1), spark.range(0, numPartitions=1).selectExpr("1L epoch", "id value"))
    assert empty == {}
    assert [world.state(shard).is_open for shard in range(3)] == [False, False, False]


def test_rows_of_one_key_are_sent_by_one_task(world: World, spark: SparkSession) -> None:
    sink = KafkaSink(NAME, replace(world.place(shards="2", key="customer"), key=("value",)))
    sink.start(None, None, 1)
    rows = spark.range(40, numPartitions=4).selectExpr("0L epoch", "id value", "id % 5 customer")
    sink.commit(0, sink.prepare(an_epoch(0), rows))
    senders: dict[bytes | None, set[object]] = defaultdict(set)
    for message in world.messages():
        senders[message.key()].add(dict(message.headers() or ())["headrace.attempt"])
    assert {key: len(tasks) for key, tasks in senders.items()} == {b"%d" % key: 1 for key in range(5)}


def test_the_text_of_whole_numbers(spark: SparkSession) -> None:
    for kind in ("tinyint", "smallint", "int", "bigint"):
        rows = spark.sql(f"select cast(value as {kind}) id from values (-7), (0), (127), (null) as t(value)")
        made = messages_of(rows, key="id").select(KEY).collect()
        assert {row[KEY] for row in made} == {"-7", "0", "127", None}
        assert "get_json_object" not in messages_of(rows, key="id")._jdf.queryExecution().toString()
