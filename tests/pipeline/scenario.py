"""Orders in a collection or a Kafka topic, some of them bad, and what a view of them has to be."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset
import yaml
from confluent_kafka import Producer

from headrace.config import load_config
from headrace.errors import HeadraceError
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.model.collections import Collection
from headrace.pipeline.guarantee import Compiled
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineSettings, Trigger
from headrace.testing.runtime import View, combine
from headrace.wal.batches import PLACE_FIELDS
from tests.waiting import DEADLINE_SECONDS

SCHEMA = {
    "type": "object",
    "required": ["customer"],
    "reduce": {"strategy": "merge"},
    "properties": {
        "customer": {"type": "string"},
        "orders": {"type": "integer", "reduce": {"strategy": "sum"}},
        "cents": {"type": "integer", "reduce": {"strategy": "sum"}},
        "largest": {"type": "integer", "reduce": {"strategy": "maximize"}},
        "note": {"type": "string"},
    },
}
COLLECTION = Collection("orders", ("/customer",), SCHEMA)
RULE = {"name": "positive", "range": {"field": "cents", "minimum": 0}}


class Recorder:
    """What a runner reports."""

    def __init__(self) -> None:
        self.epochs: list[EpochProgress] = []
        self.steps: list[str] = []
        self.states: list[str] = []

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        pass

    def state(self, name: str, text: str) -> None:
        self.states.append(text)

    def failed(self, name: str, error: HeadraceError) -> None:
        self.states.append(f"stopped: {error.message}")

    def epoch(self, name: str, progress: EpochProgress) -> None:
        self.epochs.append(progress)

    def step(self, name: str, step: str) -> None:
        self.steps.append(step)


@dataclass
class Scenario:
    """A folder with a headrace.yaml, a source that orders are written to, and an endpoint."""

    folder: Path
    connector: str
    endpoint: dict[str, Any]
    shards: int = 1
    bootstrap: str = ""
    """Of Kafka, if that is the source."""
    topic: str = ""
    rows_per_epoch: int = 0
    resource: dict[str, Any] = field(default_factory=lambda: {"table": "orders"})
    sinks: dict[str, Any] = field(default_factory=dict)
    """Of the materialization, as in YAML."""
    targets: dict[str, Any] = field(default_factory=dict)
    """Of the binding."""
    is_latest: bool = False
    """Whether the last order of a customer wins, and only columns are kept; else orders are reduced."""
    written: list[dict[str, Any]] = field(default_factory=list)
    last_epoch: int = -1
    _lsn: int = 0

    @property
    def good(self) -> list[dict[str, Any]]:
        return [order for order in self.written if order["cents"] >= 0]

    @property
    def dead(self) -> list[dict[str, Any]]:
        return [order for order in self.written if order["cents"] < 0]

    @property
    def collection(self) -> Collection:
        reduce = {"reduce": {"strategy": "lastWriteWins"}} if self.is_latest else {}
        return Collection("orders", ("/customer",), {**SCHEMA, **reduce})

    @property
    def expected(self) -> View:
        return combine(self.collection, self.good)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def state(self) -> Path:
        return self.data / "state/materializations/view"

    def configure(self) -> Path:
        binding: dict[str, Any] = {"collection": "orders", "sinks": self.targets}
        endpoint: dict[str, Any] = {"sinks": self.sinks}
        if self.is_latest:
            binding["fields"] = {"exclude": ["_document"]}
        if self.connector:
            binding["resource"] = self.resource
            endpoint |= {"connector": self.connector, "config": self.endpoint}
        limits: dict[str, int] = {"files": 1}
        if self.bootstrap:
            binding["source"] = {"kafka": {"bootstrap": self.bootstrap, "topic": self.topic}}
            limits = {"rows": self.rows_per_epoch}
        config = {
            "data": str(self.data),
            "spark": {"master": "local[2]", "conf": QUICK_SPARK},
            "collections": {
                "orders": {"key": ["/customer"], "schema": dict(self.collection.schema), "quality": [RULE]}
            },
            "materializations": {
                "view": {**endpoint, "shards": self.shards, "limits": limits, "bindings": [binding]}
            },
        }
        path = self.folder / "headrace.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def write(self, count: int, seed: int = 0) -> None:
        """In one commit of the table, or as so many messages."""
        draw = random.Random(seed + len(self.written))
        orders = [random_order(draw) for _ in range(count)]
        if self.bootstrap:
            self._produce(orders)
        else:
            self._append(orders)
        self.written += orders

    def _append(self, orders: list[dict[str, Any]]) -> None:
        self.data.mkdir(exist_ok=True)
        tables = Tables(embedded_catalog(self.data))
        self._lsn += 1
        columns = pa.Table.from_pylist(orders, TABLE)
        places = [pa.array([self._lsn] * len(orders), pa.int64()), pa.array(range(len(orders)), pa.int32())]
        for field_, column in zip(PLACE_FIELDS, places, strict=True):
            columns = columns.append_column(field_, column)
        table = tables.load("orders") or tables.create("orders", TABLE, ("/customer",), "test")
        table.append(columns)

    def _produce(self, orders: list[dict[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for order in orders:
            producer.produce(self.topic, orjson.dumps(order), key=order["customer"].encode())
        assert producer.flush(DEADLINE_SECONDS) == 0

    def settings(self, **changes: Any) -> PipelineSettings:
        """To take what is there, and end."""
        settings = load_config(self.configure()).pipeline_settings()
        changes.setdefault("trigger", Trigger(once=True))
        return replace(
            settings, materializations=tuple(replace(one, **changes) for one in settings.materializations)
        )

    def run(self, adopts: Sequence[Any] = (), accepts_loss: Sequence[Any] = (), **changes: Any) -> Recorder:
        """In this process, until everything is read; raises what went wrong."""
        recorder = Recorder()
        runner = Runner(self.settings(**changes), recorder, adopts=adopts, accepts_loss=accepts_loss)
        runner.run()
        for error in runner.failures.values():
            raise error
        return recorder

    def dead_letters(self) -> list[dict[str, Any]]:
        folder = self.data / "state/dead-letters/view"
        if not folder.exists():
            return []
        table = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
        assert set(map(tuple, table["rules"].to_pylist())) <= {("positive",)}
        return [
            {name: value for name, value in json.loads(text).items() if not name.startswith("_")}
            for text in table["row"].to_pylist()
        ]

    def assert_exact(self, view: list[dict[str, Any]]) -> None:
        """`view`: the documents that the endpoint has."""
        found = combine(self.collection, view)
        assert len(found) == len(view)
        assert found == self.expected
        assert in_order(self.dead_letters()) == in_order(self.dead)


TABLE = pa.schema(
    [
        ("customer", pa.string()),
        ("orders", pa.int64()),
        ("cents", pa.int64()),
        ("largest", pa.int64()),
        ("note", pa.string()),
    ]
)
# A driver of a few small epochs lives for seconds: starting it is most of its time.
QUICK_SPARK = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
}


def random_order(draw: random.Random) -> dict[str, Any]:
    cents = draw.randrange(-5, 100)
    return {
        "customer": f"customer {draw.randrange(30)}",
        "orders": 1,
        "cents": cents,
        "largest": cents,
        "note": f"note {draw.randrange(1_000_000)}",
    }


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)
