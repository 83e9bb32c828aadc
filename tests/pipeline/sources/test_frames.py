"""Frames of documents: rows and JSON become what the collection's schema says, or are named as wrong."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.errors import SchemaError
from headrace.model.collections import Collection
from headrace.model.columns import extract
from headrace.pipeline.sources.frames import frame_of_columns
from headrace.pipeline.sources.json_values import frame_of_json

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "flag": {"type": "boolean"},
    "share": {"type": "number"},
    "name": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "price": {"type": "string", "format": "decimal(8,2)"},
    "big": {"type": "string", "format": "decimal(38,9)"},
    "tags": {"type": "array"},
    "odd `name`.with dots": {"type": "object"},
}
SCHEMA = {"type": "object", "required": ["id"], "properties": PROPERTIES}
ORDERS = Collection("orders", ("/id",), SCHEMA)
ODD = "odd `name`.with dots"

VALUES: dict[str, list[Any]] = {
    "id": [0, 7, -(2**63), 2**63 - 1, 2**63, "7", None, 1.5, True],
    "flag": [True, False, None, "true", 1],
    "share": [0, -0.0, 1.5, 1e300, 12, None, "1", True],
    "name": ["", "a", 'quo"te', "line\nbreak", "\u2603", "x" * 30_000, None, 7, 1.5, True, {"a": "b"}, ["c"]],
    "day": [
        20240229,
        "2024-02-29\n",
        "2024-02-29",
        "2023-02-29",
        "1969-12-31",
        "0001-01-01",
        "2024-2-9",
        "2024-02-29T00:00:00Z",
        None,
    ],
    "at": [
        "2024-05-01T10:00:00+02:00",
        "2024-05-01T10:00:00Z",
        "2024-05-01t10:00:00z",
        "1969-12-31T23:59:59.999999Z",
        "2024-05-01T10:00:00.123456-11:30",
        "2024-05-01T10:00:00",
        "2024-13-01T10:00:00Z",
        "2024-05-01",
        None,
    ],
    "price": [
        "12.50",
        "-0.5",
        "+0.5",
        "0",
        "999999.99",
        "1000000.00",
        "1.125",
        "1e3",
        "abc",
        " 1",
        12.5,
        None,
    ],
    "big": ["0.000000001", "-12345678901234567890123456789.123456789", "1.0000000001", None],
    "tags": [[], [1, "two", None], ["\u2603"], {"a": 1}, None, "[1]", "text"],
    ODD: [{}, {"a": {"b": [1]}}, None],
}


def random_documents(count: int) -> list[dict[str, Any]]:
    """Of each property any value, right or wrong, or none."""
    draw = random.Random(17)
    documents = []
    for number in range(count):
        document = {name: draw.choice(values) for name, values in VALUES.items() if draw.random() < 0.6}
        if draw.random() < 0.7:
            document["id"] = number
        documents.append(document)
    # And each value alone.
    alone: list[dict[str, Any]] = [
        {"id": 1, name: value} for name, values in VALUES.items() for value in values
    ]
    return [*documents, *alone]


def wrong_properties(document: dict[str, Any]) -> set[str]:
    """By the reference; but that what is an object may also be an array, since both are kept as text."""
    wrong = {field.pointer for field in ORDERS.fields if isinstance(document.get(field.name), str)}
    wrong &= {"/tags", f"/{ODD}"}
    for field in ORDERS.fields:
        try:
            extract([field], [document])
        except SchemaError:
            wrong.add(field.pointer)
    return wrong


def test_json_is_read_as_the_reference_reads_it(spark: SparkSession) -> None:
    documents = random_documents(400)
    rows = [(json.dumps(document), 0, offset) for offset, document in enumerate(documents)]
    given = spark.createDataFrame(rows, "value string, partition int, offset long")
    frame = frame_of_json(ORDERS)(given)
    columns = [*(frame[f"`{name.replace('`', '``')}`"] for name in PROPERTIES), frame["_invalid"]]
    found = frame.orderBy("_order").select(*columns, "_key", "_raw", "_is_valid").collect()
    good = 0
    for document, row in zip(documents, found, strict=True):
        *values, invalid, key, raw, is_valid = row
        assert json.loads(raw) == document
        wrong = wrong_properties(document)
        assert bool(invalid) == bool(wrong) == (not is_valid), (document, invalid, wrong)
        assert len(invalid) == len(set(invalid))
        if "json" not in invalid:
            assert {name.removeprefix("schema:") for name in invalid} == wrong
        if invalid or wrong:
            continue
        good += 1
        fields = [field for name in PROPERTIES for field in ORDERS.fields if field.name == name]
        expected = extract(fields, [document]).to_pylist()[0]
        for name, value in zip(PROPERTIES, values, strict=True):
            want = expected[name]
            if isinstance(value, datetime):
                value = value.astimezone(UTC)
            if name in ("tags", ODD) and value is not None:
                value, want = json.loads(value), json.loads(want)
            assert value == want, (name, document)
        assert key["k0"] == document["id"]
    assert good > 50


NO_OBJECTS = [
    "",
    "nothing",
    '{"id": 1} and more',
    '{"id": 1}{"id": 2}',
    '{"id": 1},{"id": 2}',
    "[1]",
    "3",
    "null",
    '{"id": 1',
    '"{}"',
    "{'id': 1}",
    "\x00",
    None,
]


def test_what_is_no_object_is_invalid(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(text, 0, offset) for offset, text in enumerate(NO_OBJECTS)],
        "value string, partition int, offset long",
    )
    found = frame_of_json(ORDERS)(rows).orderBy("_order").select("_is_valid", "_invalid", "_raw").collect()
    for text, row in zip(NO_OBJECTS, found, strict=True):
        assert "json" in row["_invalid"], text
        assert row["_is_valid"] is False, text
        assert row["_raw"] == ("null" if text is None else text)


INEXACT = [
    '{"id": 1, "tags": [1e400]}',
    '{"id": 1, "tags": [-1e400]}',
    '{"id": 1, "tags": [[{"a": 12345e305}]]}',
    '{"id": 1, "tags": [0.1234567890123456789]}',
    '{"id": 1, "tags": [12345678901234567890.5]}',
    '{"id": 1, "tags": [1234567890123456789e0]}',
    '{"id": 1, "tags": [1e-400]}',
    '{"id": 1, "tags": [0.%s1]}' % ("0" * 400),
    '{"id": 1, "tags": [1%s.0]}' % ("0" * 400),
    '{"id": 1, "tags": ["x", 1.5, {"1.2345678901234567890": 1.2345678901234567890}]}',
]
EXACT = [
    '{"id": 1, "tags": [0, -0.0, 1e300, 1.5e-300, 0.1, 0.30000000000000004, 5.6843418860808015e-14]}',
    '{"id": 1, "tags": [4.9E-324, 2.2250738585072014E-308, 1.7976931348623157e308, 0e-400, 0.0e-999]}',
    '{"id": 1, "tags": [123456789012345678901234567890, -9223372036854775809]}',
    '{"id": 1, "tags": [1.000000000000000000000000, 0.5000000000000000000000, 100000000000000000000.0]}',
    '{"id": 1, "tags": ["1e400", "Infinity", "!", {"Infinity": 1, "!": 2, "a,1.2345678901234567890,b": 3}]}',
    '{"id": 1, "tags": ["0.1234567890123456789", "\\"Infinity\\""], "more": [1e400]}',
]


def test_numbers_inside_that_would_become_others_are_invalid(spark: SparkSession) -> None:
    texts = INEXACT + EXACT
    found = frame_of_json(ORDERS)(_json_rows(spark, texts)).orderBy("_order").collect()
    for text, row in zip(texts, found, strict=True):
        assert row["_invalid"] == (["schema:/tags"] if text in INEXACT else []), text
        if text in EXACT:
            assert json.loads(row["tags"]) == json.loads(text)["tags"]
    columns = spark.createDataFrame(
        [(1, json.dumps(json.loads(text)["tags"]), n) for n, text in enumerate(EXACT)]
        + [(1, text.split(": ", 2)[2][:-1], 100 + n) for n, text in enumerate(INEXACT)],
        "id long, tags string, n int",
    )
    read = frame_of_columns(columns.schema, ORDERS, ["n"])(columns).orderBy("_order").collect()
    assert [bool(row["_invalid"]) for row in read] == [False] * len(EXACT) + [True] * len(INEXACT)


HALVES = [r"\ud800", r"\uD800", r"x\udc00", r"\ud800\ud800", r"\udc00\ud800", r"\\\ud800", r"\ud83d\u0041"]
WHOLE = [r"\ud83d\ude00", r"\uD83D\uDE00x", r"\\ud800", r"\u00e9\n", "\U0001f600", "\u2603"]


def test_half_a_character_is_invalid(spark: SparkSession) -> None:
    """As a question mark, keys that differ would be one."""
    texts = [f'{{"id": 1, "name": "{text}"}}' for text in HALVES + WHOLE]
    found = frame_of_json(ORDERS)(_json_rows(spark, texts)).orderBy("_order").collect()
    assert [row["_invalid"] for row in found] == [["encoding"]] * len(HALVES) + [[]] * len(WHOLE)
    assert [row["_raw"] for row in found] == texts
    for text, row in zip(texts[len(HALVES) :], found[len(HALVES) :], strict=True):
        assert row["name"] == json.loads(text)["name"]
    inside = spark.createDataFrame(
        [(1, f'["{text}"]', n) for n, text in enumerate(HALVES + WHOLE)], "id long, tags string, n int"
    )
    read = frame_of_columns(inside.schema, ORDERS, ["n"])(inside).orderBy("_order").collect()
    assert [bool(row["_invalid"]) for row in read] == [True] * len(HALVES) + [False] * len(WHOLE)


NO_UTF8 = [b"x\xff", b"x\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x98"]


def test_bytes_that_are_no_text_are_invalid_and_kept(spark: SparkSession) -> None:
    values = [b'{"id": 1, "name": "%s"}' % text for text in [*NO_UTF8, "\u2603".encode()]]
    found = frame_of_json(ORDERS)(_json_rows(spark, values)).orderBy("_order").collect()
    for value, row in zip(values[:-1], found[:-1], strict=True):
        assert "encoding" in row["_invalid"], value
        assert base64.b64decode(json.loads(row["_raw"])["base64"]) == value
    assert (found[-1]["_invalid"], found[-1]["name"]) == ([], "\u2603")
    columns = spark.createDataFrame([(1, bytearray(text)) for text in NO_UTF8], "id long, bytes binary")
    texts = columns.selectExpr("id", "cast(bytes as string) as name")
    read = (
        frame_of_columns(texts.schema, ORDERS, ["id"], breaks_ties=True)(texts).select("_invalid").collect()
    )
    assert [row["_invalid"] for row in read] == [["encoding"]] * len(NO_UTF8)


def test_a_number_that_json_has_not_is_invalid_inside_too(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 1 AS id, array(named_struct('a', map('x', array(double(x))))) AS tags, n"
        " FROM VALUES ('NaN', 0), ('Infinity', 1), ('-Infinity', 2), ('1.5', 3), (null, 4) AS given(x, n)"
    )
    read = frame_of_columns(rows.schema, ORDERS, ["n"])(rows).orderBy("_order").collect()
    assert [row["_invalid"] for row in read] == [["schema:/tags"]] * 3 + [[]] * 2


def _json_rows(spark: SparkSession, values: Sequence[str | bytes]) -> DataFrame:
    rows = [
        (bytearray(value.encode() if isinstance(value, str) else value), 0, offset)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, "value binary, partition int, offset long")


def test_members_that_the_schema_does_not_name_are_not_read(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [('{"id": 1, "_corrupt": 3, "more": {"a": 1}}', 0, 0)], "value string, partition int, offset long"
    )
    frame = frame_of_json(ORDERS)(rows)
    assert "more" not in frame.columns
    (found,) = frame.select("_invalid").collect()
    assert found["_invalid"] == []


def test_strings_among_other_types_are_refused(spark: SparkSession) -> None:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "any": {}}}
    with pytest.raises(SchemaError, match="property 'any' may be a string or something else"):
        frame_of_json(Collection("orders", ("/id",), schema))


def test_columns(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 1 AS id, true AS flag, float(1.5) AS share, 'a' AS name, date'2024-02-29' AS day,"
        " timestamp'2024-05-01 08:00:00.123456' AS at, decimal(7.5) AS price, bigint(3) AS big,"
        " array(1, 2) AS tags, named_struct('a', 1) AS `odd ``name``.with dots`, 5L AS _lsn, 0 AS _row"
    )
    (found,) = frame_of_columns(rows.schema, ORDERS, ["_lsn", "_row"])(rows).collect()
    assert found["_invalid"] == []
    assert (found["id"], found["share"], found["price"]) == (1, 1.5, Decimal(8))
    assert (found["day"], found["tags"], found[ODD]) == (date(2024, 2, 29), "[1,2]", '{"a":1}')
    assert found["_key"] == Row(k0=1)
    assert found["_order"] == Row(_lsn=5, _row=0)
    raw = json.loads(found["_raw"])
    assert (raw["_lsn"], raw["at"]) == (5, "2024-05-01T08:00:00.123456Z")


def test_times_do_not_depend_on_the_session(spark: SparkSession) -> None:
    """A time without a zone is one of UTC, at the root and inside of a struct."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = spark.sql(
            "SELECT 1 AS id, timestamp_ntz'2024-05-01 08:00:00.123456' AS at, named_struct("
            "'local', timestamp_ntz'2024-05-01 08:00:00.123456', 'instant',"
            " timestamp'2024-05-01 08:00:00.123456Z') AS `odd ``name``.with dots`"
        )
        frame = frame_of_columns(rows.schema, ORDERS, ["id"])(rows)
        (found,) = frame.selectExpr("unix_micros(at) AS at", "`odd ``name``.with dots` AS odd").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    at = datetime(2024, 5, 1, 8, 0, 0, 123456, UTC)
    assert found["at"] == round(at.timestamp() * 1_000_000)
    text = "2024-05-01T08:00:00.123456Z"
    assert json.loads(found["odd"]) == {"local": text, "instant": text}


