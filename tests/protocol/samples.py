"""A materialization and messages of its streams, for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import pyarrow as pa

from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Load, Loaded, Open, Store

STANDARD, DELTA, WITHOUT_DOCUMENT = range(3)

ACCOUNTS = Collection(
    "accounts",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "owner": {"type": "string"}, "open": {"type": "boolean"}},
    },
)
CLICKS = Collection(
    "clicks", ("/id",), {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
)
VISITS = Collection(
    "visits",
    ("/guest", "/day"),
    {
        "type": "object",
        "required": ["guest", "day"],
        "properties": {
            "guest": {"type": "string"},
            "day": {"type": "string", "format": "date"},
            "count": {"type": "integer"},
        },
    },
)

MATERIALIZATION = Materialization(
    "samples",
    "memory",
    {"where": "here"},
    (
        Binding(ACCOUNTS, {}, ("accounts",), (ACCOUNTS.field("owner"), ACCOUNTS.field("open"))),
        Binding(CLICKS, {}, ("clicks",), delta_updates=True),
        Binding(VISITS, {}, ("visits",), (VISITS.field("count"),), document=None),
    ),
)
OPEN = Open(MATERIALIZATION, "1", FULL_RANGE)


def keys(*ids: int, binding: int = STANDARD) -> pa.RecordBatch:
    if binding == WITHOUT_DOCUMENT:
        guests = pa.array([f"guest {number}" for number in ids], pa.string())
        days = pa.array([date(2026, 11, 15) + timedelta(days=number) for number in ids], pa.date32())
        return pa.record_batch({"guest": guests, "day": days})
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def values(*ids: int, binding: int = STANDARD) -> pa.RecordBatch:
    if binding == STANDARD:
        owners = pa.array([f"owner {number}" for number in ids], pa.string())
        return pa.record_batch({"owner": owners, "open": pa.array([True] * len(ids), pa.bool_())})
    if binding == WITHOUT_DOCUMENT:
        return pa.record_batch({"count": pa.array(ids, pa.int64())})
    return pa.RecordBatch.from_arrays([], names=[])


def documents(*ids: int) -> pa.StringArray:
    return pa.array([f'{{"id":{number}}}' for number in ids], pa.string())


def flags(*exists: bool | None) -> pa.BooleanArray:
    return pa.array(exists, pa.bool_())


def load(*ids: int, binding: int = STANDARD) -> Load:
    return Load(binding, keys(*ids, binding=binding))


def loaded(*ids: int, binding: int = STANDARD) -> Loaded:
    return Loaded(binding, keys(*ids, binding=binding), documents(*ids))


def store(*ids: int, binding: int = STANDARD, exists: Sequence[bool] | None = None) -> Store:
    return Store(
        binding,
        keys(*ids, binding=binding),
        values(*ids, binding=binding),
        None if binding == WITHOUT_DOCUMENT else documents(*ids),
        flags(*(exists if exists is not None else [False] * len(ids))),
    )
