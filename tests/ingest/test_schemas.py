"""Which schemas a collection can have, and how they widen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.ingest.schemas import (
    Adapter,
    collection_schema,
    describe_fields,
    evolve,
    storable,
    with_place,
)
from headrace.model.collections import Collection


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def adapt(collection: str, rows: Any, kept: pa.Schema) -> Any:
    """Returns rows of an older or narrower schema as rows of the one that is kept."""
    return Adapter(collection, rows.schema, kept)(rows)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (pa.bool_(), pa.bool_()),
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.uint8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.float32(), pa.float32()),
        (pa.float64(), pa.float64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(16), pa.binary(16)),
        (pa.uuid(), pa.binary(16)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.time64("us")),
        (pa.time64("ns"), pa.time64("us")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Oslo"), pa.timestamp("us", "UTC")),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal256(38, 9), pa.decimal128(38, 9)),
        (pa.large_list(pa.int8()), pa.list_(pa.int32())),
        (pa.list_(pa.uint32(), 3), pa.list_(pa.int64())),
        (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int32())),
        (
            pa.struct([pa.field("a", pa.int8(), nullable=False), ("b", pa.list_(pa.date64()))]),
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))]),
        ),
    ],
    ids=str,
)
def test_a_type_is_kept_as_one_that_iceberg_holds(kind: pa.DataType, kept: pa.DataType) -> None:
    assert storable("orders", schema(x=kind)).field("x").type == kept
    assert storable("orders", schema(x=kept)) == schema(x=kept)


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.decimal128(2, 5),
        pa.list_view(pa.int32()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.dense_union([pa.field("a", pa.int32())]),
    ],
    ids=str,
)
@pytest.mark.parametrize("inside", [lambda kind: kind, lambda kind: pa.struct([("deep", pa.list_(kind))])])
def test_a_type_that_iceberg_cannot_hold_is_refused(
    kind: pa.DataType, inside: Callable[[pa.DataType], pa.DataType]
) -> None:
    with pytest.raises(SchemaError, match=r"collection 'orders': column 'x(\.deep\.element)?' ") as refused:
        storable("orders", schema(x=inside(kind)))
    assert str(kind) in str(refused.value) or kind == pa.null()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "has no columns"),
        (["a", "a"], "'a' and 'a' are the same"),
        (["Name", "b", "nAME"], "'Name' and 'nAME' are the same"),
        (["_lsn"], "'_lsn' is reserved"),
        (["_ROW"], "'_ROW' is reserved"),
        (["_file"], "'_file' is reserved"),
        ([""], "has no name"),
    ],
)
def test_names_that_readers_cannot_tell_apart_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        storable("orders", pa.schema([(name, pa.int32()) for name in names]))


def test_names_are_checked_inside_of_columns() -> None:
    with pytest.raises(SchemaError, match=r"'s\.a' and 's\.A' are the same"):
        storable("orders", schema(s=pa.struct([("a", pa.int32()), ("A", pa.int32())])))
    with pytest.raises(SchemaError, match=r"'s\.a' and 's\.a' are the same"):
        storable("orders", pa.schema([("s", pa.struct([("a", pa.int32())])), ("s.a", pa.int32())]))
    storable("orders", schema(s=pa.struct([("_lsn", pa.int32())])))


def test_what_a_library_adds_to_a_schema_is_left_out() -> None:
    noted = pa.schema([pa.field("x", pa.int32(), metadata={"a": "b"})], metadata={"pandas": "..."})
    kept = storable("orders", noted)
    assert kept.metadata is None
    assert kept.field("x").metadata is None


REQUIRED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def test_data_that_fits_changes_nothing() -> None:
    for fitting in (
        REQUIRED,
        pa.schema([("id", pa.int16())]),
        pa.schema([("name", pa.dictionary(pa.int8(), pa.string())), ("id", pa.uint32())]),
        pa.schema([("name", pa.null()), ("id", pa.int64())]),
    ):
        assert evolve("orders", REQUIRED, fitting) is REQUIRED


def test_a_column_without_a_type_has_the_one_that_is_known() -> None:
    untyped = schema(name=pa.null(), id=pa.int8())
    assert storable("orders", untyped, REQUIRED) == schema(name=pa.string(), id=pa.int32())
    with pytest.raises(SchemaError, match="column 'name' has no type"):
        storable("orders", untyped)


def test_a_new_column_comes_last_and_may_be_null() -> None:
    incoming = pa.schema([pa.field("new", pa.int8(), nullable=False), ("id", pa.int64())])
    assert evolve("orders", REQUIRED, incoming) == pa.schema([*REQUIRED, ("new", pa.int32())])


@pytest.mark.parametrize(
    ("current", "incoming", "wider"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), pa.decimal128(9, 2)),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (
            pa.map_(pa.string(), pa.float32()),
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.float64()),
        ),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            pa.struct([("c", pa.bool_()), ("a", pa.int64())]),
            pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())]),
        ),
    ],
    ids=str,
)
def test_a_type_widens(current: pa.DataType, incoming: pa.DataType, wider: pa.DataType) -> None:
    assert evolve("orders", schema(x=current), schema(x=incoming)) == schema(x=wider)


@pytest.mark.parametrize(
    ("current", "incoming"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int32()),
        (pa.int64(), pa.uint64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us")),
        (pa.binary(4), pa.binary(5)),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int32())),
    ],
    ids=str,
)
def test_a_type_that_does_not_fit_is_refused_with_both_types(
    current: pa.DataType, incoming: pa.DataType
) -> None:
    with pytest.raises(SchemaError) as refused:
        evolve("orders", schema(amount=current), schema(amount=incoming))
    arriving = storable("orders", schema(amount=incoming)).field("amount").type
    assert str(refused.value) == (
        f"collection 'orders': column 'amount' is {current} and the write has {arriving}: "
        f"cast it to {current}, or write it as a column of another name"
    )


def test_the_place_of_a_misfit_inside_of_a_column_is_named() -> None:
    current = schema(s=pa.struct([("tags", pa.list_(pa.int32()))]))
    with pytest.raises(SchemaError, match=r"column 's\.tags\.element' is int32 and the write has string"):
        evolve("orders", current, schema(s=pa.struct([("tags", pa.list_(pa.string()))])))


def test_other_misfits() -> None:
    with pytest.raises(SchemaError, match="column 'id' is required and the write does not have it"):
        evolve("orders", REQUIRED, schema(name=pa.string()))
    with pytest.raises(SchemaError, match="'name' and 'NAME' are the same"):
        evolve("orders", REQUIRED, schema(id=pa.int64(), NAME=pa.string()))
    with pytest.raises(SchemaError, match="column 'new' has no type"):
        evolve("orders", REQUIRED, schema(id=pa.int64(), new=pa.null()))


def test_rows_that_follow_the_schema_are_left_alone() -> None:
    batch = pa.record_batch([[1], ["a"]], schema=REQUIRED)
    assert adapt("orders", batch, REQUIRED) is batch
    assert Adapter("orders", REQUIRED, REQUIRED).is_identity


def test_rows_of_a_narrower_schema_are_adapted() -> None:
    wider = pa.schema([*REQUIRED, ("more", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    batch = pa.record_batch({"more": pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])), "id": [1, 2]})
    adapted = adapt("orders", batch, wider)
    assert adapted.schema == wider
    assert adapted.to_pylist() == [
        {"id": 1, "name": None, "more": {"a": 1, "b": None}},
        {"id": 2, "name": None, "more": None},
    ]
    table = pa.Table.from_batches([batch])
    assert adapt("orders", table, wider) == pa.Table.from_batches([adapted])


def test_rows_are_adapted_without_loss() -> None:
    moment = datetime(2026, 11, 16, 12, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "big": pa.array([2**64 - 1], pa.uint64()),
            "moment": pa.array([moment], pa.timestamp("ns", "America/Lima")),
            "word": pa.array(["a"]).dictionary_encode(),
        }
    )
    kept = storable("orders", batch.schema)
    assert adapt("orders", batch, kept).to_pylist() == [
        {"big": Decimal(2**64 - 1), "moment": moment, "word": "a"}
    ]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (pa.array([1_500], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1_500], pa.time64("ns")), pa.time64("us")),
        (pa.array([1_500], pa.date64()), pa.date32()),
        (pa.array([2**62], pa.timestamp("s")), pa.timestamp("us")),
    ],
    ids=str,
)
def test_a_loss_is_refused(values: pa.Array, kept: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'x' is .* and the write has .*: Casting"):
        adapt("orders", pa.record_batch({"x": values}), schema(x=kept))


def test_a_null_in_a_required_column_is_refused() -> None:
    for kind in (pa.int64(), pa.int32()):
        batch = pa.record_batch({"id": pa.array([1, None], kind)})
        with pytest.raises(SchemaError, match="column 'id' is required and the write has a null in it"):
            adapt("orders", batch, REQUIRED)
    lying = pa.RecordBatch.from_arrays([pa.array([None], pa.int64()), pa.array(["a"])], schema=REQUIRED)
    with pytest.raises(SchemaError, match="has a null in it"):
        adapt("orders", lying, REQUIRED)


def test_a_column_is_not_left_out_unless_it_may() -> None:
    batch = pa.record_batch({"a": [1], "b": [2]})
    narrow = schema(a=pa.int64())
    assert adapt("orders", batch, narrow).to_pydict() == {"a": [1]}
    with pytest.raises(SchemaError, match="column 'b' is not in the collection's schema"):
        Adapter("orders", batch.schema, narrow, may_drop=False)


def test_a_collection_with_a_json_schema_has_an_arrow_schema() -> None:
    sales = Collection(
        "sales",
        key=("/customer/id",),
        schema={
            "type": "object",
            "required": ["customer", "paid"],
            "properties": {
                "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
                "paid": {"type": "string", "format": "decimal(9,2)"},
                "at": {"type": "string", "format": "date-time"},
            },
        },
    )
    derived = collection_schema(sales)
    assert describe_fields(with_place(derived)) == [
        {"name": "customer/id", "type": "int64", "nullable": False},
        {"name": "customer", "type": "string", "nullable": False},
        {"name": "paid", "type": "decimal128(9, 2)", "nullable": False},
        {"name": "at", "type": "timestamp[us, tz=UTC]", "nullable": True},
        {"name": "_lsn", "type": "int64", "nullable": False},
        {"name": "_row", "type": "int32", "nullable": False},
    ]


LEAVES: list[Any] = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(9, 2),
        pa.decimal128(12, 2),
        pa.decimal64(9, 3),
    ),
    *(pa.string(), pa.large_string(), pa.binary(), pa.binary(3), pa.dictionary(pa.int8(), pa.string())),
    *(pa.date32(), pa.date64(), pa.time32("ms"), pa.timestamp("s"), pa.timestamp("ns", "UTC")),
]
TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda kinds: pa.struct(kinds.items())
        ),
    ),
    max_leaves=6,
)
SCHEMAS = st.dictionaries(st.sampled_from("uvwxyz"), TYPES, min_size=1).map(
    lambda kinds: pa.schema(kinds.items())
)

INTEGERS = st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()])
# Columns of these names widen to hold each other's types; with a value that all of them can have.
FAMILIES: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "integer": (INTEGERS, 1),
    "float": (st.sampled_from([pa.float16(), pa.float32(), pa.float64()]), 0.5),
    "decimal": (st.integers(3, 38).map(lambda precision: pa.decimal128(precision, 2)), Decimal("1.25")),
    "text": (st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]), "a"),
    "list": (INTEGERS.map(pa.list_), [1, None]),
    "map": (INTEGERS.map(lambda kind: pa.map_(pa.string(), kind)), [("key", 1)]),
    "struct": (
        st.fixed_dictionaries({"a": INTEGERS}, optional={"b": INTEGERS}).map(
            lambda kinds: pa.struct(kinds.items())
        ),
        {"a": 1},
    ),
}
RELATED = (
    st.fixed_dictionaries({}, optional={name: kinds for name, (kinds, _) in FAMILIES.items()})
    .filter(bool)
    .map(lambda kinds: pa.schema(kinds.items()))
)


@given(SCHEMAS)
def test_what_is_storable_stays_so(any_schema: pa.Schema) -> None:
    kept = storable("any", any_schema)
    assert storable("any", kept) == kept
    assert evolve("any", kept, any_schema) is kept


@given(SCHEMAS)
def test_any_rows_are_adapted_to_what_is_storable(any_schema: pa.Schema) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, field.type) for field in any_schema], schema=any_schema)
    adapted = adapt("any", batch, storable("any", any_schema))
    adapted.validate(full=True)
    assert adapted.num_rows == 2


@given(st.lists(RELATED, max_size=4))
def test_whatever_fitted_fits_what_came_later(schemas: list[pa.Schema]) -> None:
    current = schema(id=pa.int64())
    for each in schemas:
        wider = evolve("any", current, each)
        assert wider.names[: len(current.names)] == current.names
        current = wider
    for each in schemas:
        assert evolve("any", current, each) is current


@given(RELATED, RELATED)
def test_rows_of_both_sides_are_adapted(one: pa.Schema, other: pa.Schema) -> None:
    wider = evolve("any", evolve("any", schema(id=pa.int64()), one), other)
    for narrow in (one, other):
        arrays = [pa.array([FAMILIES[field.name][1], None], field.type) for field in narrow]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([1, 2]), *arrays], schema=pa.schema([("id", pa.int64()), *narrow])
        )
        adapted = adapt("any", batch, wider)
        adapted.validate(full=True)
        assert adapted.schema == wider
        for name, values in adapted.to_pydict().items():
            if name == "struct" and name in narrow.names:
                assert values[0]["a"] == 1
            elif name in narrow.names:
                assert values == [FAMILIES[name][1], None]
            else:
                assert values == ([1, 2] if name == "id" else [None, None])


@pytest.mark.parametrize(
    ("current", "incoming", "clash"),
    [
        (
            schema(a=pa.struct([("X", pa.int64())])),
            schema(a=pa.struct([("x", pa.int64())])),
            "columns 'a.X' and 'a.x'",
        ),
        (
            pa.schema([("a.b", pa.int64()), ("a", pa.struct([("c", pa.int64())]))]),
            pa.schema([("a", pa.struct([("c", pa.int64()), ("b", pa.int64())]))]),
            "columns 'a.b' and 'a.b'",
        ),
        (
            schema(a=pa.list_(pa.struct([("X", pa.int64())]))),
            schema(a=pa.list_(pa.struct([("x", pa.int64())]))),
            "columns 'a.element.X' and 'a.element.x'",
        ),
    ],
)
def test_what_would_clash_in_the_result_is_refused(
    current: pa.Schema, incoming: pa.Schema, clash: str
) -> None:
    with pytest.raises(SchemaError, match=clash):
        evolve("orders", storable("orders", current), incoming)


def test_a_schema_that_is_too_large_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"the schema has 8,\d{3},\d{3} bytes and may have 1,048,576"):
        storable("orders", pa.schema([("a" * (8 << 20), pa.int64())]))
    half = pa.schema([(f"{number:060}", pa.int64()) for number in range(5000)])
    other = pa.schema([(f"{number:060}", pa.int64()) for number in range(5000, 10_000)])
    with pytest.raises(SchemaError, match="use fewer columns, or shorter names"):
        evolve("orders", storable("orders", half), other)
