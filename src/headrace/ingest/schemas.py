"""Which Arrow schemas a collection can have, how one becomes a wider one, and batches made to follow it.

A collection keeps the *storable* form of a schema: the types that an Iceberg table of format 2 can hold, and
into which nothing is lost. docs/collections.md has both sets of rules as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from headrace.errors import SchemaError
from headrace.model.collections import Collection
from headrace.wal.batches import LSN, PLACE_FIELDS, ROW

# Besides ours those that Iceberg's readers use: Spark refuses to read a table that has one of them.
_RESERVED = frozenset(
    f"{LSN} {ROW} _file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number".split()
)

_MAX_PRECISION = 38
MOST_SCHEMA_BYTES = 1 << 20
"""Limit of an Arrow schema as an IPC message, and of a JSON schema as text."""

# Any more do not fit, so they are not looked at one by one.
_MOST_COLUMNS = MOST_SCHEMA_BYTES // 32

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def storable(collection: str, schema: pa.Schema, current: pa.Schema | None = None) -> pa.Schema:
    """The schema with which a collection keeps such data; refuses what Iceberg cannot hold.

    A column that has only nulls, and so no type, takes the type that the current schema has for it.
    """
    if len(schema) > _MOST_COLUMNS:
        _refuse_size(collection, schema)
    if current is not None:
        known = _by_name(current)
        schema = pa.schema([_typed_like(field, known) for field in schema])
    if not schema.names:
        raise SchemaError(f"collection {collection!r}: the schema has no columns: write at least one")
    _refuse_names(collection, schema)
    kept = pa.schema(
        pa.field(field.name, _storable_type(collection, field.name, field.type), field.nullable)
        for field in schema
    )
    _refuse_size(collection, kept)
    return kept


def evolve(collection: str, current: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """`current` if such data fits as it is, else the narrowest wider schema that holds both."""
    if current.equals(incoming):
        return current
    arriving = _by_name(storable(collection, incoming, current))
    fields = []
    for field in current:
        if (other := arriving.pop(field.name, None)) is not None:
            fields.append(field.with_type(_join(collection, field.name, field.type, other.type)))
        else:
            if not field.nullable:
                raise SchemaError(
                    f"collection {collection!r}: column {field.name!r} is required "
                    "and the write does not have it: send it in every write"
                )
            fields.append(field)
    fields += [field.with_nullable(True) for field in arriving.values()]
    wider = pa.schema(fields)
    if wider.equals(current):
        return current
    # Checks the result: names that are valid in each of the two may clash when combined, at any depth.
    _refuse_names(collection, wider)
    _refuse_size(collection, wider)
    return wider


def with_place(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns that say where a row comes from."""
    return pa.schema([*schema, *PLACE_FIELDS])


class Adapter:
    """Makes rows of one schema follow a collection's; made once for many batches.

    Columns that the collection does not have are left out, or else refused.
    """

    def __init__(
        self, collection: str, incoming: pa.Schema, schema: pa.Schema, *, may_drop: bool = True
    ) -> None:
        self._collection = collection
        self.schema = schema
        names = set(schema.names)
        for field in incoming:
            if not may_drop and field.name not in names:
                self._refuse(field.name, "is not in the collection's schema, which has to be widened first")
        self._required = [index for index, field in enumerate(schema) if not field.nullable]
        self._sources = [incoming.get_field_index(field.name) for field in schema]
        self.is_identity = incoming.equals(schema)
        """Whether batches come out as they are; their required columns are checked all the same."""

    def __call__(self, rows: Rows) -> Rows:
        """The rows in the collection's schema; refuses nulls where a column is required, and any loss."""
        if self.is_identity:
            adapted = rows
        else:
            columns = [
                self._column(rows, field, source)
                for field, source in zip(self.schema, self._sources, strict=True)
            ]
            adapted = type(rows).from_arrays(columns, schema=self.schema)
        for index in self._required:
            if adapted.column(index).null_count:
                self._refuse(
                    self.schema.field(index).name, "is required and the write has a null in it: fill it"
                )
        return adapted

    def _column(self, rows: Rows, field: pa.Field, source: int) -> Any:
        if source < 0:
            return pa.nulls(len(rows), field.type)
        column = rows.column(source)
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            self._refuse(field.name, f"is {field.type} and the write has {column.type}: {error}")

    def _refuse(self, column: str, reason: str) -> None:
        raise SchemaError(f"collection {self._collection!r}: column {column!r} {reason}")


def describe_fields(schema: pa.Schema) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]


def collection_schema(collection: Collection) -> pa.Schema:
    """The schema of a collection that was declared by a JSON schema."""
    fields = [
        pa.field(field.name, field.type.arrow, nullable=not field.required) for field in collection.fields
    ]
    return storable(collection.name, pa.schema(fields))


def _by_name(schema: pa.Schema) -> dict[str, pa.Field]:
    """A schema makes a list of all its names each time that it is asked for one."""
    return {field.name: field for field in schema}


def _typed_like(field: pa.Field, known: dict[str, pa.Field]) -> pa.Field:
    other = known.get(field.name) if pt.is_null(field.type) else None
    return field if other is None else field.with_type(other.type)


