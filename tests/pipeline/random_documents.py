"""Random schemas and documents for them, and the frames that they make.

From a seed and not drawn value by value: one Spark job should see thousands of values, and Hypothesis would
call that too large an example.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.model.collections import Collection, Field
from headrace.model.columns import extract
from headrace.model.field_types import FieldType, Kind, type_of_schema
from headrace.model.json_order import OrderKey, order_key
from headrace.model.reductions import check_annotations, reduce_all
from headrace.spark.sql import quote, spark_type
from headrace.testing.runtime import keys_of

Document = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STRINGS = (
    "", "a", "b", "null", "true", "0", "ä", "日本", "😀", "\uffff", 'say "hi"', "back\\slash", "{", "}", "{}",
    "}{", ":null", "line\nfeed", "tab\there", "\x00", "\x1f", "\x7f", "\u2028", "  ", "',", "[1]", "a" * 200,
)  # fmt: skip
NUMBERS = (0.0, -0.0, 1.0, 1.5, -2.25, 0.1, 1e-7, 5e-324, 1e16, 1e300, -1.7976931348623157e308, 123456789.125)
INTEGERS = (0, 1, -1, 7, 2**31, 2**53 + 1, -(2**63), 2**63 - 1)
ANY_JSON: tuple[Any, ...] = (
    None, True, 0, -5, 1.5, "x", 'q"uote', [], {}, [1, "a", None], {"a": None}, {"b": {"c": [1]}}, [[], {}],
)  # fmt: skip
NAMES = (
    "dot.ted",
    "back`tick",
    'quo"te',
    "sp ace",
    "sla/sh~",
    "Ünï",
    "c0",
    "k0",
    "o",
    "r1",
    "document",
    "plain",
)

SCHEMAS: tuple[Document, ...] = (
    {"type": "boolean"},
    {"type": ["integer", "null"]},
    {"type": "number"},
    {"type": "string"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "decimal(12,3)"},
    {"type": "string", "format": "decimal(38,20)"},
    {"type": "string", "format": "decimal(5,0)"},
    {"type": "string", "format": "decimal"},
    {"type": "array"},
    {"type": "object"},
    {},
)
SUMMED = ("integer", "number", "decimal(12,3)", "decimal(38,20)", "decimal(5,0)")

# Members that only the reference can reduce.
LOOKED_INTO: tuple[Document, ...] = (
    {"type": "object", "reduce": {"strategy": "maximize", "key": ["/at"]}},
    {"reduce": {"strategy": "minimize"}},
    {"type": "string", "format": "decimal", "reduce": {"strategy": "sum"}},
    {
        "type": "object",
        "reduce": {"strategy": "merge"},
        "properties": {"n": {"type": "integer", "reduce": {"strategy": "sum"}}, "last": {}},
        "additionalProperties": {"reduce": {"strategy": "minimize"}},
    },
    {"type": "array", "reduce": {"strategy": "merge", "key": [""]}},
    {"type": "array", "reduce": {"strategy": "merge"}, "items": {"reduce": {"strategy": "minimize"}}},
    {"type": "object", "reduce": {"strategy": "set", "key": [""]}},
)


# The names of members that the schema of a merged object does not have.
OTHERS = ("x", "y", 'o"ther', "ab", "A", "")


def merged(random: Random, depth: int = 2) -> Document:
    """An object of random members, each reduced by a strategy that Spark's aggregates can do."""
    properties: Document = {}
    for name in random.sample(NAMES, random.randint(0, 5)):
        schema = random.choice(SCHEMAS)
        properties[name] = schema | {"reduce": {"strategy": random.choice(strategies(schema))}}
    if depth > 1:
        properties["in"] = merged(random, depth - 1)
    return {
        "type": random.choice(("object", ["null", "object"])),
        "reduce": {"strategy": "merge"},
        "properties": properties,
        "additionalProperties": random.choice(
            (True, {}, {"type": "string"}, {"reduce": {"strategy": "firstWriteWins"}})
        ),
    }


def strategies(schema: Document) -> list[str]:
    """Those that Spark's aggregates can do for such a property."""
    kind = type_of_schema(schema)[0].kind
    chosen = ["firstWriteWins", "lastWriteWins"]
    if kind is not Kind.JSON:
        chosen += ["minimize", "maximize"]
    if kind in (Kind.INTEGER, Kind.NUMBER) or schema.get("format") in SUMMED:
        chosen.append("sum")
    if schema.get("type") == "array":
        chosen.append("append")
    return chosen


def collection_of(properties: Document, **root: Any) -> Collection:
    """With a key of two parts, one of which is inside of an object."""
    keys = {
        "id": {"type": "integer"},
        "at": {
            "type": "object",
            "required": ["day"],
            "properties": {"day": {"type": "string", "format": "date"}},
        },
    }
    schema = {"type": "object", "required": ["id", "at"], "properties": keys | properties} | root
    check_annotations(schema)
    return Collection("things", ("/id", "/at/day"), schema)


PARTS = 3


