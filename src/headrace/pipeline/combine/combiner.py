"""Combine: the documents of an epoch that have one key become one document."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.collections import Collection, Field
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine.jvm import candidates_in_jvm, combiner_in_jvm
from headrace.pipeline.combine.plan import plan_of
from headrace.pipeline.combine.workers import combiner_in_workers
from headrace.pipeline.shards.latest import Winner
from headrace.pipeline.sources.frames import MakeFrame

_WINNERS = {Strategy.FIRST_WRITE_WINS: Winner.FIRST, Strategy.LAST_WRITE_WINS: Winner.LAST}


def combiner(collection: Collection, values: Sequence[Field], *, with_document: bool = True) -> MakeFrame:
    """Makes of a frame one row for each key, with what `reduce_all` makes of its documents in their order.

    The frame has `_key`, a struct of the key's parts `k0`, `k1`, ...; `_order`, a struct that is unique and
    says which of two documents was written first; and a column for each property at the root of the schema,
    where null means that the document has no such member and JSON is text.

    The result has `_key`; `_values`, a struct of `values` as `v0`, `v1`, ...; `_document`, JSON text, or null
    if it is not wanted; and `_count`, the number of documents that went into it. OpenedSource it ends with an
    error if a document does not fit its annotations.
    """
    plan = plan_of(collection.schema)
    if plan is None or not _has_columns(collection, values):
        return combiner_in_workers(collection, values, with_document)
    return combiner_in_jvm(collection, plan, values, with_document)


def candidates(collection: Collection, values: Sequence[Field]) -> tuple[Winner, MakeFrame] | None:
    """Which document of a key wins, and what makes a frame of all that might; None if they are reduced.

    The frame is as that of `combiner` without documents, but that it has a row for each document, and
    `_order`: to choose is left to whoever reads it (`LatestPerKey`).
    """
    plan = plan_of(collection.schema)
    if plan is None or plan.root not in _WINNERS or not _has_columns(collection, values):
        return None
    return _WINNERS[plan.root], candidates_in_jvm(collection, plan, values)


def runs_in_jvm(collection: Collection) -> bool:
    """Whether Spark's aggregates can combine the collection; Python workers do it otherwise."""
    return plan_of(collection.schema) is not None


def _has_columns(collection: Collection, values: Sequence[Field]) -> bool:
    known = {field.pointer for field in collection.fields}
    return all(field.pointer in known for field in values)
