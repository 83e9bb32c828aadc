"""Rows that the schema allows and the endpoint cannot take are invalid, and named as such."""

from __future__ import annotations

from pyspark.sql import functions as F

from headrace.model.collections import pointer_tokens
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.pipeline.frames import INVALID, VALID, MakeFrame
from headrace.pipeline.spark_types import escaped, quote
from headrace.protocol.messages import RowLimits


def within_limits(make: MakeFrame, binding: Binding, limits: RowLimits) -> MakeFrame:
    """Marks rows that exceed the limits as invalid, under the name `endpoint:` and the field's pointer."""
    wrong: dict[str, str] = {}
    keys = {
        field.pointer: f"_key.k{index}"
        for index, field in enumerate(binding.keys)
        if field.type.kind is Kind.STRING
    }
    if limits.refuses_nul:
        values = {
            field.pointer: quote(field.name)
            for field in binding.values
            if field.type.kind is Kind.STRING and len(pointer_tokens(field.pointer)) == 1
        }
        wrong |= {pointer: f"contains({sql}, char(0))" for pointer, sql in {**keys, **values}.items()}
    if limits.max_key_bytes and keys:
        length = " + ".join(f"octet_length({sql})" for sql in keys.values())
        first, *_ = keys
        is_long = f"{length} > {limits.max_key_bytes}"
        wrong[first] = f"({wrong[first]} or {is_long})" if first in wrong else is_long
    if not wrong:
        return make
    is_wrong = F.coalesce(F.expr(" or ".join(wrong.values())), F.lit(False))
    names = [f"if({sql}, '{escaped(f'endpoint:{pointer}')}', null)" for pointer, sql in wrong.items()]
    named = F.concat(INVALID, F.expr(f"array_compact(array({', '.join(names)}))"))
    judged = {VALID: F.col(VALID) & ~is_wrong, INVALID: F.when(is_wrong, named).otherwise(F.col(INVALID))}
    return lambda rows: make(rows).withColumns(judged)
