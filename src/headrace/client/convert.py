"""Converts whatever a user writes to a RecordBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError

ACCEPTED = "a pyarrow RecordBatch or Table, a pandas or polars DataFrame, a dict, or a list of dicts"

# polars uses Arrow's large types throughout; a collection's columns are of the plain ones.
PLAIN_TYPES = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def to_batch(data: object, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Returns all of `data` as one batch. Documents are converted with `schema` as far as they fit it."""
    try:
        return _convert(data, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"cannot write this {type(data).__name__}: {error}") from None


def _convert(data: object, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    if isinstance(data, pa.Table):
        return _single(data)
    if isinstance(data, Mapping):
        return _from_documents([data], schema)
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return pa.RecordBatch.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if module == "polars" and hasattr(data, "to_arrow"):
        if hasattr(data, "columns"):
            return _single(_with_plain_types(data.to_arrow()))
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        if not data:
            raise ConfigError("there is nothing to write: the list is empty")
        if all(isinstance(document, Mapping) for document in data):
            return _from_documents(list(data), schema)
    raise ConfigError(f"cannot write a {type(data).__name__}: give {ACCEPTED}")


def _single(table: pa.Table) -> pa.RecordBatch:
    if not table.num_rows:
        raise ConfigError("there is nothing to write: the table has no rows")
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        raise ConfigError(f"{table.num_rows} rows do not fit into one RecordBatch: write them in several")
    return batches[0]


def _from_documents(documents: list[Mapping[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    # A null or a missing key does not show its type, so the earlier documents' schema is the better guess.
    names = {name: None for document in documents for name in document}
    if not names:
        raise ConfigError("there is nothing to write: a document needs at least one key")
    arrays = {str(name): pa.array([document.get(name) for document in documents]) for name in names}
    return _by_schema(arrays, len(documents), schema) or pa.RecordBatch.from_pydict(arrays)


def _by_schema(arrays: dict[str, pa.Array], rows: int, schema: pa.Schema | None) -> pa.RecordBatch | None:
    """Returns the columns in the types of a schema, if nothing is lost by that."""
    if schema is None or not arrays.keys() <= set(schema.names):
        return None
    if not all(_is_no_more_than(array.type, schema.field(name).type) for name, array in arrays.items()):
        return None
    try:
        columns = [
            arrays[field.name].cast(field.type) if field.name in arrays else pa.nulls(rows, field.type)
            for field in schema
        ]
    except pa.ArrowException:
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_no_more_than(given: pa.DataType, known: pa.DataType) -> bool:
    """Returns whether a type that was inferred from values may actually be the known one."""
    if given == known or pa.types.is_null(given):
        return True
    if pa.types.is_list(given) and pa.types.is_list(known):
        return _is_no_more_than(given.value_type, known.value_type)
    if pa.types.is_decimal(given) and pa.types.is_decimal(known):
        return True  # precision is guessed too, and a cast refuses what does not fit
    return bool(pa.types.is_integer(given) and pa.types.is_floating(known))


def _with_plain_types(table: pa.Table) -> pa.Table:
    fields = [field.with_type(PLAIN_TYPES.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
