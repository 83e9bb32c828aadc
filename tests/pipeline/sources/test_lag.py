"""How far behind a materialization is: by the snapshots of a table, and by the offsets of a topic."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.model.collections import Collection
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.settings import BindingSettings, CollectionSource, KafkaSource, Source
from headrace.pipeline.sources import lag as lag_module
from headrace.pipeline.sources.lag import Lag, lag_of
from headrace.spark.catalogs import catalog_conf
from headrace.wal.batches import PLACE_FIELDS
from tests.waiting import DEADLINE_SECONDS

ORDERS = Collection("orders", ("/id",), {"type": "object", "properties": {"id": {"type": "integer"}}})
COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for the lag is told soon that it is not known; here it has to be."""
    monkeypatch.setattr(lag_module, "_TIMEOUT", DEADLINE_SECONDS)


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogSettings:
    return embedded_catalog(tmp_path).model_copy(update={"name": f"lag_{uuid4().hex}"})


@pytest.fixture
def table(catalog: CatalogSettings) -> Table:
    return Tables(catalog).create("orders", COLUMNS, ("/id",), "test")


def append(table: Table, *ids: int) -> int:
    """The id of the snapshot."""
    places = [pa.array([0] * len(ids), field.type) for field in PLACE_FIELDS]
    table.append(pa.table([pa.array(ids, pa.int64()), *places], pa.schema([*COLUMNS, *PLACE_FIELDS])))
    return current(table)


def since(moment: float) -> float:
    """Returns the seconds since then; Iceberg and Kafka drop fractions of a millisecond."""
    return time.time() - moment + 0.001


def current(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def lag(source: Source, position: Any, catalog: CatalogSettings | None = None, index: int = 0) -> Lag:
    """Of a binding whose source stands there; at its beginning for None."""
    entry = f"v1\n{{}}\n{json.dumps(position)}" if position is not None else "v1\n{}\n-"
    checkpoint = RuntimeCheckpoint("view", "lineage", 0, (), {0: entry})
    return lag_of(index, BindingSettings(ORDERS, source, {}), checkpoint, catalog)


def table_lag(catalog: CatalogSettings, snapshot: int | None, files: int = 1) -> Lag:
    position = None if snapshot is None else {"version": 1, "snapshot_id": snapshot, "position": files}
    return lag(CollectionSource("orders"), position, catalog)


def test_rows_that_were_appended_count(catalog: CatalogSettings, table: Table) -> None:
    begun = time.time()
    first = append(table, 1, 2, 3)
    assert (table_lag(catalog, None).rows, table_lag(catalog, first)) == (3, Lag("orders", 0, 0.0))
    second = append(table, 4, 5)
    behind = table_lag(catalog, first)
    assert (behind.rows, table_lag(catalog, None).rows, table_lag(catalog, first, files=0).rows) == (2, 5, 5)
    assert behind.seconds is not None
    assert 0 <= behind.seconds <= since(begun)
    assert table_lag(catalog, second) == Lag("orders", 0, 0.0)


def test_rows_that_are_written_anew_by_a_deletion_do_not_count(
    catalog: CatalogSettings, table: Table
) -> None:
    first = append(table, 1, 2, 3)
    equal: Any = EqualTo
    table.delete(equal("id", 2))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["added-records"] == "2"
    assert table_lag(catalog, first) == Lag("orders", 0, 0.0)
    append(table, 4)
    assert table_lag(catalog, first).rows == 1
    assert table_lag(catalog, None).rows == 4


def test_rows_that_a_compaction_moves_do_not_count(
    catalog: CatalogSettings, table: Table, spark: SparkSession
) -> None:
    first, second = append(table, 1, 2, 3), append(table, 4)
    for key, value in catalog_conf(catalog).items():
        spark.conf.set(key, value)
    name = ".".join((catalog.name, *catalog.identifier("orders")))
    options = "options => map('rewrite-all', 'true')"
    spark.sql(f"CALL {catalog.name}.system.rewrite_data_files(table => '{name}', {options})").collect()
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary.operation.value, snapshot.summary["added-records"]) == ("replace", "4")
    assert (table_lag(catalog, first).rows, table_lag(catalog, second).rows) == (1, 0)
    # Where a stream stands that has seen the compaction.
    assert table_lag(catalog, current(table)) == Lag("orders", 0, 0.0)


