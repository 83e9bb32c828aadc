"""Columns of documents: reduced, and written as JSON again."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.columns import decimal_text
from headrace.model.field_types import FieldType, Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.reduce_plan import Member
from headrace.pipeline.reduce_read import LITERALS, Columns, Inexact, all_true, require

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
    """What `extract` makes of the values."""
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
