"""Sinks by the name of their format: how a scenario is told of one, and how somebody else reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import duckdb
import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from hudi import HudiTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION, Scenario, in_order
from tests.waiting import DEADLINE_SECONDS

Rows = list[dict[str, Any]]


class SinkPlace(ABC):
    format: str

    def __init__(
        self,
        scenario: Scenario,
        name: str = "lake",
        mode: str = "append",
        fixture: Callable[[str], Any] | None = None,
    ) -> None:
        """`fixture` gives what a test's fixture of a name is: a server."""
        self.scenario, self.name, self.mode = scenario, name, mode
        self.fixture = fixture
        scenario.sinks[name] = {"format": self.format, "options": self.options()}
        scenario.targets[name] = {"location": self.location, "mode": mode}

    @property
    @abstractmethod
    def location(self) -> str: ...

    def options(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def rows(self) -> Rows:
        """What a reader sees, by another engine than the one that wrote."""

    def documents(self) -> Rows:
        """The same as documents of the collection, by the order of epochs."""
        rows = sorted(self.rows(), key=lambda row: row.get("_epoch", 0))
        if self.mode == "view":
            return [orjson.loads(row["_document"]) for row in rows]
        return [
            {name: value for name, value in row.items() if value is not None and name != "_epoch"}
            for row in rows
        ]


class FolderPlace(SinkPlace):
    @property
    def folder(self) -> Path:
        return self.scenario.folder / self.name

    @property
    def location(self) -> str:
        return self.folder.as_uri()


class ParquetPlace(FolderPlace):
    format = "parquet"

    def rows(self) -> Rows:
        return _parquet_rows(sorted(self.folder.glob("epoch-*/**/*.parquet")))


class IcebergPlace(SinkPlace):
    format = "iceberg"

    @property
    def location(self) -> str:
        return f"views.{self.name}"

    def rows(self) -> Rows:
        settings = embedded_catalog(self.scenario.data)
        catalog = load_catalog(settings.name, **settings.properties)
        try:
            rows: Rows = catalog.load_table(self.location).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return rows

    def expire_snapshots(self) -> None:
        """All but the last one."""
        settings = embedded_catalog(self.scenario.data)
        table = load_catalog(settings.name, **settings.properties).load_table(self.location)
        last = table.current_snapshot()
        assert last is not None
        expired = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != last.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(expired).commit()


class DeltaPlace(FolderPlace):
    """Read by a replay of its log of our own, and DuckDB."""

    format = "delta"

    def rows(self) -> Rows:
        files: dict[str, None] = {}
        for entry in sorted((self.folder / "_delta_log").glob("*.json")):
            for line in entry.read_text().splitlines():
                action = orjson.loads(line)
                if "add" in action:
                    assert action["add"]["path"] not in files, "a file is added twice"
                    files[action["add"]["path"]] = None
                if "remove" in action:
                    del files[action["remove"]["path"]]
        return _parquet_rows([self.folder / unquote(file) for file in files])


class HudiPlace(FolderPlace):
    """Read by the Rust library."""

    format = "hudi"

    def rows(self) -> Rows:
        if not (self.folder / ".hoodie").exists():
            return []
        rows: Rows = []
        for batch in HudiTable(str(self.folder)).read():
            for row in pa.record_batch(batch).to_pylist():
                rows.append(
                    {name: row[name] for name in row if not name.startswith(("_hoodie", "_headrace"))}
                )
        return rows


class KafkaPlace(SinkPlace):
    format = "kafka"

    @property
    def location(self) -> str:
        return f"{self.scenario.folder.name}-{self.name}"

    def options(self) -> dict[str, str]:
        assert self.fixture is not None
        self.bootstrap: str = self.fixture("kafka_broker").bootstrap
        # Tests share a broker and the name of their materialization, and what one has committed is no start
        # for another.
        return {"bootstrap": self.bootstrap, "shards": "2", "checkpoints": f"{self.location}-checkpoints"}

    def rows(self) -> Rows:
        return [
            {**orjson.loads(message.value() or b"{}"), "_epoch": int(headers["headrace.epoch"] or b"-1")}
            for message in read_committed(self.bootstrap, self.location)
            if (headers := dict(message.headers() or []))
        ]


def read_committed(bootstrap: str, topic: str) -> list[Message]:
    """All messages that a plain consumer sees."""
    options = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "isolation.level": "read_committed"}
    at_the_end = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**options, **at_the_end, "auto.offset.reset": "earliest"})
    try:
        known = consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic]
        consumer.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        found: list[Message] = []
        ended = 0
        while ended < len(known.partitions):
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        return found
    finally:
        consumer.close()


def _parquet_rows(files: list[Path]) -> Rows:
    if not files:
        return []
    names = ", ".join(f"'{file}'" for file in files)
    found = duckdb.sql(f"SELECT * FROM read_parquet([{names}], union_by_name = true)")
    assert found is not None
    rows: Rows = found.to_arrow_table().to_pylist()
    return rows


PLACES: dict[str, type[SinkPlace]] = {
    place.format: place for place in (ParquetPlace, IcebergPlace, DeltaPlace, HudiPlace, KafkaPlace)
}


def assert_sink_exact(scenario: Scenario, place: SinkPlace) -> None:
    """Every good row is in it once, and every other one is a dead letter."""
    documents = place.documents()
    assert combine(COLLECTION, documents) == scenario.expected
    if place.mode == "view":
        assert len(documents) == len(scenario.expected)
    assert in_order(scenario.dead_letters()) == in_order(scenario.dead)
