"""What can be written, and as what."""

from __future__ import annotations

from decimal import Decimal
from importlib import import_module
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.client.convert import to_batch
from headrace.errors import ConfigError

pd: Any = import_module("pandas")  # which has no types of its own

PLAIN = pa.schema([("a", pa.int64()), ("b", pa.string())])
ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    "data",
    [
        pa.RecordBatch.from_pylist(ROWS, schema=PLAIN),
        pa.Table.from_pylist(ROWS, schema=PLAIN),
        pa.concat_tables([pa.Table.from_pylist([row], schema=PLAIN) for row in ROWS]),
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 9]),
        pl.DataFrame({"a": [1, 2], "b": ["x", None]}),
        ROWS,
        tuple(ROWS),
    ],
    ids=["batch", "table", "chunks", "pandas", "polars", "dicts", "tuple"],
)
def test_all_become_the_same_batch(data: object) -> None:
    batch = to_batch(data)
    assert batch.to_pylist() == ROWS
    assert batch.schema.equals(PLAIN, check_metadata=True)


def test_one_document_is_one_row() -> None:
    assert to_batch({"a": 1}).to_pylist() == [{"a": 1}]


def test_documents_of_different_keys_have_all_columns() -> None:
    assert to_batch([{"a": 1}, {"b": "x"}]).to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_documents_keep_to_the_schema_that_they_fit() -> None:
    assert to_batch({"b": None}, PLAIN).schema.equals(PLAIN)
    assert to_batch([{"a": 1, "b": "y"}], PLAIN).schema.equals(PLAIN)
    assert to_batch({"a": 1.5}, PLAIN).schema.equals(pa.schema([("a", pa.float64())]))
    assert to_batch({"c": 1}, PLAIN).schema.equals(pa.schema([("c", pa.int64())]))
    assert to_batch({"a": "1"}, PLAIN).schema.equals(pa.schema([("a", pa.string())]))


def test_a_guess_gives_way_to_what_is_known_where_nothing_is_lost() -> None:
    known = pa.schema([("f", pa.float64()), ("l", pa.list_(pa.int64())), ("d", pa.decimal128(6, 2))])
    batch = to_batch({"f": 2, "l": [], "d": Decimal("1.5")}, known)
    assert batch.schema.equals(known)
    assert batch.to_pylist() == [{"f": 2.0, "l": [], "d": Decimal("1.50")}]
    assert not to_batch({"f": 2**60 + 1}, known).schema.equals(known)
    assert not to_batch({"d": Decimal("1.555")}, known).schema.equals(known)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (5, "cannot write a int: give a pyarrow RecordBatch"),
        ("text", "cannot write a str"),
        (None, "cannot write a NoneType"),
        ([1, 2], "cannot write a list"),
        ([], "the list is empty"),
        ({}, "at least one key"),
        (pa.table({"a": pa.array([], pa.int64())}), "no rows"),
        ({"a": object()}, "cannot write this dict"),
        ([{"a": 1}, {"a": "x"}], "cannot write this list"),
        ({"a": 2**70}, "cannot write this dict"),
        (pd.Series([1]), "cannot write a Series"),
        (pl.Series([1]), "cannot write a Series"),
    ],
)
def test_what_cannot_be_written_is_named(data: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        to_batch(data)
