"""`headrace dead-letter`: shows what was dropped, and sends it again, once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

import headrace
from devtools.kafka_broker import KafkaBroker
from headrace.cli.dead_letter import dead_letter, parse_since, read_corrected, send_again
from headrace.config import load_config
from headrace.errors import ConfigError, EndpointUnavailable, SchemaError
from headrace.objects import ObjectStore
from headrace.pipeline.dead_letters.replay import Batch, ReplayLog, Sent, replay, source_of
from headrace.pipeline.dead_letters.store import DeadLetter, read_dead_letters
from headrace.pipeline.dead_letters.targets import Targets, record_batch
from headrace.pipeline.settings import KafkaSource, PipelineSettings
from headrace.testing.ingest_process import IngestProcess
from tests.waiting import DEADLINE_SECONDS

AT = datetime(2026, 11, 16, 8, 0, 0, tzinfo=UTC)
CONFIG = """
data: {folder}/data
collections:
  orders:
    key: /id
    schema:
      type: object
      properties:
        id: {{type: integer}}
        price: {{type: string, format: "decimal(10,2)"}}
        at: {{type: string, format: date-time}}
        tags: {{type: array}}
      required: [id]
    quality: [{{name: priced, not_null: price}}]
materializations:
  sales:
    connector: sqlite
    config: {{path: sales.db}}
    dead_letters: {{location: {folder}/dead}}
    bindings: [{{collection: orders, resource: {{table: orders}}{source}}}]