def test_a_position_that_has_expired_is_said_to_have(catalog: CatalogSettings, table: Table) -> None:
    first = append(table, 1, 2, 3)
    append(table, 4)
    table.maintenance.expire_snapshots().by_id(first).commit()
    found = table_lag(catalog, first)
    assert (found.rows, found.seconds) == (None, None)
    assert found.why.startswith(f"snapshot {first}, at which it stands, is not in the table's history")
    assert table_lag(catalog, None).rows == 1


def test_a_binding_that_the_last_epoch_did_not_have(catalog: CatalogSettings, table: Table) -> None:
    append(table, 1)
    position = {"version": 1, "snapshot_id": current(table), "position": 1}
    found = lag(CollectionSource("orders"), position, catalog, index=1)
    assert (found.rows, found.why) == (None, "epoch 0 had 1 bindings, and this one was not there")


def topic_of(broker: KafkaBroker, partitions: int = 2) -> str:
    topic = f"orders-{uuid4().hex}"
    broker.create_topic(topic, partitions)
    return topic


def produce(broker: KafkaBroker, topic: str, partition: int, ages: list[float]) -> None:
    """A message written so many seconds ago, for each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for age in ages:
        written = int((time.time() - age) * 1000)
        producer.produce(topic, b"{}", partition=partition, timestamp=written)
    assert producer.flush(DEADLINE_SECONDS) == 0


def test_messages_and_the_time_since_the_first_of_them(kafka_broker: KafkaBroker) -> None:
    topic = topic_of(kafka_broker)
    begun = time.time()
    produce(kafka_broker, topic, 0, [5000.0, 1000.0, 50.0])
    produce(kafka_broker, topic, 1, [3000.0, 2000.0])
    source = KafkaSource(kafka_broker.bootstrap, topic)
    at_start = lag(source, None)
    behind = lag(source, {topic: {"0": 2, "1": 1}})
    assert (at_start.rows, behind.rows) == (5, 2)
    assert at_start.seconds is not None
    assert behind.seconds is not None
    assert 5000 <= at_start.seconds <= 5000 + since(begun)
    assert 2000 <= behind.seconds <= 2000 + since(begun)
    assert lag(source, {topic: {"0": 3, "1": 2}}) == Lag(topic, 0, 0.0)
    # One that was added after the last epoch is read from its beginning.
    assert lag(source, {topic: {"0": 3}}).rows == 2


def test_a_topic_that_is_read_from_elsewhere_than_its_beginning(kafka_broker: KafkaBroker) -> None:
    topic = topic_of(kafka_broker)
    produce(kafka_broker, topic, 0, [50.0, 50.0])
    produce(kafka_broker, topic, 1, [50.0, 50.0])
    bootstrap = kafka_broker.bootstrap
    assert lag(KafkaSource(bootstrap, topic, "latest"), None) == Lag(topic, 0, 0.0)
    assert lag(KafkaSource(bootstrap, topic, json.dumps({topic: {"0": 1, "1": -1}})), None).rows == 1
    assert lag(KafkaSource(bootstrap, topic, json.dumps({topic: {"0": -2, "1": 1}})), None).rows == 3


def test_a_topic_that_is_not_there(kafka_broker: KafkaBroker) -> None:
    found = lag(KafkaSource(kafka_broker.bootstrap, "nosuch"), None)
    assert found.rows is None
    assert found.why.startswith(f"Kafka at {kafka_broker.bootstrap} does not tell: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "sasl.jaas.config"),
        ({"ssl.truststore.location": "/a.jks"}, "ssl.truststore.type JKS"),
        ({"sasl.login.callback.handler.class": "a.B"}, "No such configuration property"),
        ({"security.protocol": "NONSENSE"}, "security.protocol"),
    ],
)
def test_options_that_only_java_reads_are_said_and_raise_nothing(options: dict[str, str], said: str) -> None:
    found = lag(KafkaSource("127.0.0.1:1", "orders", options=options), None)
    assert (found.source, found.rows) == ("orders", None)
    assert said in found.why
