"""Every value comes back as it went in."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.postgres.database import PostgresDatabase
from headrace.connectors.postgres.dialect import PostgresDialect
from headrace.model.collections import Collection
from headrace.model.field_types import FieldType, Kind
from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import (
    Acknowledge,
    ConstraintKind,
    Flush,
    Load,
    Loaded,
    Open,
    StartCommit,
    Store,
    Validate,
    ValidateBinding,
)
from headrace.protocol.stream import RuntimeStream
from tests.connectors.postgres.driving import CLIENT, apply, planned, things, write

DIALECT = PostgresDialect()


def decimals(precision: int, scale: int) -> list[Decimal]:
    """Of every length, with zeros at either end: PostgreSQL keeps four digits together."""
    draw = random.Random(precision)
    digits = [draw.randrange(10**length) for length in range(1, precision + 1) for _ in range(20)]
    digits += [10**length for length in range(precision)] + [10**precision - 1, 0]
    exact = Context(prec=precision + 1)
    return [Decimal(sign * value).scaleb(-scale, exact) for value in digits for sign in (1, -1)]


VALUES: list[tuple[FieldType, list[Any]]] = [
    (FieldType(Kind.BOOLEAN), [True, False, None]),
    (FieldType(Kind.INTEGER), [0, -(2**63), 2**63 - 1, None]),
    (FieldType(Kind.NUMBER), [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), None]),
    (
        FieldType(Kind.STRING),
        ["", " ", "\n", "\\N", "\\.", "'\"", "\u00e9 \u2603 \U0001f600", "x" * 10**6, None],
    ),
    # From 4714-11-24 BC, by way of 0001-01-01 BC and 0001-12-31 BC, to beyond the year 9999.
    (FieldType(Kind.DATE), [0, -2440588, -719528, -719163, -719162, 2932896, 2932897, None]),
    (
        FieldType(Kind.DATE_TIME),
        [0, -1, -210866803200000000, -62135596800000001, -62135596800000000, 253402300799999999, None],
    ),
    *(
        (FieldType(Kind.DECIMAL, p, s), [*decimals(p, s), None])
        for p, s in [(38, 9), (38, 0), (38, 38), (5, 4), (1, 0)]
    ),
    (FieldType(Kind.JSON), ['{"b" : 1,"a":\t[1.0, 1e400, "\\u0000"], "b": 2}', "null", "[]", '""', None]),
]


@pytest.mark.parametrize(("field_type", "values"), VALUES, ids=lambda value: str(value)[:20])
def test_values(database: PostgresDatabase, field_type: FieldType, values: list[Any]) -> None:
    database.execute(f"CREATE TEMPORARY TABLE staged (c0 {DIALECT.staged_type(field_type)}, c1 BIGINT)")
    database.execute(f"CREATE TABLE kept (v {DIALECT.column_type(field_type)}, n BIGINT)")
    column = pa.array(values, _plain(field_type)).cast(field_type.arrow)
    database.stage("staged", [column, pa.array(range(len(values)))])
    declared = DIALECT.column_type(field_type)
    database.execute(f"INSERT INTO kept SELECT {DIALECT.stored('c0', declared)}, c1 FROM staged")

    query = f"SELECT {DIALECT.loaded('v', field_type)}, '' FROM (SELECT * FROM kept ORDER BY n) AS ordered"
    batches = [keys for keys, _ in database.fetch(query, pa.schema([("v", field_type.arrow)]))]
    assert pa.Table.from_batches(batches).column("v").combine_chunks().equals(column)


def _plain(field_type: FieldType) -> pa.DataType:
    """What numbers are that stand for dates, which Python does not have before the year 1."""
    plain = {Kind.DATE: pa.int32(), Kind.DATE_TIME: pa.int64()}
    return plain.get(field_type.kind, field_type.arrow)


def test_not_a_number(database: PostgresDatabase) -> None:
    database.execute("CREATE TEMPORARY TABLE staged (c0 DOUBLE PRECISION)")
    database.stage("staged", [pa.array([float("nan"), None])])
    assert [str(value) for (value,) in database.query("SELECT c0 FROM staged")] == ["nan", "None"]


@pytest.mark.parametrize("field_type", [field_type for field_type, _ in VALUES], ids=str)
def test_a_declared_type_is_recognized_in_the_catalog(
    database: PostgresDatabase, field_type: FieldType
) -> None:
    declared = DIALECT.column_type(field_type)
    assert DIALECT.field_type(declared) == field_type
    database.execute(f"CREATE TABLE t (v {declared})")
    table = database.table(("public", "t"))
    assert table is not None
    assert DIALECT.field_type(table.columns["v"].declared) == field_type


@pytest.mark.parametrize(
    "declared",
    [
        "integer",
        "real",
        "numeric",
        "numeric(39,2)",
        "character varying(20)",
        "bytea",
        "timestamp(3) with time zone",
    ],
)
def test_other_types_hold_no_field(declared: str) -> None:
    assert DIALECT.field_type(declared) is None


def transact(stream: RuntimeStream, keys: pa.RecordBatch, documents: pa.StringArray, n: int) -> pa.Table:
    """Loads these keys, and stores these documents under them; gives what was loaded."""
    stream.send(Acknowledge())
    stream.receive()
    stream.send(Load(0, keys))
    stream.send(Flush())
    loaded: list[pa.RecordBatch] = []
    while isinstance(response := stream.receive(), Loaded):
        columns = [*response.keys.columns, response.documents]
        loaded.append(pa.RecordBatch.from_arrays(columns, names=[*response.keys.schema.names, "_document"]))
    exists = pa.array([bool(loaded)] * len(keys))
    values = pa.RecordBatch.from_struct_array(pa.array([{}] * len(keys), pa.struct([])))
    stream.send(Store(0, keys, values, documents, exists))
    stream.send(StartCommit({"n": n}))
    stream.receive()
    return pa.Table.from_batches(loaded) if loaded else None


def test_keys_and_documents_are_loaded_to_the_letter(postgres_url: str) -> None:
    names = {
        "flag": {"type": "boolean"},
        "count": {"type": "integer"},
        "name": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "instant": {"type": "string", "format": "date-time"},
        "amount": {"type": "string", "format": "decimal(38,9)"},
    }
    schema = {"type": "object", "required": list(names), "properties": names}
    collection = Collection("keys", tuple(f"/{name}" for name in names), schema)
    apply(postgres_url, collection)
    materialization = planned(postgres_url, collection)
    keys = pa.RecordBatch.from_arrays(
        [
            pa.array([True, False]),
            pa.array([2**63 - 1, -(2**63)]),
            pa.array(["", "\u00e9 '\"\\ "]),
            pa.array([-719163, 2932896], pa.int32()).cast(pa.date32()),
            pa.array([-62135596800000001, 253402300799999999], pa.timestamp("us", tz="UTC")),
            pa.array([Decimal("-99999999999999999999999999999.999999999"), Decimal("0.000000000")]).cast(
                pa.decimal128(38, 9)
            ),
        ],
        schema=materialization.bindings[0].key_schema,
    )
    documents = pa.array([' {"b" : 1.0, "a":"\\u0000", "b": 1E400} ', '{"z":"\u2603"}'])
    with CLIENT.transactions() as stream:
        stream.send(Open(materialization, "1", FULL_RANGE))
        stream.receive()
        assert transact(stream, keys, documents, 1) is None
        loaded = transact(stream, keys, documents, 2).sort_by("flag")
    expected = pa.Table.from_batches([keys]).append_column("_document", documents).sort_by("flag")
    assert loaded.equals(expected)


def test_documents_are_read_a_few_at_a_time(database: PostgresDatabase) -> None:
    query = "SELECT g, repeat('x', 1000000) FROM generate_series(1::bigint, 30) AS g"
    batches = list(database.fetch(query, pa.schema([("n", pa.int64())])))
    assert [n for keys, _ in batches for n in keys["n"].to_pylist()] == list(range(1, 31))
    assert max(documents.nbytes for _, documents in batches) < 6_000_000


def constraint(url: str, name: str) -> tuple[ConstraintKind, str]:
    binding = ValidateBinding(things(("id",), **{name: {"type": "string"}}), {"table": "things"})
    validated = CLIENT.validate(Validate("view", "postgres", {"url": url}, (binding,)))
    found = validated.bindings[0].constraints[name]
    return found.kind, found.reason


def test_names_of_columns(postgres_url: str) -> None:
    longest = "\u00fc" * 31 + "x"
    assert constraint(postgres_url, longest)[0] is ConstraintKind.RECOMMENDED
    kind, reason = constraint(postgres_url, longest + "y")
    assert kind is ConstraintKind.FORBIDDEN
    assert "has 64 bytes, and a name in PostgreSQL has at most 63" in reason
    kind, reason = constraint(postgres_url, "ctid")
    assert kind is ConstraintKind.FORBIDDEN
    assert "every table" in reason

    collection = things(
        ("id",), **{longest: {"type": "string"}, "ID": {"type": "integer"}, "ctid": {"type": "string"}}
    )
    apply(postgres_url, collection)
    document = {"id": 1, "ID": 2, longest: "x", "ctid": "y"}
    write(postgres_url, collection, document)
    assert write(postgres_url, collection, document, n=2) == 1
    assert apply(postgres_url, collection) == ""