def every_strategy(part: int) -> Collection:
    """Each kind of property with each strategy that Spark's aggregates can do, a third of them at a time."""
    pairs = [(schema, strategy) for schema in SCHEMAS for strategy in strategies(schema)]
    properties = {
        f"{NAMES[index % len(NAMES)]}{index}": schema | {"reduce": {"strategy": strategy}}
        for index, (schema, strategy) in enumerate(pairs[part::PARTS])
    }
    return collection_of(properties, reduce={"strategy": "merge"})


def some_strategies(random: Random, root: Document) -> Collection:
    """A few random properties, by the names that are hard on SQL or taken by the code itself."""
    properties: Document = {}
    for name in random.sample(NAMES, random.randint(1, 6)):
        schema = random.choice(SCHEMAS)
        annotation = {"reduce": {"strategy": random.choice(strategies(schema))}}
        properties[name] = schema | (annotation if random.random() < 0.7 else {})
    return collection_of(properties, **root)


def merged_objects(random: Random) -> Collection:
    """Objects in objects, with members that the schema names and with others."""
    properties = {name: merged(random, depth) for name, depth in (("one", 1), ("a`b", 3))}
    return collection_of(properties, reduce={"strategy": "merge"})


def without_json(random: Random) -> Collection:
    """Random properties, none of which is an object or an array, under a key of one part."""
    properties: Document = {"id": {"type": "integer"}}
    for name in random.sample(NAMES, random.randint(1, 6)):
        schema = random.choice(
            [schema for schema in SCHEMAS if type_of_schema(schema)[0].kind is not Kind.JSON]
        )
        properties[name] = schema | {"reduce": {"strategy": random.choice(strategies(schema))}}
    schema = {"type": "object", "required": ["id"], "reduce": {"strategy": "merge"}}
    return Collection("things", ("/id",), schema | {"properties": properties})


def looked_into(root: Document) -> Collection:
    """Every property that only the reference can reduce, and one that anything can."""
    properties = {f"{NAMES[index]} {index}": schema for index, schema in enumerate(LOOKED_INTO)}
    return collection_of(properties | {"plain": {"type": "string"}}, **root)


def documents_of(random: Random, collection: Collection, count: int, keys: int) -> list[Document]:
    """Members are missing at random; nulls are only in JSON, as in a frame."""
    return [_document(random, collection, random.randrange(keys)) for _ in range(count)]


def _document(random: Random, collection: Collection, key: int) -> Document:
    there = random.choice((0.2, 0.8, 1.0))
    document = {
        name: _value(random, schema)
        for name, schema in collection.schema["properties"].items()
        if random.random() < there
    }
    if len(collection.key) == 1:
        return document | {"id": key}
    return document | {"id": key // 2, "at": {"day": f"2024-02-{1 + key % 2:02}"}}


def _value(random: Random, schema: Document) -> Any:
    field_type, _ = type_of_schema(schema)
    annotation = schema.get("reduce", {})
    summed = annotation.get("strategy") == "sum"
    match field_type.kind:
        case Kind.BOOLEAN:
            return random.random() < 0.5
        case Kind.INTEGER:
            return random.randint(-(2**40), 2**40) if summed else random.choice(INTEGERS)
        case Kind.NUMBER:
            # Eighths add up without rounding, in any grouping.
            return random.randint(-999, 999) / 8 if summed else random.choice(NUMBERS)
        case Kind.STRING:
            return random.choice(STRINGS)
        case Kind.DATE:
            return date.fromordinal(random.randint(1, date.max.toordinal())).isoformat()
        case Kind.DATE_TIME:
            return date_time_text(_instant(random))
        case Kind.DECIMAL:
            # Digits to spare, so that a sum of many fits.
            return _decimal(random, field_type, 2 if summed else 0)
    return _json(random, schema, annotation)


def _instant(random: Random) -> datetime:
    if random.random() < 0.2:
        return random.choice((datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1, 1, 1, tzinfo=UTC)))
    return datetime(1, 1, 1, tzinfo=UTC) + timedelta(
        days=random.randrange(date.max.toordinal()), microseconds=random.randrange(86_400_000_000)
    )


def date_time_text(instant: datetime) -> str:
    return instant.strftime("%Y").zfill(4) + instant.strftime("-%m-%dT%H:%M:%S.%fZ")


def _decimal(random: Random, field_type: FieldType, spare: int) -> str:
    digits = random.randint(0, field_type.precision - spare)
    unscaled = str(random.randrange(10**digits)).zfill(field_type.scale + 1)
    sign = random.choice(("", "-")) if unscaled.strip("0") else ""
    point = len(unscaled) - field_type.scale
    return sign + unscaled[:point] + ("." + unscaled[point:] if field_type.scale else "")


def _merged_value(random: Random, schema: Document) -> Any:
    """With nulls, which are values there, and members that the schema does not name, in any order."""
    if random.random() < 0.1:
        return None
    named = [
        (name, None if random.random() < 0.15 else _value(random, below))
        for name, below in schema["properties"].items()
        if random.random() < 0.7
    ]
    others = [(name, random.choice(ANY_JSON)) for name in OTHERS if random.random() < 0.2]
    return dict(random.sample(named + others, len(named) + len(others)))


