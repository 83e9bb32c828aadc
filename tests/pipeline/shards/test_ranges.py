"""Every key has one shard, the same for ever, in Spark and in Python."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.model.collections import Field
from headrace.model.field_types import FieldType, Kind
from headrace.model.key_range import FULL_RANGE
from headrace.pipeline.shards.ranges import SHARD, one_partition_each, shard_of, shard_ranges
from tests.pipeline.shards.key_hash import key_hash

SMALL, LARGE = FieldType(Kind.DECIMAL, 18, 2), FieldType(Kind.DECIMAL, 38, 9)
# In docs/shards.md too. A change of any of these sends the rows of a running view to another shard.
INTEGER, STRING = FieldType(Kind.INTEGER), FieldType(Kind.STRING)
VECTORS: list[tuple[list[FieldType], list[Any], int]] = [
    ([INTEGER], [0], 0x9C67B85D),
    ([INTEGER], [1], 0x99F0149D),
    ([INTEGER], [-1], 0xC8008529),
    ([STRING], [""], 0x087FCD5C),
    ([STRING], ["a"], 0x58877852),
    ([STRING], ["headrace"], 0xFE056D61),
    ([STRING], ["größer"], 0xAF7D0877),
    ([FieldType(Kind.BOOLEAN)], [True], 0xDEA578E3),
    ([FieldType(Kind.DATE)], [date(2024, 2, 29)], 0x26F9F6D3),
    ([FieldType(Kind.DATE_TIME)], [datetime(2024, 2, 29, 12, 30, tzinfo=UTC)], 0xD4EA1570),
    ([SMALL], [Decimal("12.50")], 0xE0B71634),
    ([LARGE], [Decimal("-12.5")], 0x1F095E4F),
    ([STRING, INTEGER], ["eu", 7], 0xE00BE7A4),
]
TYPES: dict[FieldType, DataType] = {
    FieldType(Kind.BOOLEAN): BooleanType(),
    FieldType(Kind.INTEGER): LongType(),
    FieldType(Kind.STRING): StringType(),
    FieldType(Kind.DATE): DateType(),
    FieldType(Kind.DATE_TIME): TimestampType(),
    SMALL: DecimalType(18, 2),
    LARGE: DecimalType(38, 9),
}


def fields_of(types: list[FieldType]) -> list[Field]:
    return [Field(f"k{index}", f"/k{index}", kind, True) for index, kind in enumerate(types)]


def random_key(draw: random.Random) -> list[Any]:
    text = "".join(draw.choice("ab\x00\x7fé€𝄞 ") for _ in range(draw.randrange(12)))
    return [
        draw.random() < 0.5,
        draw.choice([0, 1, -1, 2**63 - 1, -(2**63), draw.randrange(-(2**63), 2**63)]),
        text,
        date(1970, 1, 1) + timedelta(days=draw.randrange(-100_000, 100_000)),
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(-(10**16), 10**16)),
        Decimal(draw.randrange(-(10**18) + 1, 10**18)).scaleb(-2),
        Decimal(draw.choice([0, 127, 128, -128, -129, draw.randrange(-(10**37), 10**37)])).scaleb(-9),
    ]


def test_spark_hashes_keys_as_documented(spark: SparkSession) -> None:
    draw = random.Random(5)
    types = list(TYPES)
    keys = [random_key(draw) for _ in range(500)]
    schema = StructType([StructField(f"k{index}", TYPES[kind]) for index, kind in enumerate(types)])
    rows = spark.createDataFrame([Row(*key) for key in keys], schema)
    columns = [F.col(name) for name in rows.columns]
    each = [F.hash(column).cast("bigint").bitwiseAND(F.lit(0xFFFFFFFF)) for column in columns]
    whole = F.hash(*columns).cast("bigint").bitwiseAND(F.lit(0xFFFFFFFF))
    for key, hashed in zip(keys, rows.select(*each, whole).collect(), strict=True):
        fields = fields_of(types)
        alone = [key_hash([field], [value]) for field, value in zip(fields, key, strict=True)]
        assert list(hashed) == [*alone, key_hash(fields, key)], key


@pytest.mark.parametrize(("types", "key", "expected"), VECTORS)
def test_vectors(types: list[FieldType], key: list[Any], expected: int) -> None:
    assert key_hash(fields_of(types), key) == expected


@given(st.integers(1, 5000))
def test_ranges_cover_every_hash_once(count: int) -> None:
    ranges = shard_ranges(count)
    assert len(ranges) == count
    assert not FULL_RANGE.without(ranges)
    assert all(after.begin == before.end + 1 for before, after in itertools.pairwise(ranges))
    sizes = {part.end - part.begin for part in ranges}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "count", [1, pytest.param(2, marks=pytest.mark.full), 3, pytest.param(7, marks=pytest.mark.full), 16]
)
def test_each_shard_has_a_partition_of_its_own(spark: SparkSession, count: int) -> None:
    rows = spark.range(2000).withColumn(SHARD, F.expr(shard_of(["id"], count)))

    def where(batches: Any) -> Any:
        import pyarrow as pa

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            here = pa.array([context.partitionId()] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([batch["id"], batch[SHARD], here], ["id", SHARD, "here"])

    placed = one_partition_each(rows, count).mapInArrow(where, f"id long, {SHARD} int, here int").collect()
    assert len(placed) == 2000
    assert {row["here"] for row in placed} == set(range(count))
    ranges = shard_ranges(count)
    fields = fields_of([FieldType(Kind.INTEGER)])
    for row in placed:
        assert row["here"] == row[SHARD]
        hashed = key_hash(fields, [row["id"]])
        assert ranges[row[SHARD]].begin <= hashed <= ranges[row[SHARD]].end
