"""Opens a fixture of pipelines: restores its servers and reads each of its targets."""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import orjson
import psycopg2  # type: ignore[import-untyped]
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Message, Producer

from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from headrace.config import load_config
from headrace.errors import HeadraceError
from headrace.kafka.security import Security
from headrace.kafka.transactions import Transactions
from headrace.pipeline.guarantee import Compiled
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineSettings, Trigger
from headrace.spark.lines import Needs, installed_line
from tests.formats.archives import FORMATS, unpacked
from tests.pipeline.scenario import Scenario
from tests.pipeline.scenarios import postgres_documents, sqlite_documents
from tests.pipeline.sink_places import PLACES, read_committed
from tests.waiting import DEADLINE_SECONDS

Documents = list[dict[str, Any]]
_FAILURES = 5
"""A lane that has failed this often ends the run."""


class Reports:
    """Collects what a runner reports, by materialization."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.epochs: defaultdict[str, list[int]] = defaultdict(list)
        self.failures: defaultdict[str, list[str]] = defaultdict(list)
        self._stop = stop

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        pass

    def state(self, name: str, text: str) -> None:
        if text.startswith("failed"):
            self.failures[name].append(text)
        if len(self.failures[name]) >= _FAILURES:
            self._stop()

    def failed(self, name: str, error: HeadraceError) -> None:
        self.failures[name].append(error.message)

    def epoch(self, name: str, progress: EpochProgress) -> None:
        self.epochs[name].append(progress.epoch)

    def step(self, name: str, step: str) -> None:
        pass


@dataclass
class Pipelines:
    """The pipelines of one version, unpacked under the path that they were made under."""

    place: Path
    config: dict[str, Any]
    description: dict[str, Any]
    only: frozenset[str] | None = None
    """The materializations that are looked at, if not all."""
    reader: dict[str, Callable[[], Documents]] = field(default_factory=dict)
    """Functions that return what a reader sees, by materialization and sink, such as `appends/delta`."""

    @property
    def settings(self) -> PipelineSettings:
        """The fixture's own configuration, except that a run ends when everything is read."""
        settings = load_config(self.place / "headrace.yaml").pipeline_settings(names=self.names)
        once = tuple(replace(one, trigger=Trigger(once=True)) for one in settings.materializations)
        return replace(settings, materializations=once)

    @property
    def names(self) -> list[str]:
        """The chosen materializations that the installed line of Spark supports."""
        has_hudi = Needs.HUDI in installed_line().jars
        supported = [name for name in self.config["materializations"] if has_hudi or name != "hudi"]
        return [name for name in supported if self.only is None or name in self.only]

    def run(self) -> Reports:
        reports = Reports(lambda: runner.stop())
        runner = Runner(self.settings, reports)
        runner.run()
        return reports

    def write(self, count: int) -> Documents:
        """Writes more orders in one commit of the table, and returns them."""
        written = [order for batch in self.description["written"] for order in batch]
        orders = Scenario(self.place, "", {}, written=written, _lsn=len(self.description["written"]))
        orders.write(count, seed=1)
        return orders.written[-count:]

    def dead_letters(self, name: str) -> Documents:
        folder = self.place / "data/state/dead-letters" / name
        table = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
        return [
            {key: value for key, value in json.loads(row).items() if not key.startswith("_")}
            for row in table["row"].to_pylist()
        ]


@contextmanager
def opened(
    version: str,
    only: frozenset[str] | None,
    postgres: PostgresServer,
    redis: RedisServer,
    kafka: KafkaBroker,
) -> Iterator[Pipelines]:
    with unpacked(version, "pipelines") as place, pytest.MonkeyPatch.context() as patch:
        config = yaml.safe_load((place / "headrace.yaml").read_text())
        pipelines = Pipelines(place, config, json.loads((place / "fixture.json").read_text()), only)
        database = f"formats_{uuid4().hex}"
        url = postgres.create_database(database)
        patch.setenv("FORMATS_POSTGRES", url)
        patch.setenv("FORMATS_REDIS", redis.url)
        patch.setenv("FORMATS_KAFKA", kafka.bootstrap)
        try:
            _restore_postgres(url, place)
            _restore_redis(redis, place)
            if only is None:  # once for each broker: its messages must have the first offsets of their topics
                _restore_kafka(kafka, place, pipelines.description["kafka"])
            for name in pipelines.names:
                one = config["materializations"][name]
                binding = one["bindings"][0]
                for sink, target in binding.get("sinks", {}).items():
                    kind = one["sinks"][sink]["format"]
                    read = _sink_reader(place, kind, sink, target, kafka)
                    pipelines.reader[f"{name}/{sink}"] = read
                if "connector" in one:
                    endpoint = _endpoint_reader(one, url, redis)
                    pipelines.reader[f"{name}/connector"] = endpoint
            yield pipelines
        finally:
            _remove_from_redis(redis, config)
            postgres.drop_database(database)


def configuration_of(version: str) -> dict[str, Any]:
    """Reads the fixture's `headrace.yaml`."""
    with tarfile.open(FORMATS / version / "pipelines.tar.xz") as archive:
        file = archive.extractfile("headrace.yaml")
        assert file is not None
        config: dict[str, Any] = yaml.safe_load(file)
        return config