def _json(random: Random, schema: Document, annotation: Document) -> Any:
    if annotation.get("strategy") == "merge" and "properties" in schema:
        return _merged_value(random, schema)
    if schema.get("type") == "array":
        return [random.choice(ANY_JSON) for _ in range(random.randint(0, 3))]
    if annotation.get("strategy") == "set":
        terms = {term: random.sample(range(6), random.randint(0, 3)) for term in ("add", "remove")}
        return {term: terms[term] for term in terms if random.random() < 0.7}
    if schema.get("type") == "object":
        members = {"at": random.randint(0, 5), "n": random.randint(-9, 9), "last": random.choice(ANY_JSON)}
        others = {name: random.choice(ANY_JSON) for name in ("x", "y")}
        return {name: value for name, value in (members | others).items() if random.random() < 0.6}
    return random.choice(ANY_JSON)


def frame_of(spark: SparkSession, collection: Collection, documents: Sequence[Document]) -> DataFrame:
    """The documents as a frame, in the order that they were written but not stored in it."""
    properties = collection.schema["properties"]
    types = {name: type_of_schema(schema)[0] for name, schema in properties.items()}
    keys = keys_of(collection, documents)
    rows: list[tuple[Any, ...]] = []
    for order, document in enumerate(documents):
        cells = [_cell(types[name], document, name) for name in properties]
        rows.append((keys[order], (order // 3, str(order % 3)), *cells))
    Random(1).shuffle(rows)
    parts = ", ".join(f"k{i}: {spark_type(f.type)}" for i, f in enumerate(collection.key_fields))
    columns = ", ".join(f"{quote(name)} {spark_type(types[name])}" for name in properties)
    ddl = f"_key struct<{parts}>, _order struct<lsn: bigint, row: string>, {columns}"
    return spark.createDataFrame(rows, ddl, verifySchema=False)


def _cell(field_type: FieldType, document: Document, name: str) -> Any:
    if name not in document:
        return None
    value = document[name]
    match field_type.kind:
        case Kind.DATE:
            return date.fromisoformat(value)
        case Kind.DATE_TIME:
            return datetime.fromisoformat(value)
        case Kind.DECIMAL:
            return Decimal(value)
        case Kind.JSON:
            # With blanks wherever JSON allows them.
            return f" {orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()}\n\t"
    return value


def optional(fields: Iterable[Field]) -> list[Field]:
    return [replace(field, required=False) for field in fields]


def by_key(collection: Collection, documents: Iterable[Document]) -> dict[tuple[Any, ...], list[Document]]:
    groups: dict[tuple[Any, ...], list[Document]] = defaultdict(list)
    written = list(documents)
    for key, document in zip(keys_of(collection, written), written, strict=True):
        groups[key].append(document)
    return groups


def expected(collection: Collection, documents: Iterable[Document]) -> dict[tuple[Any, ...], OrderKey]:
    """What the reference makes of each key's documents, as something that compares by value."""
    return {
        key: order_key(reduce_all(collection.schema, group))
        for key, group in by_key(collection, documents).items()
    }


class Combined:
    """The rows of a combined frame, as Python values."""

    def __init__(self, frame: DataFrame) -> None:
        fields = frame.select("_values.*").dtypes
        # PySpark's own datetimes are in local time, and have no first day of the year 1.
        values = [_collectable(F.col(f"_values.{name}"), dtype).alias(name) for name, dtype in fields]
        rows = frame.select(
            "_key", (F.struct(*values) if values else F.array()).alias("_values"), "_document", "_count"
        )
        self.rows = {tuple(row["_key"]): row for row in rows.collect()}
        self.counts = {key: row["_count"] for key, row in self.rows.items()}
        self.texts = {key: row["_document"] for key, row in self.rows.items()}
        self.documents: list[Document] = [orjson.loads(text) for text in self.texts.values()]
        self.by_value = {key: order_key(orjson.loads(text)) for key, text in self.texts.items()}

    def values(self, fields: Sequence[Field]) -> list[list[Any]]:
        rows = [list(row["_values"]) for row in self.rows.values()]
        return [_comparable(fields, row) for row in rows]

    def extracted(self, fields: Sequence[Field]) -> list[list[Any]]:
        """The values as they should be, by the documents."""
        rows = extract(optional(fields), self.documents).to_pylist()
        return [_comparable(fields, list(row.values())) for row in rows]


def _collectable(column: Column, dtype: str) -> Column:
    return F.unix_micros(column) if dtype == "timestamp" else column


def _comparable(fields: Sequence[Field], row: list[Any]) -> list[Any]:
    comparable = []
    for field, value in zip(fields, row, strict=True):
        if value is not None and field.type.kind is Kind.JSON:
            value = order_key(orjson.loads(value))
        elif isinstance(value, datetime):
            value = (value - EPOCH) // timedelta(microseconds=1)
        comparable.append(value)
    return comparable
