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

from headrace.model.columns import decimal_text
from headrace.model.field_types import FieldType, Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine.plan import Member

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


_ESCAPED = r'["\\\x00-\x1f]'
# Stricter than the formats: what they allow beyond it is rare, and left to the reference.
_DATE = r"(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d\d\d)-\d\d-\d\d"
_SPELLINGS = {
    Kind.DATE: rf"\A{_DATE}\z",
    Kind.DATE_TIME: rf"\A{_DATE}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{1,6}})?Z\z",
    Kind.DECIMAL: r"\A-?\d+(\.\d+)?\z",
}


def reduce_column(member: Member, left: pa.Array, right: pa.Array) -> pa.Array:
    """The member's values in the reduced documents; a value that one side lacks is the other's."""
    match member.strategy:
        case Strategy.FIRST_WRITE_WINS:
            return pc.coalesce(left, right)
        case Strategy.LAST_WRITE_WINS:
            return pc.coalesce(right, left)
        case Strategy.SUM:
            return pc.coalesce(_sum(member, left, right), left, right)
        case Strategy.APPEND:
            return pc.coalesce(_append(left, right), left, right)
    beats = pc.less if member.strategy is Strategy.MINIMIZE else pc.greater
    wins = beats(typed(member.type, right), typed(member.type, left))
    # Of equal ones the first is kept; and the comparison is null where one side is.
    return pc.coalesce(pc.if_else(wins, right, left), left, right)


def _sum(member: Member, left: pa.Array, right: pa.Array) -> pa.Array:
    if member.type.kind is Kind.DECIMAL:
        return decimal_text(_sum_decimals(member.type, left, right))
    try:
        # Floats are finite: `read_columns` lets none come that could add up to infinity.
        return pc.add_checked(left, right)
    except pa.ArrowInvalid as error:  # of integers that leave their 64 bits
        raise Inexact from error


def _sum_decimals(field_type: FieldType, left: pa.Array, right: pa.Array) -> pa.Array:
    # A sum may have a digit more, for which 38 leave no room.
    wide = pa.decimal256(field_type.precision, field_type.scale)
    total = pc.add(typed(field_type, left).cast(wide), typed(field_type, right).cast(wide))
    try:
        return total.cast(field_type.arrow)
    except pa.ArrowInvalid as error:
        raise Inexact from error


def _append(left: pa.Array, right: pa.Array) -> pa.Array:
    both = pc.and_(pc.is_valid(left), pc.is_valid(right))
    for column in (left, right):
        require(all_true(pc.or_(pc.starts_with(column, "["), pc.invert(both))))
    before, after = pc.utf8_slice_codeunits(left, 0, -1), pc.utf8_slice_codeunits(right, 1)
    # Neither text has blanks: `_by_orjson` wrote them.
    return pc.if_else(
        pc.or_(pc.equal(left, "[]"), pc.equal(right, "[]")),
        pc.binary_join_element_wise(before, after, ""),
        pc.binary_join_element_wise(before, after, ","),
    )


def typed(field_type: FieldType, column: pa.Array) -> pa.Array:
    """Casts values as `extract` does."""
    spelling = _SPELLINGS.get(field_type.kind)
    if spelling is None:
        return column
    require(all_true(pc.match_substring_regex(column, spelling)))
    try:
        return column.cast(field_type.arrow)
    except pa.ArrowInvalid as error:  # a 30th of February, or more digits than the type has
        raise Inexact from error


def write_documents(members: Sequence[Member], columns: Columns, rows: int) -> pa.StringArray:
    """The documents' JSON text, without the members that are null."""
    if not members:
        return pa.array(["{}"] * rows, pa.string())
    parts = [_member_text(member, columns[member.name]) for member in members]
    inside = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", inside, "}", "")


def _member_text(member: Member, column: pa.Array) -> pa.Array:
    name = orjson.dumps(member.name).decode() + ":"
    if member.type.kind in LITERALS or member.type.kind is Kind.JSON:
        return pc.binary_join_element_wise(name, column.cast(pa.string()), "")
    return pc.binary_join_element_wise(name + '"', _escaped(column), '"', "")


def _escaped(column: pa.StringArray) -> pa.StringArray:
    to_escape = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), False)
    if not pc.any(to_escape).as_py():
        return column
    texts = [orjson.dumps(text)[1:-1].decode() for text in column.filter(to_escape).to_pylist()]
    return pc.replace_with_mask(column, to_escape, pa.array(texts, pa.string()))