def test_a_long_string_among_json(spark: SparkSession) -> None:
    """Java's pattern would take the stack for each character of it."""
    text = json.dumps("a" * 100_000 + '\\"' * 10_000)
    rows = spark.createDataFrame([(1, text)], "id long, tags string")
    (found,) = frame_of_columns(rows.schema, ORDERS, ["id"])(rows).select("tags", "_invalid").collect()
    assert (found["tags"], found["_invalid"]) == (text, [])


MERGED = Collection(
    "orders",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "reduce": {"strategy": "merge"},
        "properties": {
            "id": {"type": "integer"},
            "in": {
                "type": "object",
                "reduce": {"strategy": "merge"},
                "properties": {
                    "n": {"type": "integer", "reduce": {"strategy": "sum"}},
                    "last": {"type": "string"},
                    "deep": {
                        "type": "object",
                        "reduce": {"strategy": "merge"},
                        "properties": {"m": {"type": "number", "reduce": {"strategy": "maximize"}}},
                    },
                },
            },
        },
    },
)


def test_what_is_merged_inside_of_an_object_has_to_fit(spark: SparkSession) -> None:
    """Or the epoch would fail where it is combined, and nothing could drop the row."""
    wrong = {
        '{"n": 1, "last": 7, "deep": {"m": 1}, "other": []}': [],
        '{"n": null, "deep": null}': [],
        "null": [],
        "[]": ["schema:/in"],
        '{"n": "1"}': ["schema:/in/n"],
        '{"n": 1, "deep": {"m": true}}': ["schema:/in/deep/m"],
        '{"n": 1.5, "deep": [2]}': ["schema:/in/n", "schema:/in/deep"],
    }
    rows = spark.createDataFrame(list(enumerate([*wrong, None])), "id long, `in` string")
    found = frame_of_columns(rows.schema, MERGED, ["id"])(rows).orderBy("id").collect()
    assert [row["_invalid"] for row in found] == [*wrong.values(), []]
    assert [row["_is_valid"] for row in found] == [*(not names for names in wrong.values()), True]


