"""One of each message, for the tests of the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message as ProtoMessage

from headrace.model.collections import Collection
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Binding, Materialization
from headrace.model.ownership import Mode, Owner, Target
from headrace.protocol.grpc import specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.transactions import Codec
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Delivery,
    Durability,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Opened,
    Request,
    Response,
    RowLimits,
    Spec,
    Specified,
    StartCommit,
    StartedCommit,
    Store,
    Survival,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)

EVERYTHING = Collection(
    "everything",
    ("/text", "/day"),
    {
        "type": "object",
        "required": ["text", "day", "flag"],
        "properties": {
            "text": {"type": "string"},
            "day": {"type": "string", "format": "date"},
            "flag": {"type": "boolean"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
            "amount": {"type": "string", "format": "decimal(18,2)"},
            "more": {"type": "object"},
        },
    },
)
DELTAS = Collection(
    "deltas", ("/id",), {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
)
VALUES = tuple(field for field in EVERYTHING.fields if field not in EVERYTHING.key_fields)
MATERIALIZATION = Materialization(
    "wire",
    "memory",
    {"path": "/data", "options": {"fast": True, "n": 3, "none": None}},
    (
        Binding(EVERYTHING, {"table": "everything"}, ("main", "everything"), VALUES),
        Binding(DELTAS, {"table": "deltas"}, ("main", "deltas"), document=None, delta_updates=True),
    ),
)
OPEN = Open(MATERIALIZATION, "7", KeyRange(0, 0x7FFFFFFF), {"file": "a", "n": 1})

KEYS = pa.RecordBatch.from_pylist(
    [{"text": "a\0b", "day": date(2026, 11, 15)}, {"text": "\u2603", "day": date(1, 1, 1)}],
    schema=MATERIALIZATION.bindings[0].key_schema,
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {
            "flag": True,
            "count": -42,
            "ratio": 1.5,
            "at": datetime(2026, 11, 15, 8, 30, 0, 123456, UTC),
            "amount": Decimal("-12.50"),
            "more": '{"x":[1,null]}',
        },
        {"flag": False, "count": None, "ratio": None, "at": None, "amount": None, "more": None},
    ],
    schema=MATERIALIZATION.bindings[0].value_schema,
)
DOCUMENTS = pa.array(
    ['{"text":"a\\u0000b","day":"2026-11-15"}', '{"text":"\u2603","day":"0001-01-01"}'], pa.string()
)
DELTA_KEYS = pa.record_batch({"id": pa.array([1, -300, 2**63 - 1])})
NO_VALUES = pa.RecordBatch.from_arrays([], names=[])

REQUESTS: dict[str, Request] = {
    "open": OPEN,
    "open_for_the_first_time": Open(MATERIALIZATION, "1", KeyRange(1, 2)),
    "acknowledge": Acknowledge(),
    "load": Load(0, KEYS),
    "flush": Flush(),
    "store": Store(0, KEYS, ROWS, DOCUMENTS, pa.array([True, False])),
    "store_without_documents": Store(1, DELTA_KEYS, NO_VALUES, None, pa.array([False, True, False])),
    "start_commit": StartCommit({"logs": {"a": 17}}),
}
RESPONSES: dict[str, Response] = {
    "opened": Opened({"logs": {"a": 17}}),
    "opened_from_the_beginning": Opened({}),
    "opened_without_checkpoint": Opened(),
    "acknowledged": Acknowledged(),
    "loaded": Loaded(0, KEYS, DOCUMENTS),
    "flushed": Flushed(),
    "started_commit": StartedCommit({"file": None, "n": 2}),
    "started_commit_without_checkpoint": StartedCommit(),
}

CONSTRAINTS = {
    "text": Constraint(ConstraintKind.REQUIRED, "it is part of the key"),
    "flag": Constraint(ConstraintKind.RECOMMENDED, "it is a plain value"),
    "more": Constraint(ConstraintKind.OPTIONAL, "it is nested"),
    "ratio": Constraint(ConstraintKind.FORBIDDEN, "no floats here"),
    "at": Constraint(ConstraintKind.INCOMPATIBLE, "it is text in the table"),
}
Encode = Callable[[Any], ProtoMessage]
Decode = Callable[[Any], object]
# By name: a call's message, how it is encoded and decoded, and its type on the wire.
CALLS: dict[str, tuple[object, Encode, Decode, type[ProtoMessage]]] = {
    "spec": (Spec({"path": "/data"}), specs.encode_spec, specs.decode_spec, pb.SpecRequest),
    "specified": (
        Specified({"type": "object"}, {"required": ["table"]}, "https://example.com/docs"),
        specs.encode_specified,
        specs.decode_specified,
        pb.SpecResponse,
    ),
    "validate": (
        Validate(
            "wire",
            "memory",
            {"path": "/data"},
            (ValidateBinding(EVERYTHING, {"table": "everything"}), ValidateBinding(DELTAS, {})),
        ),
        specs.encode_validate,
        specs.decode_validate,
        pb.ValidateRequest,
    ),
    "validated": (
        Validated(
            (
                ValidatedBinding(CONSTRAINTS, ("main", "everything"), delta_updates=False),
                ValidatedBinding({}, ("main", "deltas"), delta_updates=True),
            )
        ),
        specs.encode_validated,
        specs.decode_validated,
        pb.ValidateResponse,
    ),
    "validated_in_full": (
        Validated(
            (
                ValidatedBinding(
                    CONSTRAINTS,
                    ("main", "everything"),
                    delta_updates=False,
                    delivery=Delivery.TRANSACTIONAL,
                    limits=RowLimits(refuses_nul=True, max_key_bytes=2000),
                    target=Target(True, True, Owner("wire", "lineage", ("id",), Mode.VIEW)),
                ),
            ),
            ({"epoch": 3},),
            Durability(Survival.HOST, "the log of a server"),
        ),
        specs.encode_validated,
        specs.decode_validated,
        pb.ValidateResponse,
    ),
    "apply": (
        Apply(MATERIALIZATION, "7", dry_run=True),
        specs.encode_apply,
        specs.decode_apply,
        pb.ApplyRequest,
    ),
    "applied": (
        Applied("CREATE TABLE everything (...);\n"),
        specs.encode_applied,
        specs.decode_applied,
        pb.ApplyResponse,
    ),
}


def opened_codec() -> Codec:
    """A codec that has seen Open, at either side."""
    codec = Codec()
    for _ in codec.encode_request(OPEN):
        pass
    return codec


def one(messages: Iterator[Any]) -> Any:
    (message,) = messages
    return message


def encoded() -> dict[str, ProtoMessage]:
    """Every message on its way out, by name."""
    codec = opened_codec()
    wire: dict[str, ProtoMessage] = {}
    for name, request in REQUESTS.items():
        wire[name] = one(codec.encode_request(request))
    for name, response in RESPONSES.items():
        wire[name] = one(codec.encode_response(response))
    for name, (message, encode, _, _) in CALLS.items():
        wire[name] = encode(message)
    return wire


def decoders() -> dict[str, tuple[type[ProtoMessage], Decode, object]]:
    """By name: a message's type on the wire, what decodes it there, and what it must become."""
    codec = opened_codec()
    known: dict[str, tuple[type[ProtoMessage], Decode, object]] = {}
    for name, request in REQUESTS.items():
        known[name] = (pb.TransactionRequest, partial(Codec.decode_request, codec), request)
    for name, response in RESPONSES.items():
        known[name] = (pb.TransactionResponse, partial(Codec.decode_response, codec), response)
    for name, (message, _, decode, kind) in CALLS.items():
        known[name] = (kind, decode, message)
    return known
