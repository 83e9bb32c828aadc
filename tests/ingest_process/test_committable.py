"""Whatever the port lets in can be committed: a write that no table takes holds up its collection for ever.

Each of these is valid Arrow, and most of them break something on the way to Parquet or to Iceberg's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.ingest_process.serving import Serving, error_of, read_back, write_all
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes


def nested(depth: int, kind: str) -> pa.Array:
    array = pa.array([1], pa.int32())
    for _ in range(depth):
        match kind:
            case "struct":
                array = pa.StructArray.from_arrays([array], names=["f"])
            case "list":
                array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
            case _:
                array = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), array)
    return array


def times(value: int, unit: str = "us", zone: str | None = None) -> pa.Array:
    return pa.array([value], pa.int64()).cast(pa.timestamp(unit, zone))


def days(value: int) -> pa.Array:
    return pa.array([value], pa.int32()).cast(pa.date32())


TAKEN: dict[str, pa.Array] = {
    "last_moment": times(2**63 - 1),
    "first_moment": times(-(2**63)),
    "last_moment_in_utc": times(2**63 - 1, zone="UTC"),
    "year_10000": times(253_402_300_800_000_000),
    "last_day": days(2**31 - 1),
    "first_day": days(-(2**31)),
    "unknown_zone": times(0, zone="Not/AZone"),
    "impossible_zone": times(0, unit="s", zone="+99:99"),
    "before_the_surrogates": pa.array(["a" * 15 + "\ud7ff" + "z" * 20]),
    "only_before_the_surrogates": pa.array(["\ud7ff" * 40]),
    "last_of_unicode": pa.array(["\U0010ffff" * 40]),
    "zero_characters": pa.array(["\0" * 40]),
    "last_bytes": pa.array([b"\xff" * 40]),
    "no_bytes": pa.array([b""]),
    "wide_bytes": pa.array([b"x" * 100_000], pa.binary(100_000)),
    "most_digits": pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)),
    "all_behind_the_point": pa.array([Decimal("0.1")], pa.decimal128(38, 38)),
    "decimal256": pa.array([Decimal(9)], pa.decimal256(38, 0)),
    "decimal32": pa.array([Decimal(9)], pa.decimal32(5, 0)),
    "largest_unsigned": pa.array([2**64 - 1], pa.uint64()),
    "not_numbers": pa.array([float("nan"), float("inf"), -0.0]),
    "only_nan": pa.array([float("nan")]),
    "half": pa.array([1.5], pa.float16()),
    "structs": nested(60, "struct"),
    "lists": nested(30, "list"),
    "maps": nested(20, "map"),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "dictionaries_in_lists": pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "view": pa.array(["a" * 40], pa.string_view()),
    "uuid": pa.array([b"x" * 16], pa.uuid()),
    "no_json": pa.array(["{"], pa.json_()),
    "bool8": pa.array([1], pa.bool8()),
    "lists_of_nothing": pa.array([[]], pa.list_(pa.int64(), 0)),
    "a_key_twice": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    "keys_with_fields": pa.array([[({"x": 1}, 1)]], pa.map_(pa.struct([("x", pa.int64())]), pa.int64())),
    "only_nulls": pa.nulls(3, pa.timestamp("us")),
}
NAMES = ["a\0b", "a\nb\"'`;--", "\U0001f600", "x" * 10_000, " ", "a.b", "a/b%2f", "list.element"]
REFUSED: dict[str, pa.DataType] = {
    "no_fields": pa.struct([]),
    "no_fields_in_lists": pa.list_(pa.struct([])),
    "no_fields_in_structs": pa.struct([("a", pa.struct([]))]),
    "no_fields_in_maps": pa.map_(pa.string(), pa.struct([])),
    "no_width": pa.binary(0),
}


def batches() -> dict[str, pa.RecordBatch]:
    """One for each collection."""
    several = {
        "twins": pa.record_batch([pa.array([[1, 2]]), pa.array([77])], names=["a", "a.list.element"]),
        "wide": pa.record_batch([pa.array([1])] * 1_000, names=[f"c{number}" for number in range(1_000)]),
        "field_ids": pa.record_batch(
            [pa.array([1]), pa.array([2])],
            schema=pa.schema(
                [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": "1"}) for name in "ab"],
                metadata={"iceberg.schema": "{}"},
            ),
        ),
    }
    by_type = {name: pa.record_batch([array], names=["c"]) for name, array in TAKEN.items()}
    by_name = {
        f"name_{index}": pa.record_batch([pa.array([1])], names=[name]) for index, name in enumerate(NAMES)
    }
    return {**by_type, **by_name, **several}


BATCHES = batches()


@pytest.fixture(scope="module")
def problems(server: Serving) -> Iterator[list[str]]:
    """What the server complains of after everything is written and committed at once."""
    with server.client() as client:
        for name, batch in BATCHES.items():
            write_all(client, name, [batch])
        with suppress(flight.FlightUnavailableError):  # the health says which
            server.action("flush", timeout=DEADLINE_SECONDS)
        yield server.action("health")["problems"]


@pytest.mark.parametrize("name", BATCHES)
def test_what_is_taken_is_committed(name: str, problems: list[str], server: Serving) -> None:
    assert [problem for problem in problems if f"collection {name!r}" in problem] == []
    assert server.action("describe_collection", name=name)["committed_lsn"] > 0
    with server.client() as client:
        ticket = flight.Ticket(json.dumps({"collection": name, "committed_only": True}).encode())
        committed = client.do_get(ticket).read_all()
        assert committed.num_rows == BATCHES[name].num_rows
        _check_equal(read_back(client, name), committed)
    for column, sent in zip(committed.columns, BATCHES[name].columns, strict=False):
        _check_equal(column.combine_chunks(), _storage(sent).cast(column.type))


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def _check_equal(one: Any, other: Any) -> None:
    assert one.equals(other) or str(one) == str(other)  # NaN is not equal to itself


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_file_can_hold_is_refused(name: str, server: Serving) -> None:
    batch = pa.record_batch([pa.nulls(1, REFUSED[name])], names=["c"])
    with server.client() as client, pytest.raises(flight.FlightServerError) as refused:
        write_all(client, name, [batch])
    assert error_of(refused.value)["error"] == "SchemaError"
    assert "column 'c" in error_of(refused.value)["message"]