"""
ROWS: list[dict[str, Any]] = [
    {"id": 1, "at": "2024-01-01T00:00:00.123456Z", "tags": [1, {"a": 2.50}], "_lsn": 7, "_row": 0},
    {"id": 2, "_lsn": 7, "_row": 1},
    {"id": 3, "_lsn": 9, "_row": 0},
]


class World:
    """A file, and dead letters as the sink lays them out: two of epoch 1, and one of epoch 2."""

    def __init__(
        self, folder: Path, source: str = "", places: Sequence[dict[str, Any]] | None = None
    ) -> None:
        self._places = places
        self.file = folder / "headrace.yaml"
        self.file.write_text(CONFIG.format(folder=folder, source=source))
        self.folder = folder / "dead/materialization=sales"
        self.write(1, ROWS[:2], ["priced", "schema:/x"])
        self.write(2, ROWS[2:], ["priced"])
        staged = self.folder / "_staged/x"
        staged.mkdir(parents=True)
        (staged / "half.parquet").write_text("not yet")

    def write(self, epoch: int, rows: list[dict[str, Any]], rules: list[str], binding: int = 0) -> None:
        sources = [{"_lsn": row["_lsn"], "_row": row["_row"]} for row in rows]
        if self._places:
            sources = [self._places[row["id"] - 1] for row in rows]
        table = pa.table(
            {
                "collection": ["orders"] * len(rows),
                "binding": pa.array([binding] * len(rows), pa.int32()),
                "failed_at": pa.array([AT + timedelta(hours=epoch)] * len(rows), pa.timestamp("us", "UTC")),
                "rules": [rules] * len(rows),
                "row": [json.dumps(row) for row in rows],
                "source": [json.dumps(source) for source in sources],
            }
        )
        published = self.folder / f"epoch={epoch:020}"
        published.mkdir(parents=True)
        pq.write_table(table, published / "part-0.parquet")

    @property
    def settings(self) -> PipelineSettings:
        return load_config(self.file).pipeline_settings(names=["sales"])

    def letters(self) -> list[DeadLetter]:
        settings = self.settings
        (one,) = settings.materializations
        assert one.dead_letters is not None
        found = read_dead_letters(one.dead_letters, "sales", settings.catalog)
        return sorted(found, key=lambda letter: letter.order)

    def run(self, *arguments: str) -> str:
        command, *rest = arguments
        result = CliRunner().invoke(
            dead_letter, [command, str(self.file), *rest], catch_exceptions=False, standalone_mode=False
        )
        return result.output


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_list_has_totals_and_the_latest_first(world: World) -> None:
    shown = world.run("list")
    assert shown.startswith("sales: 3 dead letters in 2 epochs\n  priced     3\n  schema:/x  2\n")
    first, second, third = shown.split("\n\n")[1:]
    assert first == 'epoch 2  2026-11-16T10:00:00Z  orders: priced\n  {"id": 3, "_lsn": 9, "_row": 0}'
    assert '{"id": 2' in second
    assert '{"id": 1' in third


def test_a_list_can_be_narrowed(world: World) -> None:
    assert "sales: 2 dead letters in 1 epoch\n" in world.run("list", "sales", "--rule", "schema:/x")
    assert "sales: 1 dead letter in 1 epoch\n" in world.run("list", "--since", "2026-11-16T09:30:00Z")
    limited = world.run("list", "--limit", "1")
    assert "sales: 3 dead letters in 2 epochs" in limited
    assert limited.count("\nepoch ") == 1
    assert limited.endswith("2 more: --limit 0 shows all\n")


def test_lines_of_json_are_what_a_program_needs(world: World) -> None:
    lines = [json.loads(line) for line in world.run("list", "--json", "--limit", "0").splitlines()]
    assert [line["row"]["id"] for line in lines] == [3, 2, 1]
    assert lines[0] == {
        "id": world.letters()[2].id,
        "materialization": "sales",
        "collection": "orders",
        "binding": 0,
        "epoch": 2,
        "failed_at": "2026-11-16T10:00:00+00:00",
        "rules": ["priced"],
        "replayed": False,
        "source": {"_lsn": 9, "_row": 0},
        "row": ROWS[2],
    }


@pytest.mark.processes
def test_the_command_itself_needs_no_spark(world: World) -> None:
    program = (
        "import sys\nfrom headrace.cli import cli\n"
        f"cli(['dead-letter', 'list', {str(world.file)!r}], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 dead letters" in done.stdout


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T10:00:00+02:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("90m", AT - timedelta(minutes=90)),
        ("7d", AT - timedelta(days=7)),
    ],
)
def test_since(text: str, moment: datetime) -> None:
    assert parse_since(text, AT) == moment


def test_since_that_is_no_time() -> None:
    with pytest.raises(ConfigError, match="--since 'soon' is no time"):
        parse_since("soon", AT)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestProcess]:
    with IngestProcess(tmp_path_factory.mktemp("server")) as server:
        yield server


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.string()),
    ]
)


class Orders:
    """The collection on a server, for one test."""

    def __init__(self, server: IngestProcess) -> None:
        self.url = server.url
        with headrace.connect(self.url) as client:
            if not any(known["name"] == "orders" for known in client.collections()):
                client.create_collection("orders", SCHEMA)
            self._after = client.watermarks()["watermarks"]["MEMORY"] or 0

    def rows(self) -> list[dict[str, Any]]:
        """What came since, in the order in which it was written."""
        with headrace.connect(self.url) as client:
            found: list[dict[str, Any]] = (
                client.read("orders", from_lsn=self._after + 1).read_all().to_pylist()
            )
        return found


@pytest.fixture
def orders(server: IngestProcess) -> Orders:
    return Orders(server)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


@pytest.mark.processes
def test_letters_are_sent_once_and_in_order(world: World, orders: Orders) -> None:
    replayed = world.run("replay", "sales", "--server", orders.url, "--dry-run")
    assert (replayed, orders.rows()) == ("3 dead letters of 3 would be sent\n", [])
    assert world.run("replay", "sales", "--server", orders.url, "--epoch", "2") == "1 dead letter sent\n"
    said = world.run("replay", "sales", "--server", orders.url)
    assert said == "2 dead letters sent; 1 were sent before (--again sends them once more)\n"
    rows = orders.rows()
    assert ids(rows) == [3, 1, 2]
    assert rows[1]["at"] == datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert json.loads(rows[1]["tags"]) == [1, {"a": 2.5}]
    assert world.run("replay", "sales", "--server", orders.url).startswith("0 dead letters sent; 3 were")
    assert "(sent again)" in world.run("list")
    assert world.run("replay", "sales", "--server", orders.url, "--again", "--rule", "schema:/x").startswith(
        "2 "
    )
    assert ids(orders.rows()) == [3, 1, 2, 1, 2]


@pytest.mark.processes
def test_corrected_rows_are_sent_in_their_place(world: World, orders: Orders, tmp_path: Path) -> None:
    corrected = tmp_path / "corrected.jsonl"
    lines = world.run("list", "--json").splitlines()
    corrected.write_text(lines[0].replace('"id": 3', '"id": 3, "price": 12345678.10') + "\n\n")
    said = world.run("replay", "sales", "--server", orders.url, "--from-file", str(corrected))
    assert said == "1 dead letter sent\n"
    (row,) = orders.rows()
    assert (row["id"], row["price"]) == (3, Decimal("12345678.10"))
    corrected.write_text('{"id": "nosuch", "row": {}}')
    with pytest.raises(ConfigError, match="'nosuch' is the id of no dead letter of 'sales'"):
        world.run("replay", "sales", "--from-file", str(corrected))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "a", "row": {}}\n{"id": "a", "row": {}}', ":2: dead letter 'a' is there twice"),
        ("{}", ":1: this is no line of"),
        ("nothing", ":1: this is no line of"),
    ],
)
def test_a_file_of_corrections_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "corrected.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_corrected(path)


class Crash(BaseException):
    """The end of the process."""


@pytest.mark.processes
def test_a_crash_while_sending_neither_loses_nor_repeats(world: World, orders: Orders) -> None:
    """Before the write, after it, and while another one with other letters comes in between."""
    real = Targets(world.settings.materializations[0], orders.url)

    def dies_before(batch: Batch) -> None:
        raise Crash

    def dies_after(batch: Batch) -> None:
        real(batch)
        raise Crash

    for send in (dies_before, dies_after, dies_after):
        with pytest.raises(Crash):
            send_again(world.settings, send, epoch=1)
    world.write(3, [{"id": 4, "_lsn": 11, "_row": 0}], ["priced"])
    assert send_again(world.settings, real).startswith("2 dead letters sent; 2 were sent before")
    real.close()
    assert ids(orders.rows()) == [1, 2, 3, 4]


def test_of_two_who_replay_at_once_one_sends(world: World) -> None:
    sent: list[str] = []

    def other_first(batch: Batch) -> None:
        sent.extend(letter.id for letter in batch.letters)

    log = ReplayLog.of(world.settings, "sales")
    log.refresh()
    send_again(world.settings, other_first)
    assert log.add(Batch("x", "orders", 0, (Sent("a", "{}", "{}"),))) is None
    assert len(sent) == 3
    assert send_again(world.settings, other_first).startswith("0 dead letters sent")


@pytest.mark.processes
def test_what_is_refused_does_not_stand_in_the_way(world: World, orders: Orders) -> None:
    world.write(3, [{"id": "four", "_lsn": 11, "_row": 0}], ["priced"])
    targets = Targets(world.settings.materializations[0], orders.url)
    with pytest.raises(
        SchemaError, match=r"'id' is int64 in collection 'orders', and \"four\" is not: correct"
    ):
        send_again(world.settings, targets, epoch=3)
    assert send_again(world.settings, targets, epoch=2) == "1 dead letter sent"
    targets.close()

    def unreachable(batch: Batch) -> None:
        raise EndpointUnavailable("not now")

    with pytest.raises(EndpointUnavailable):
        send_again(world.settings, unreachable, epoch=1)
    assert send_again(world.settings, lambda _: None, epoch=1).startswith("0 dead letters sent; 2 were")


def batch_of(*rows: str) -> Batch:
    return Batch("b", "c", 0, tuple(Sent(str(number), row, "{}") for number, row in enumerate(rows)))


def test_rows_get_the_types_of_their_collection() -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("bytes", pa.binary()),
            ("inner", pa.struct([("x", pa.list_(pa.decimal128(5, 2)))])),
            ("map", pa.map_(pa.string(), pa.int64())),
            ("ratio", pa.float64()),
            ("local", pa.timestamp("us")),
            ("yes", pa.bool_()),
        ]
    )
    row = {"day": "2024-02-29", "bytes": "YWI=", "inner": {"x": [1.10]}, "map": {"a": 1}, "ratio": 1}
    row |= {"local": "2024-01-01T00:00:00", "yes": True, "_lsn": 1}
    assert record_batch(schema, batch_of(json.dumps(row), "{}")).to_pylist()[0] == {
        "day": datetime(2024, 2, 29).date(),  # noqa: DTZ001
        "bytes": b"ab",
        "inner": {"x": [Decimal("1.10")]},
        "map": [("a", 1)],
        "ratio": 1.0,
        "local": datetime(2024, 1, 1),  # noqa: DTZ001
        "yes": True,
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("[1]", "dead letter 0 is no JSON object"),
        ("{half", "dead letter 0 is no JSON object"),
        ('{"more": 1}', "dead letter 0 has 'more', and collection 'c' does not"),
        ('{"n": 1.5}', "'n' is int64 in collection 'c', and "),
        ('{"n": true}', "'n' is int64 in collection 'c', and true is not"),
    ],
)
def test_rows_that_do_not_fit(row: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        record_batch(pa.schema([("n", pa.int64())]), batch_of(row))


def test_rows_of_a_topic_go_back_to_its_partition_with_their_keys(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic = f"dead-{tmp_path.name}"
    kafka_broker.create_topic(topic, partitions=3)
    with_headers: list[tuple[str, str | bytes | None]] = [("trace", b"x")]
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for number in range(3):
        producer.produce(topic, b"{}", key=f"key {number}".encode(), partition=2, headers=with_headers)
    assert producer.flush(DEADLINE_SECONDS) == 0
    source = f', source: {{kafka: {{bootstrap: "{kafka_broker.bootstrap}", topic: {topic}}}}}'
    places = [{"topic": topic, "partition": 2, "offset": offset} for offset in (2, 77, 78)]
    world = World(tmp_path, source, places)
    assert world.run("replay", "sales") == "3 dead letters sent\n"
    assert world.run("replay", "sales").startswith("0 dead letters sent")
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 2, 3)])
    messages = consumer.consume(3, timeout=DEADLINE_SECONDS)
    consumer.close()
    rows = {json.loads(message.value() or b"")["id"]: message for message in messages}
    assert sorted(rows) == [1, 2, 3]
    # The last two are not in the topic any more.
    assert [rows[number].key() for number in (1, 2, 3)] == [b"key 2", None, None]
    assert [rows[number].headers() for number in (1, 3)] == [with_headers, None]


def test_rows_go_to_the_topic_that_they_came_from_though_bindings_have_moved(tmp_path: Path) -> None:
    world = World(tmp_path, ', source: {kafka: {bootstrap: "localhost:1", topic: late}}')
    (one,) = world.settings.materializations
    bindings = tuple(replace(one.bindings[0], source=KafkaSource("a:1", name)) for name in ("early", "late"))
    moved = replace(one, bindings=bindings)

    def batch(source: str) -> Batch:
        return Batch("b", "orders", 0, (Sent("1", "{}", source),))

    assert source_of(moved, batch('{"topic": "late", "partition": 0}')) is bindings[1].source
    assert source_of(moved, batch('{"topic": "early", "partition": 0}')) is bindings[0].source
    with pytest.raises(ConfigError, match="no binding of collection 'orders' from topic 'other' any more"):
        source_of(moved, batch('{"topic": "other", "partition": 0}'))


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, ', source: {kafka: {bootstrap: "localhost:1", topic: t}}')
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match="the package confluent-kafka, which is not installed"):
        world.run("replay", "sales")


def test_what_came_from_elsewhere_cannot_be_sent(tmp_path: Path) -> None:
    world = World(tmp_path, ", source: {format: rate, order_by: [timestamp]}")
    with pytest.raises(ConfigError, match="came from Spark's format 'rate', to which nothing can be sent"):
        world.run("replay", "sales")


def test_a_row_that_another_binding_has_taken_is_not_sent_again(tmp_path: Path) -> None:
    """Both read what is sent, and that one would have it twice."""
    also = "}, {collection: orders, resource: {table: others}"
    world = World(tmp_path, also)
    with pytest.raises(
        ConfigError, match=r"binding 2 of materialization 'sales' reads what dead letter .* taken"
    ):
        send_again(world.settings, lambda _: None, epoch=2, dry_run=True)
    world.write(3, ROWS[2:], ["priced"], binding=1)
    assert send_again(world.settings, lambda _: None, epoch=2) == "1 dead letter sent"
    other = replace(world.settings.materializations[0], name="other", dead_letters=None)
    with pytest.raises(ConfigError, match="binding 1 of materialization 'other' reads"):
        send_again(world.settings, lambda _: None, epoch=2, again=True, readers=(other,))


def test_a_row_that_was_sent_again_for_another_materialization_is_not_sent_once_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    (one,) = world.settings.materializations
    other = replace(one, name="other")
    shutil.copytree(world.folder, world.folder.with_name("materialization=other"))
    assert send_again(world.settings, lambda _: None, readers=(one, other)) == "3 dead letters sent"
    with pytest.raises(ConfigError, match=r"binding 1 of materialization 'sales' reads .* and has taken"):
        send_again(replace(world.settings, materializations=(other,)), lambda _: None, readers=(one, other))


def test_a_message_is_sent_once_for_bindings_of_several_collections(tmp_path: Path) -> None:
    place = {"topic": "orders", "partition": 0, "offset": 7}
    letters = [
        DeadLetter("sales", collection, binding, 1, AT, ("priced",), "{}", json.dumps(place))
        for binding, collection in enumerate(("orders", "customers"))
    ]
    log = ReplayLog(ObjectStore(tmp_path.as_uri()), "sales")
    sent: list[Batch] = []
    assert replay(log, letters, sent.append) == 1
    assert replay(log, letters, sent.append) == 0
    assert [len(batch.letters) for batch in sent] == [1]


def test_bytes_that_are_no_text_are_not_sent_as_they_are_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(3, [{"id": 1, "base64": "eP8=", "_lsn": 10, "_row": 0}], ["encoding", "json"])
    with pytest.raises(
        ConfigError, match="is no text in UTF-8, and would be dropped again: correct such rows"
    ):
        send_again(world.settings, lambda _: None)
    assert send_again(world.settings, lambda _: None, epoch=1) == "2 dead letters sent"