def _sink_reader(
    place: Path, kind: str, name: str, target: dict[str, str], kafka: KafkaBroker
) -> Callable[[], Documents]:
    def rows() -> Documents:
        if kind == "kafka":
            return [_row(message) for message in read_committed(kafka.bootstrap, target["location"])]
        return PLACES[kind](Scenario(place, "", {}), name, target["mode"]).rows()

    def documents() -> Documents:
        if target["mode"] == "view":
            return [orjson.loads(row["_document"]) for row in rows()]
        in_order = sorted(rows(), key=lambda row: row["_epoch"])
        return [
            {key: value for key, value in row.items() if value is not None and key != "_epoch"}
            for row in in_order
        ]

    return documents


def _row(message: Message) -> dict[str, Any]:
    epoch = dict(message.headers() or [])["headrace.epoch"]
    return {**orjson.loads(message.value() or b""), "_epoch": int(epoch or b"")}


def _endpoint_reader(one: dict[str, Any], postgres: str, redis: RedisServer) -> Callable[[], Documents]:
    config, resource = one["config"], one["bindings"][0]["resource"]
    match one["connector"]:
        case "sqlite":
            return lambda: sqlite_documents(config["path"])
        case "postgres":
            return lambda: postgres_documents(postgres)
        case "files":
            return lambda: _published(Path(config["url"]) / resource["prefix"])
        case "redis":
            return lambda: _kept(redis, resource["prefix"])
        case other:
            raise ValueError(f"nobody knows how to read {other}")


def _published(folder: Path) -> Documents:
    found: Documents = []
    for file in sorted(folder.glob("data/*.parquet")):
        found += pq.ParquetFile(file).read().to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in found]


def _kept(redis: RedisServer, prefix: str) -> Documents:
    with redis.client() as client:
        return [orjson.loads(client.get(key)) for key in client.scan_iter(f"{prefix}:*")]


def _restore_postgres(url: str, place: Path) -> None:
    with closing(psycopg2.connect(url)) as database, database, database.cursor() as cursor:
        cursor.execute((place / "postgres.sql").read_text())


def _restore_redis(server: RedisServer, place: Path) -> None:
    with server.client() as client:
        for key, value in json.loads((place / "redis.json").read_text()).items():
            if isinstance(value, dict):
                client.hset(key, mapping=value)
            else:
                client.set(key, value)


def _remove_from_redis(server: RedisServer, config: dict[str, Any]) -> None:
    with server.client() as client:
        for name, one in config["materializations"].items():
            if one.get("connector") == "redis":
                prefix = one["bindings"][0]["resource"]["prefix"]
                client.delete(f"headrace:fences:{name}", *client.scan_iter(f"{prefix}:*"))
                client.hdel("headrace:layouts", prefix)


def _restore_kafka(broker: KafkaBroker, place: Path, made_at: str) -> None:
    """Restores the messages on another broker, where the open transaction becomes an aborted one.

    Brokers also abort a transaction that is not committed in time; the sink commits the epoch nevertheless,
    by sending its messages again. The broker knows that the producer of the transaction was replaced.
    """
    for topic, messages in json.loads((place / "kafka.json").read_text()).items():
        broker.create_topic(topic)
        _replay(broker.bootstrap, topic, messages)
    identities = [
        shard
        for record in _readdressed(place, made_at, broker.bootstrap)
        for handle in record["decision"]["handles"].values()
        for shard in handle.get("transactions", ())
    ]
    with Transactions(broker.bootstrap, Security.of({})) as transactions:
        for identity in identities:
            for _ in range(identity["producer_epoch"] + 2):
                transactions.take_over(identity["transactional_id"], 60_000)


def _readdressed(place: Path, old: str, new: str) -> Iterator[dict[str, Any]]:
    """Replaces a broker's address in the recovery log, updates the checksums, and yields all decisions."""
    for file in sorted(place.glob("data/state/materializations/*-kafka/log/*.json")):
        body = file.read_bytes().replace(old.encode(), new.encode()).rpartition(b',"crc32":')[0] + b"}"
        file.write_bytes(body[:-1] + b',"crc32":"%08x"}\n' % crc32(body))
        if (record := json.loads(body))["kind"] == "decided":
            yield record


def _replay(bootstrap: str, topic: str, messages: list[dict[str, Any]]) -> None:
    """Gives each message its original offset. A gap in the offsets is where a transaction ended."""
    numbered = list(enumerate(messages))
    runs = [
        [message for _, message in run]
        for _, run in groupby(numbered, lambda one: (one[1]["offset"] - one[0], one[1]["is_committed"]))
    ]
    options = {"bootstrap.servers": bootstrap, "log_level": 0}
    plain = Producer(options)
    transactional = Producer({**options, "transactional.id": f"formats-{uuid4().hex}"})
    transactional.init_transactions(DEADLINE_SECONDS)
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        left_out = following[0]["offset"] - run[-1]["offset"] - 1 if following else 1
        if left_out == 0:
            _produce(plain, topic, run)
            continue
        assert left_out == 1, "more transactions have ended here than one"
        transactional.begin_transaction()
        _produce(transactional, topic, run)
        if run[-1]["is_committed"]:
            transactional.commit_transaction(DEADLINE_SECONDS)
        else:
            transactional.abort_transaction(DEADLINE_SECONDS)


def _produce(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    given: list[int | None] = []
    for message in messages:
        producer.produce(
            topic,
            message["value"],
            message["key"],
            partition=0,
            headers=[(name, value) for name, value in message["headers"]],
            on_delivery=lambda error, delivered: given.append(None if error else delivered.offset()),
        )
    producer.flush(DEADLINE_SECONDS)
    assert given == [message["offset"] for message in messages]
