"""JSON documents as Arrow columns, if that loses nothing.

`Inexact` means that a batch holds something that the columns would not tell as its documents do. The caller
then takes the batch to the reference. It is raised too often rather than too seldom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.model.field_types import Kind
from headrace.pipeline.reduce_plan import Member

Columns: TypeAlias = Mapping[str, pa.Array]

# Strings of a format stay strings, since a document keeps the spelling that it came with.
LITERALS = {Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64()}
_PYTHON_TYPES: dict[Kind, set[type]] = {
    Kind.BOOLEAN: {bool},
    Kind.INTEGER: {int},
    Kind.NUMBER: {int, float},
}

_NULL_MEMBER = r":\s*null\b"
# From here on an integer may have no float of its own, and a number of a document may be either.
_EXACT_FLOAT = 2.0**53


class Inexact(Exception):
    """The documents do not fit into columns without a loss."""


def require(exact: bool) -> None:
    if not exact:
        raise Inexact


def all_true(flags: pa.BooleanArray) -> bool:
    """Whether no flag is false; null is none."""
    return bool(pc.all(flags, min_count=0).as_py())


def read_columns(members: Sequence[Member], documents: pa.StringArray) -> Columns:
    """A column for each member, null where a document does not have it; JSON as text."""
    if any(member.type.kind is Kind.JSON for member in members):
        columns = _by_orjson(members, documents)
    else:
        columns = _by_arrow(members, documents)
    for member in members:
        if member.type.kind is Kind.NUMBER:
            # NaN is less than nothing; Arrow reads it, though JSON has none.
            require(all_true(pc.less(pc.abs(columns[member.name]), _EXACT_FLOAT)))
    return columns


def _by_arrow(members: Sequence[Member], documents: pa.StringArray) -> Columns:
    if pc.any(pc.match_substring(documents, "null")).as_py():
        # A column cannot tell a null from a member that is missing.
        require(not pc.any(pc.match_substring_regex(documents, _NULL_MEMBER)).as_py())
    # If each row begins an object, and there are as many objects as rows, each row is one.
    require(documents.null_count == 0 and all_true(pc.starts_with(documents, "{")))
    schema = pa.schema([(member.name, LITERALS.get(member.type.kind, pa.string())) for member in members])
    lines = _lines(documents)
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid as error:
        raise Inexact from error
    require(table.num_rows == len(documents))
    return {member.name: table.column(member.name).combine_chunks() for member in members}


def _lines(documents: pa.StringArray) -> pa.Buffer:
    whole = pa.ListArray.from_arrays(pa.array([0, len(documents)], pa.int32()), documents)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _by_orjson(members: Sequence[Member], documents: pa.StringArray) -> Columns:
    # Arrow's reader takes objects and arrays apart and cannot give their text.
    try:
        parsed = [orjson.loads(text) for text in documents.to_pylist()]
    except orjson.JSONDecodeError as error:
        raise Inexact from error
    require(set(map(type, parsed)) <= {dict})
    columns = {
        member.name: _column(member, [document.get(member.name) for document in parsed]) for member in members
    }
    # Fewer values than members: some of them are null, or not in the schema.
    values = sum(len(column) - column.null_count for column in columns.values())
    require(values == sum(map(len, parsed)))
    return columns


def _column(member: Member, values: list[Any]) -> pa.Array:
    kind = member.type.kind
    if kind is Kind.JSON:
        texts = [None if value is None else orjson.dumps(value).decode() for value in values]
        return pa.array(texts, pa.string())
    require(set(map(type, values)) <= _PYTHON_TYPES.get(kind, {str}) | {type(None)})
    try:
        return pa.array(values, LITERALS.get(kind, pa.string()))
    except (pa.ArrowInvalid, OverflowError) as error:  # an integer that 64 bits, or a float, cannot hold
        raise Inexact from error
