"""What is particular to SQLite: its tables, how they change, and its files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.sqlite import SqliteConnector
from headrace.connectors.sqlite.database import SqliteDatabase
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable
from headrace.model.collections import Collection
from headrace.model.materializations import Binding, Materialization
from headrace.model.ownership import Mode, Owner
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, Spec, Validate, ValidateBinding
from headrace.testing import Runtime, materialization_of, samples

GOLDEN = Path(__file__).parent / "golden"
CLIENT = InProcess(SqliteConnector())


def things(required: tuple[str, ...] = ("id",), **properties: dict[str, Any]) -> Collection:
    schema = {
        "type": "object",
        "required": list(required),
        "properties": {"id": {"type": "integer"}, **properties},
    }
    return Collection("things", ("/id",), schema)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "view.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def planned(path: Path, collection: Collection, **resource: Any) -> Materialization:
    binding = ValidateBinding(collection, {"table": "things", **resource})
    return materialization_of(CLIENT, "view", "sqlite", {"path": str(path)}, [binding])


def apply(path: Path, collection: Collection, **resource: Any) -> str:
    return CLIENT.apply(Apply(planned(path, collection, **resource), "1")).action_description


def write(path: Path, collection: Collection, *documents: dict[str, Any], n: int = 1) -> None:
    with Runtime(CLIENT, planned(path, collection)) as runtime:
        runtime.transact([list(documents)], {"n": n}, always_load=True)


def schema_of(database: sqlite3.Connection) -> list[tuple[str, str, int]]:
    return [(row[1], row[2], row[3]) for row in database.execute("PRAGMA table_info(things)")]


def test_what_apply_says(path: Path) -> None:
    binding = ValidateBinding(samples.ALL_TYPES, {"table": "all types"})
    deltas = ValidateBinding(samples.ORDERS, {"table": "deltas", "delta_updates": True})
    materialization = materialization_of(
        CLIENT, "view", "sqlite", {"path": str(path)}, [binding, deltas], include=["object"]
    )
    said = CLIENT.apply(Apply(materialization, "1")).action_description
    assert said + "\n" == (GOLDEN / "sqlite_apply.sql").read_text()


def test_what_spec_says() -> None:
    said = json.dumps(asdict(CLIENT.spec(Spec())), indent=2)
    assert said + "\n" == (GOLDEN / "sqlite_spec.json").read_text()


def test_what_validate_says(path: Path) -> None:
    apply(path, things(kept={"type": "string"}, wider={"type": "integer"}, other={"type": "string"}))
    changed = things(
        kept={"type": "string"},
        wider={"type": "number"},
        other={"type": "integer"},
        new={"type": "boolean"},
        nested={"type": "object"},
        ID={"type": "string"},
    )
    binding = ValidateBinding(changed, {"table": "things"})
    (answer,) = CLIENT.validate(Validate("view", "sqlite", {"path": str(path)}, (binding,))).bindings
    said = [
        f"{name}: {constraint.kind}: {constraint.reason}" for name, constraint in answer.constraints.items()
    ]
    assert "\n".join(said) + "\n" == (GOLDEN / "sqlite_validate.txt").read_text()


def test_a_new_field_is_a_nullable_column(path: Path, database: sqlite3.Connection) -> None:
    before, after = things(), things(("id", "new"), new={"type": "string"})
    apply(path, before)
    write(path, before, {"id": 1})
    assert apply(path, after).endswith('ALTER TABLE "main"."things" ADD COLUMN "new" TEXT;')
    write(path, after, {"id": 2, "new": "x"}, n=2)
    assert database.execute("SELECT id, new FROM things ORDER BY id").fetchall() == [(1, None), (2, "x")]


def test_a_dropped_field_may_be_null_from_then_on(path: Path, database: sqlite3.Connection) -> None:
    before, after = things(("id", "old"), old={"type": "string"}), things()
    apply(path, before)
    write(path, before, {"id": 1, "old": "kept"})
    assert ("old", "TEXT", 1) in schema_of(database)
    assert "stored no more" in apply(path, after)
    assert ("old", "TEXT", 0) in schema_of(database)
    write(path, after, {"id": 2}, n=2)
    assert database.execute("SELECT id, old FROM things ORDER BY id").fetchall() == [(1, "kept"), (2, None)]


def test_a_field_that_can_be_missing_now(path: Path, database: sqlite3.Connection) -> None:
    apply(path, things(("id", "x"), x={"type": "string"}))
    assert "can be missing now" in apply(path, things(x={"type": "string"}))
    assert ("x", "TEXT", 0) in schema_of(database)
    assert apply(path, things(x={"type": "string"})) == ""


@pytest.mark.parametrize(
    ("narrow", "value", "wide", "declared", "stored"),
    [
        ({"type": "integer"}, 42, {"type": "number"}, "REAL", 42.0),
        ({"type": "integer"}, 42, {"type": "string"}, "TEXT", "42"),
        (
            {"type": "integer"},
            -(2**63),
            {"type": "string", "format": "decimal(21,2)"},
            "DECIMAL_TEXT(21,2)",
            str(-(2**63)),
        ),
        (
            {"type": "string", "format": "decimal(5,2)"},
            "123.40",
            {"type": "string", "format": "decimal(8,3)"},
            "DECIMAL_TEXT(8,3)",
            "123.40",
        ),
        ({"type": "string", "format": "date"}, "2026-11-15", {"type": "string"}, "TEXT", "2026-11-15"),
    ],
)
def test_a_widened_type_keeps_the_values(
    path: Path,
    database: sqlite3.Connection,
    narrow: dict[str, Any],
    value: Any,
    wide: dict[str, Any],
    declared: str,
    stored: Any,
) -> None:
    apply(path, things(x=narrow))
    write(path, things(x=narrow), {"id": 1, "x": value})
    database.execute("CREATE INDEX by_document ON things (_document)")
    assert "widen column x" in apply(path, things(x=wide))
    assert ("x", declared, 0) in schema_of(database)
    ((kept,),) = database.execute("SELECT x FROM things").fetchall()
    assert (kept, type(kept)) == (stored, type(stored))
    assert database.execute("SELECT name FROM sqlite_master WHERE name = 'by_document'").fetchall()


def test_an_impossible_change_is_refused_and_changes_nothing(
    path: Path, database: sqlite3.Connection
) -> None:
    apply(path, things(x={"type": "string"}))
    before = database.execute("SELECT sql FROM sqlite_master").fetchall()
    changed = things(x={"type": "integer"})
    with pytest.raises(ConfigError, match="'x' is TEXT in the table and the field is integer"):
        planned(path, changed)
    unasked = Materialization(  # Validate was never asked, or the table has changed since
        "view",
        "sqlite",
        {"path": str(path)},
        (
            Binding(things(), {"table": "fresh"}, ("main", "fresh")),
            Binding(changed, {"table": "things"}, ("main", "things"), (changed.field("x"),)),
        ),
    )
    with pytest.raises(EndpointError, match="'x' is TEXT in the table and the field is integer"):
        CLIENT.apply(Apply(unasked, "2"))
    assert database.execute("SELECT sql FROM sqlite_master").fetchall() == before


def test_a_column_that_an_index_uses_cannot_be_replaced(path: Path, database: sqlite3.Connection) -> None:
    apply(path, things(x={"type": "integer"}))
    database.execute("CREATE INDEX by_x ON things (x)")
    before = schema_of(database)
    with pytest.raises(EndpointError, match="x"):
        apply(path, things(x={"type": "number"}))
    assert schema_of(database) == before


def test_delta_updates_and_full_views_do_not_mix(path: Path) -> None:
    apply(path, things())
    with pytest.raises(ConfigError, match="delta updates repeat keys"):
        planned(path, things(), delta_updates=True)


def test_a_row_that_somebody_deletes_meanwhile_is_not_lost(path: Path, database: sqlite3.Connection) -> None:
    collection = samples.LAST_SEEN
    binding = ValidateBinding(collection, {"table": "things"})
    view = materialization_of(CLIENT, "view", "sqlite", {"path": str(path)}, [binding])
    CLIENT.apply(Apply(view, "1"))
    with Runtime(CLIENT, view) as runtime:
        runtime.transact([[{"id": 1, "place": "here"}]], {"n": 1})

    def delete_between(step: str) -> None:
        if step == "received Flushed":
            database.execute("DELETE FROM things")

    with (
        pytest.raises(EndpointUnavailable, match=r"1 of 1 rows of main.things are gone"),
        Runtime(CLIENT, view, observer=delete_between) as runtime,
    ):
        runtime.transact([[{"id": 1, "place": "there"}]], {"n": 2}, always_load=True)
    with Runtime(CLIENT, view) as runtime:
        assert runtime.checkpoint == {"n": 1}
        runtime.transact([[{"id": 1, "place": "there"}]], {"n": 2}, always_load=True)
    assert database.execute("SELECT id, place FROM things").fetchall() == [(1, "there")]


@pytest.mark.parametrize(
    ("endpoint", "resource", "sentence"),
    [
        ({}, {"table": "t"}, "endpoint: key 'path': Field required"),
        ({"path": "x.db", "pasword": "hunter2"}, {"table": "t"}, "endpoint: key 'pasword'"),
        ({"path": "no/such/folder/x.db"}, {"table": "t"}, "folder of 'no/such/folder/x.db' does not exist"),
        ({"path": ":memory:"}, {"table": "t"}, "endpoint: key 'path': it must be a file"),
        ({"path": "{folder}"}, {"table": "t"}, "endpoint: key 'path': it must be a file"),
        ({"path": "{folder}/x.db"}, {"table": "Headrace_Checkpoints"}, "is the table of checkpoints"),
        ({"path": "{folder}/x.db"}, {}, "resource: key 'table': Field required"),
        ({"path": "{folder}/x.db"}, {"table": ""}, "resource: key 'table'"),
    ],
)
def test_wrong_configuration_is_one_sentence(
    tmp_path: Path, endpoint: dict[str, str], resource: dict[str, str], sentence: str
) -> None:
    endpoint = {key: value.format(folder=tmp_path) for key, value in endpoint.items()}
    with pytest.raises(ConfigError) as error:
        materialization_of(CLIENT, "view", "sqlite", endpoint, [ValidateBinding(things(), resource)])
    assert sentence in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("This is a text, and a long one, so that it cannot be taken for an empty database." * 20)
    with pytest.raises(EndpointError, match="not a database"):
        planned(path, things())


def test_a_nan_is_refused(path: Path) -> None:
    with SqliteDatabase(str(path)) as database:
        database.execute("CREATE TEMPORARY TABLE staged (c0 REAL)")
        database.stage("staged", [pa.array([1.5, None, float("inf")])])
        with pytest.raises(EndpointError, match="NaN"):
            database.stage("staged", [pa.array([1.5, float("nan")])])
        assert database.query("SELECT c0 FROM staged") == [(1.5,), (None,), (float("inf"),)]


def test_validate_and_a_dry_run_change_nothing(path: Path) -> None:
    view = planned(path, things())
    CLIENT.apply(Apply(view, "1", dry_run=True))
    assert not path.exists()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    assert (
        "CREATE TABLE" in CLIENT.apply(Apply(planned(path, things()), "1", dry_run=True)).action_description
    )
    assert path.read_bytes() == before, "also the journal's mode is as it was"


@pytest.mark.parametrize("name", ["headrace_insert_0", "headrace_load_0", "HEADRACE_UPDATE_0"])
def test_a_table_named_as_our_staging_tables_gets_its_rows(
    path: Path, database: sqlite3.Connection, name: str
) -> None:
    collection = things(c0={"type": "string"}, c1={"type": "string"})
    binding = ValidateBinding(collection, {"table": name})
    view = materialization_of(CLIENT, "view", "sqlite", {"path": str(path)}, [binding])
    CLIENT.apply(Apply(view, "1"))
    with Runtime(CLIENT, view) as runtime:
        runtime.transact([[{"id": 1, "c0": "x"}]], {"n": 1}, always_load=True)
    assert database.execute(f"SELECT id, c0 FROM {name}").fetchall() == [(1, "x")]


def test_tables_that_differ_only_in_case_are_one_to_sqlite(path: Path) -> None:
    bindings = [ValidateBinding(things(), {"table": name}) for name in ("T", "t")]
    with pytest.raises(ConfigError, match=r"main\.t is another binding's too"):
        materialization_of(CLIENT, "view", "sqlite", {"path": str(path)}, bindings)


def test_a_column_that_differs_only_in_case_is_the_field(path: Path, database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE things (ID INTEGER PRIMARY KEY, Place TEXT, _document JSON_TEXT)")
    collection = things(place={"type": "string"})
    assert "things" not in apply(path, collection)
    write(path, collection, {"id": 1, "place": "here"})
    assert database.execute("SELECT ID, Place FROM things").fetchall() == [(1, "here")]


def test_large_documents_are_loaded_a_few_at_a_time(path: Path) -> None:
    with SqliteDatabase(str(path)) as database:
        database.execute("CREATE TABLE large (id INTEGER, document TEXT)")
        database.execute(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 10)"
            " INSERT INTO large SELECT i, printf('%.*c', 2000000, 'x') FROM n"
        )
        keys = pa.schema([("id", pa.int64())])
        batches = [len(batch) for batch, _ in database.fetch("SELECT id, document FROM large", keys)]
    assert batches == [3, 3, 3, 1]


@pytest.mark.parametrize(
    "declared", ["k TEXT COLLATE NOCASE PRIMARY KEY", "k TEXT COLLATE RTRIM PRIMARY KEY"]
)
def test_a_key_that_folds_is_refused(path: Path, database: sqlite3.Connection, declared: str) -> None:
    schema = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}
    by_name = Collection("things", ("/k",), schema)
    database.execute(f"CREATE TABLE things ({declared}, _document JSON_TEXT)")
    with pytest.raises(ConfigError, match="the collation of k takes different keys for one"):
        planned(path, by_name)


def test_whose_a_table_is_goes_with_it(path: Path, database: sqlite3.Connection) -> None:
    """Also into a dump, and with another name."""
    collection = things(note={"type": "integer"})
    for lineage in ("first", "second"):
        CLIENT.apply(Apply(planned(path, collection), "1", lineage=lineage))
    with closing(SqliteDatabase(str(path))) as opened:
        table = opened.table(("main", "things"))
    assert table is not None
    assert table.owner == Owner("view", "second", ("id",), Mode.VIEW)
    apply(path, things(note={"type": "number"}, more={"type": "string"}))  # a column is replaced
    with closing(sqlite3.connect(path.with_name("copy.db"))) as copy:
        copy.executescript("\n".join(database.iterdump()))
        copy.execute("ALTER TABLE things RENAME TO others")
        copy.commit()
    with closing(SqliteDatabase(str(path.with_name("copy.db")))) as opened:
        table = opened.table(("main", "others"))
    assert table is not None
    assert table.owner == Owner("view", "second", ("id",), Mode.VIEW)
    database.execute("DROP TABLE things")
    apply(path, collection)
    with closing(SqliteDatabase(str(path))) as opened:
        table = opened.table(("main", "things"))
    assert table is not None
    assert table.owner is None