def _paths(fields: Iterable[pa.Field], parents: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        yield (*parents, field.name)
        yield from _inner_paths(field.type, (*parents, field.name))


def _inner_paths(kind: pa.DataType, parents: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if pt.is_struct(kind):
        yield from _paths(kind, parents)
    elif pt.is_map(kind):
        yield from _inner_paths(kind.key_type, (*parents, "key"))
        yield from _inner_paths(kind.item_type, (*parents, "value"))
    elif _is_list(kind):
        yield from _inner_paths(kind.value_type, (*parents, "element"))


def _refuse_name(collection: str, path: tuple[str, ...], seen: dict[str, str]) -> None:
    name = ".".join(path)
    if not path[-1]:
        raise SchemaError(f"collection {collection!r}: a column has no name: name it")
    # SQL engines take column names in any case, and Iceberg writes a nested one with dots.
    folded = name.casefold()
    if folded in seen:
        raise SchemaError(
            f"collection {collection!r}: columns {seen[folded]!r} and {name!r} are the same "
            "to readers that take names in any case: rename one"
        )
    seen[folded] = name
    if folded in _RESERVED:
        raise SchemaError(f"collection {collection!r}: the column name {name!r} is reserved: rename it")


def _refuse_names(collection: str, schema: pa.Schema) -> None:
    seen: dict[str, str] = {}
    for path in _paths(schema, ()):
        _refuse_name(collection, path, seen)


def _refuse_size(collection: str, schema: pa.Schema) -> None:
    """A schema is in every segment that has writes of it, in the log's state, and in each commit."""
    if (size := schema.serialize().size) > MOST_SCHEMA_BYTES:
        raise SchemaError(
            f"collection {collection!r}: the schema has {size:,} bytes and may have {MOST_SCHEMA_BYTES:,}: "
            "use fewer columns, or shorter names"
        )


_WHOLE = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
}


def _storable_type(collection: str, path: str, kind: pa.DataType) -> pa.DataType:
    if kind in _WHOLE:
        return _WHOLE[kind]
    if pt.is_dictionary(kind):
        return _storable_type(collection, path, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _storable_type(collection, path, kind.storage_type)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pt.is_time(kind):
        return pa.time64("us")
    if pt.is_fixed_size_binary(kind) and kind.byte_width:  # of no width, no Parquet file holds it
        return pa.binary(kind.byte_width)
    if pt.is_decimal(kind):
        return _storable_decimal(collection, path, kind)
    # Nulls inside of a value are never refused: only whole columns can be required.
    if pt.is_struct(kind) and kind.num_fields:  # nor one without fields
        return pa.struct(
            pa.field(field.name, _storable_type(collection, f"{path}.{field.name}", field.type))
            for field in kind
        )
    if pt.is_map(kind):
        key = _storable_type(collection, f"{path}.key", kind.key_type)
        return pa.map_(key, _storable_type(collection, f"{path}.value", kind.item_type))
    if _is_list(kind):
        return _list_of(_storable_type(collection, f"{path}.element", kind.value_type))
    if pt.is_null(kind):
        raise SchemaError(
            f"collection {collection!r}: column {path!r} has no type, since it has only nulls: give it a type"
        )
    raise SchemaError(
        f"collection {collection!r}: column {path!r} is {kind}, which no Iceberg table can hold: cast it"
    )


def _storable_decimal(collection: str, path: str, kind: pa.DataType) -> pa.DataType:
    if kind.precision > _MAX_PRECISION or not 0 <= kind.scale <= kind.precision:
        raise SchemaError(
            f"collection {collection!r}: column {path!r} is {kind}: an Iceberg table holds decimals "
            f"of at most {_MAX_PRECISION} digits, and a scale between 0 and that: cast it"
        )
    return pa.decimal128(kind.precision, kind.scale)


def _is_list(kind: pa.DataType) -> bool:
    # Not views: pyarrow 26 casts them to arrays that are not valid.
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _list_of(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def _join(collection: str, path: str, current: pa.DataType, incoming: pa.DataType) -> pa.DataType:
    """The narrowest type that holds both, which are storable."""
    if current == incoming:
        return current
    if pt.is_integer(current) and pt.is_integer(incoming):
        return pa.int64()
    if pt.is_floating(current) and pt.is_floating(incoming):
        return pa.float64()
    if pt.is_decimal(current) and pt.is_decimal(incoming) and current.scale == incoming.scale:
        return pa.decimal128(max(current.precision, incoming.precision), current.scale)
    if pt.is_struct(current) and pt.is_struct(incoming):
        return _join_structs(collection, path, current, incoming)
    if pt.is_list(current) and pt.is_list(incoming):
        return _list_of(_join(collection, f"{path}.element", current.value_type, incoming.value_type))
    if pt.is_map(current) and pt.is_map(incoming):
        key = _join(collection, f"{path}.key", current.key_type, incoming.key_type)
        if key == current.key_type:
            value = _join(collection, f"{path}.value", current.item_type, incoming.item_type)
            return pa.map_(key, value)
    raise SchemaError(
        f"collection {collection!r}: column {path!r} is {current} and the write has {incoming}: "
        f"cast it to {current}, or write it as a column of another name"
    )


def _join_structs(collection: str, path: str, current: pa.DataType, incoming: pa.DataType) -> pa.DataType:
    arriving = {field.name: field for field in incoming}
    fields = []
    for field in current:
        other = arriving.pop(field.name, None)
        kind = (
            field.type if other is None else _join(collection, f"{path}.{field.name}", field.type, other.type)
        )
        fields.append(field.with_type(kind))
    return pa.struct([*fields, *arriving.values()])