VALUES_OF_COLUMNS = [
    ("share", "double('NaN')", True),
    ("share", "double('-Infinity')", True),
    ("id", "1.0D", False),
    ("id", "1.5D", True),
    ("id", "cast(null as bigint)", True),
    ("price", "decimal(1.125)", False),
    ("price", "cast('1.125' as decimal(9,3))", True),
    ("price", "10000000", True),
    ("tags", "'[1, 2] and more'", False),
    ("tags", "'[1, 2'", True),
    ("tags", "'null'", False),
    ("tags", "'abc'", True),
    ("day", "'2024-02-30'", True),
]


def test_values_of_columns(spark: SparkSession) -> None:
    """Checks all types in one job, each with its own columns."""
    frames = []
    for number, (column, value, _) in enumerate(VALUES_OF_COLUMNS):
        identity = "" if column == "id" else "1 AS id, "
        rows = spark.sql(f"SELECT {identity}{value} AS {column}, {number} AS number")
        made = frame_of_columns(rows.schema, ORDERS, ["number"])(rows)
        frames.append(made.select("_order", "_invalid", "_is_valid"))
    found = reduce(DataFrame.unionAll, frames).orderBy("_order").collect()
    for (column, value, is_wrong), row in zip(VALUES_OF_COLUMNS, found, strict=True):
        assert row["_invalid"] == ([f"schema:/{column}"] if is_wrong else []), (column, value)
        assert row["_is_valid"] is not is_wrong, (column, value)


def test_a_column_of_another_type_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="column 'name' is int and the schema says string: change one"):
        frame_of_columns(spark.sql("SELECT 1 AS id, 2 AS name").schema, ORDERS, ["id"])


def test_a_key_below_the_root(spark: SparkSession) -> None:
    schema = {
        "type": "object",
        "required": ["who"],
        "properties": {
            "who": {
                "type": "object",
                "required": ["id", "it's"],
                "properties": {"id": {"type": "integer"}, "it's": {"type": "string"}},
            }
        },
    }
    people = Collection("people", ("/who/id", "/who/it's"), schema)
    texts = ['{"id": 7, "it\'s": "me"}', '{"id": 7}', None]
    rows = spark.createDataFrame([(text, place) for place, text in enumerate(texts)], "who string, at int")
    found = frame_of_columns(rows.schema, people, ["at"])(rows).orderBy("_order").collect()
    assert found[0]["_key"] == Row(k0=7, k1="me")
    assert [row["_invalid"] for row in found] == [
        [],
        ["schema:/who/it's"],
        ["schema:/who", "schema:/who/id", "schema:/who/it's"],
    ]
    assert [row["_is_valid"] for row in found] == [True, False, False]
