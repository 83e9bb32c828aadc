"""Bytes that no peer of ours would send: each is refused with an error that says so, and none is a crash."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import ConfigError, HeadraceError, ProtocolError, SchemaError, TupleError
from headrace.model.checkpoints import to_json
from headrace.protocol import tuples
from headrace.protocol.grpc import specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.transactions import Codec
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Message,
    Open,
    Opened,
    Store,
)
from headrace.protocol.phases import Phases
from tests.examples import examples
from tests.protocol.grpc.wire_samples import OPEN, REQUESTS, RESPONSES, encoded, opened_codec

Request, Response = pb.TransactionRequest, pb.TransactionResponse
PACKED: list[bytes] = tuples.pack([pa.array(["a", "b"]), pa.array(["2026-11-15", "2026-11-16"])]).to_pylist()
KEYS = b"".join(PACKED)
OFFSETS = [0, len(PACKED[0]), len(KEYS)]


def load(offsets: list[int] = OFFSETS, arena: bytes = KEYS, binding: int = 0) -> pb.TransactionRequest:
    return Request(load=Request.Load(binding=binding, arena=arena, packed_keys=pb.Slices(offsets=offsets)))


def loaded(arena: bytes, offsets: list[int], keys: list[int] | None = None) -> pb.TransactionResponse:
    packed = None if keys is None else pb.Slices(offsets=keys)
    return Response(
        loaded=Response.Loaded(arena=arena, docs_json=pb.Slices(offsets=offsets), packed_keys=packed)
    )


def store(**parts: Any) -> pb.TransactionRequest:
    return Request(store=Request.Store(**parts))


REQUEST_FAULTS: dict[str, tuple[pb.TransactionRequest, type[HeadraceError], str]] = {
    "an empty oneof": (Request(), ProtocolError, "a TransactionRequest holds no message"),
    "offsets that go back": (
        load([0, 12, 3]),
        ProtocolError,
        "slice 1 of packed_keys ends before it begins",
    ),
    "offsets beyond the arena": (
        load([0, 2**32 - 1]),
        ProtocolError,
        "slice 0 of packed_keys ends at 4294967295, beyond the arena's",
    ),
    "no arena": (load(arena=b""), ProtocolError, "beyond the arena's 0 bytes"),
    "a packed tuple that is cut off": (load([0, 5]), TupleError, "row 0, byte 3"),
    "a packed tuple with more elements": (load([0, len(KEYS)]), TupleError, "row 0, byte 15"),
    "a packed tuple of another type": (
        load([0, 2], b"\x15\x01"),
        TupleError,
        "row 0, byte 0",
    ),
    "text that is not UTF-8": (load([0, 3], b"\x02\xff\x00"), TupleError, "row 0, byte 0"),
    "a date that is none": (
        load([0, 9], b"\x02a\x00\x022026\x00"),
        TupleError,
        "row 0, byte 3: field 'day' is date32[day], and '2026' is not one",
    ),
    "documents that are not UTF-8": (
        store(
            arena=KEYS + b"\xff",
            packed_keys=pb.Slices(offsets=OFFSETS[:2]),
            docs_json=pb.Slices(offsets=[len(KEYS), len(KEYS) + 1]),
        ),
        ProtocolError,
        "a document of Store is not UTF-8",
    ),
    "a document cut within a character": (
        store(
            arena=KEYS + "\u00e9".encode(),
            packed_keys=pb.Slices(offsets=OFFSETS),
            docs_json=pb.Slices(offsets=[len(KEYS), len(KEYS) + 1, len(KEYS) + 2]),
        ),
        ProtocolError,
        "a document of Store is not UTF-8",
    ),
    "a runtime checkpoint that is not JSON": (
        Request(start_commit=Request.StartCommit(runtime_checkpoint_json="{")),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a runtime checkpoint that is too deep": (
        Request(start_commit=Request.StartCommit(runtime_checkpoint_json='{"a":' * 100_000)),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a runtime checkpoint with a number that is too long": (
        Request(start_commit=Request.StartCommit(runtime_checkpoint_json='{"a":' + "9" * 10_000 + "}")),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a runtime checkpoint that is missing": (
        Request(start_commit=Request.StartCommit()),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a runtime checkpoint that is no object": (
        Request(start_commit=Request.StartCommit(runtime_checkpoint_json="[]")),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object: it is not an object",
    ),
}
RESPONSE_FAULTS: dict[str, tuple[pb.TransactionResponse, type[HeadraceError], str]] = {
    "an empty oneof": (Response(), ProtocolError, "a TransactionResponse holds no message"),
    "documents that are not UTF-8": (
        loaded(b"\xff", [0, 1]),
        ProtocolError,
        "a document of Loaded is not UTF-8",
    ),
    "documents that are not JSON": (loaded(b"{x", [0, 2]), ProtocolError, "a document of Loaded is not JSON"),
    "documents that are not JSON, as deep as it goes": (
        loaded(b"[" * 100_000, [0, 100_000]),
        ProtocolError,
        "a document of Loaded is not JSON",
    ),
    "a document that is no object": (
        loaded(b"[1]", [0, 3]),
        SchemaError,
        "field 'text' is required and is missing",
    ),
    "a document without its key": (
        loaded(b"{}", [0, 2]),
        SchemaError,
        "field 'text' is required and is missing",
    ),
    "a document with another key's type": (
        loaded(b'{"text":1}', [0, 10]),
        SchemaError,
        "field 'text' is string, and 1 is not one",
    ),
    "offsets that go back": (loaded(b"{}{}", [2, 0], [0]), ProtocolError, "slice 0 of docs_json ends before"),
    "keys beyond the arena": (
        loaded(b"{}", [0, 2], [2, 3]),
        ProtocolError,
        "slice 0 of packed_keys ends at 3, beyond the arena's 2 bytes",
    ),
    "a runtime checkpoint that is not JSON": (
        Response(opened=Response.Opened(runtime_checkpoint_json="")),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a connector checkpoint that is no object": (
        Response(started_commit=Response.StartedCommit(connector_checkpoint_json="null")),
        ProtocolError,
        "connector_checkpoint_json is not a JSON object: it is not an object",
    ),
}


@pytest.mark.parametrize(("message", "kind", "text"), REQUEST_FAULTS.values(), ids=REQUEST_FAULTS)
def test_a_faulty_request_is_refused(
    message: pb.TransactionRequest, kind: type[HeadraceError], text: str
) -> None:
    with pytest.raises(kind) as refused:
        opened_codec().decode_request(message)
    assert text in str(refused.value)


@pytest.mark.parametrize(("message", "kind", "text"), RESPONSE_FAULTS.values(), ids=RESPONSE_FAULTS)
def test_a_faulty_response_is_refused(
    message: pb.TransactionResponse, kind: type[HeadraceError], text: str
) -> None:
    with pytest.raises(kind) as refused:
        opened_codec().decode_response(message)
    assert text in str(refused.value)


def test_rows_before_open_are_refused() -> None:
    for message in (Codec().decode_request(load()), Codec().decode_response(loaded(b"", []))):
        with pytest.raises(ProtocolError, match="refused in phase OPEN of transaction 0: expected Open"):
            Phases().observe(message)


@pytest.mark.parametrize("binding", [2, 2**32 - 1])
def test_an_unknown_binding_is_left_to_the_phase_machine(binding: int) -> None:
    codec = opened_codec()
    for message in (
        codec.decode_request(load(binding=binding)),
        codec.decode_request(store(binding=binding)),
        codec.decode_response(Response(loaded=Response.Loaded(binding=binding))),
    ):
        assert isinstance(message, Load | Loaded | Store)
        assert (message.binding, len(message.keys)) == (binding, 0)


def spoiled_open(spoil: Callable[[Any], None]) -> pb.TransactionRequest:
    message = Request.FromString(encoded()["open"].SerializeToString())
    spoil(message.open)
    return message


def set_schema(schema: str) -> Callable[[Any], None]:
    def spoil(message: pb.TransactionRequest.Open) -> None:
        message.materialization.bindings[0].collection.schema_json = schema

    return spoil


OPEN_FAULTS: dict[str, tuple[Callable[[Any], None], type[HeadraceError], str]] = {
    "a key range that ends before it begins": (
        lambda message: setattr(message, "key_begin", 0x80000000),
        ConfigError,
        "key range 0x80000000 to 0x7fffffff is not one",
    ),
    "an endpoint that is not JSON": (
        lambda message: setattr(message.materialization, "endpoint_json", "x"),
        ProtocolError,
        "endpoint_json is not a JSON object",
    ),
    "a collection without a key": (
        lambda message: message.materialization.bindings[0].collection.ClearField("key"),
        SchemaError,
        "collection 'everything' has no key",
    ),
    "a type of field that is none": (
        lambda message: setattr(message.materialization.bindings[0].values[0], "type", "uuid"),
        SchemaError,
        "'uuid' is not a type of a field",
    ),
    "a decimal that is none": (
        lambda message: setattr(message.materialization.bindings[0].values[0], "type", "decimal(99,1)"),
        SchemaError,
        "needs 1 <= precision <= 38",
    ),
    "two bindings for one place": (
        lambda message: message.materialization.bindings.append(message.materialization.bindings[0]),
        ConfigError,
        "two bindings of materialization 'wire' go to main.everything",
    ),
    "a connector checkpoint that is no object": (
        lambda message: setattr(message, "connector_checkpoint_json", "1"),
        ProtocolError,
        "connector_checkpoint_json is not a JSON object",
    ),
    "a schema that is not JSON": (set_schema("{"), ProtocolError, "schema_json is not a JSON object"),
}


@pytest.mark.parametrize(("spoil", "kind", "text"), OPEN_FAULTS.values(), ids=OPEN_FAULTS)
def test_a_faulty_open_is_refused(spoil: Callable[[Any], None], kind: type[HeadraceError], text: str) -> None:
    with pytest.raises(kind) as refused:
        Codec().decode_request(spoiled_open(spoil))
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        "{}",
        '{"properties": 1}',
        '{"properties": {"text": true, "day": false}}',
        '{"properties": {"text": 1}}',
        '{"properties": {"text": {"type": 1}}}',
        '{"properties": {"text": {"type": ["string", 2]}}}',
        '{"properties": {"text": {"type": "text"}}}',
        '{"properties": {"text": {"type": "string"}}, "required": 1}',
        '{"properties": {"text": {"type": "string", "format": "decimal(1"}}, "required": ["text"]}',
    ],
)
def test_a_schema_that_is_no_schema_is_refused_at_the_first_rows(schema: str) -> None:
    codec = Codec()
    codec.decode_request(spoiled_open(set_schema(schema)))
    with pytest.raises(SchemaError):
        codec.decode_request(load())


@pytest.mark.parametrize("kind", [0, 6, 99, -1])
def test_a_constraint_of_an_unknown_kind_is_refused(kind: int) -> None:
    constraint = pb.Constraint(kind=kind)  # type: ignore[arg-type]
    message = pb.ValidateResponse(bindings=[pb.ValidateResponse.Binding(constraints={"id": constraint})])
    with pytest.raises(ProtocolError, match=f"a constraint has kind {kind}"):
        specs.decode_validated(message)


def test_specs_that_are_not_json_are_refused() -> None:
    with pytest.raises(ProtocolError, match="endpoint_schema_json"):
        specs.decode_specified(pb.SpecResponse(endpoint_schema_json="{", resource_schema_json="{}"))
    binding = pb.ValidateRequest.Binding(collection=pb.Collection(key=["/id"], schema_json="{}"))
    with pytest.raises(ProtocolError, match="resource_json"):
        specs.decode_validate(pb.ValidateRequest(endpoint_json="{}", bindings=[binding]))


GOOD_REQUESTS = [encoded()[name].SerializeToString() for name in REQUESTS]
GOOD_RESPONSES = [encoded()[name].SerializeToString() for name in RESPONSES]


@st.composite
def mutated(draw: st.DrawFn, good: list[bytes]) -> bytes:
    raw = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["set", "insert", "delete", "cut"])):
            case "set" if at < len(raw):
                raw[at] = draw(st.integers(0, 255))
            case "insert":
                raw[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del raw[at : at + draw(st.integers(1, 4))]
            case "cut":
                del raw[at:]
    return bytes(raw)


def decode_or_refuse(decode: Callable[[Any], Any], parse: Callable[[bytes], Any], raw: bytes) -> Any:
    """What the bytes say; none where they are refused as they should be."""
    try:
        return decode(parse(raw))
    except (DecodeError, HeadraceError):
        return None


def observe_after(message: Message, *before: Message) -> None:
    """Takes the decoded message through the order of messages, where its rows are looked at."""
    phases = Phases()
    for earlier in before:
        phases.observe(earlier)
    with suppress(HeadraceError):
        phases.observe(message)


TO_LOAD = (OPEN, Opened(), Acknowledge(), Acknowledged())
TO_STORE = (*TO_LOAD, REQUESTS["load"], Flush(), Flushed())


@given(mutated(GOOD_REQUESTS))
@examples(6)
@example(b"")
def test_mutated_requests_are_refused_or_understood(raw: bytes) -> None:
    request = decode_or_refuse(opened_codec().decode_request, Request.FromString, raw)
    if request is not None:
        observe_after(request)
        observe_after(request, *TO_LOAD)
        observe_after(request, *TO_STORE)


@given(mutated(GOOD_RESPONSES))
@examples(4)
@example(b"")
def test_mutated_responses_are_refused_or_understood(raw: bytes) -> None:
    response = decode_or_refuse(opened_codec().decode_response, Response.FromString, raw)
    if response is not None:
        observe_after(response, *TO_LOAD, REQUESTS["load"])


@given(mutated([encoded()["open"].SerializeToString()]), mutated([encoded()["load"].SerializeToString()]))
@examples(3)
def test_rows_after_a_mutated_open_are_refused_or_understood(raw_open: bytes, raw_load: bytes) -> None:
    codec = Codec()
    opened = decode_or_refuse(codec.decode_request, Request.FromString, raw_open)
    loads = decode_or_refuse(codec.decode_request, Request.FromString, raw_load)
    if opened is not None and loads is not None:
        observe_after(loads, *((opened, *TO_LOAD[1:]) if isinstance(opened, Open) else TO_LOAD))


OFFSET_LISTS = st.lists(st.integers(0, 60) | st.integers(0, 2**32 - 1), max_size=5) | st.lists(
    st.integers(0, 60), max_size=5
).map(sorted)
SLICES = st.builds(lambda offsets: pb.Slices(offsets=offsets), OFFSET_LISTS)
ARENAS = st.binary(max_size=60) | st.integers(1, 60).map(lambda size: (KEYS * 4)[:size])


@given(
    st.builds(
        Request.Store,
        binding=st.integers(0, 2),
        arena=ARENAS,
        packed_keys=st.none() | SLICES,
        packed_values=st.none() | SLICES,
        docs_json=st.none() | SLICES,
        exists=st.lists(st.booleans(), max_size=4),
    )
)
@examples(3)
def test_any_arena_and_any_slices_are_refused_or_understood(message: pb.TransactionRequest.Store) -> None:
    request = decode_or_refuse(opened_codec().decode_request, lambda _: Request(store=message), b"")
    if request is not None:
        observe_after(request, *TO_STORE)


JSON_LEAVES = (
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["string", "date", "null", "id"])
)
SCHEMA_VALUES = st.recursive(
    JSON_LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "format", "id"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["properties", "required", "type"]), SCHEMA_VALUES)
    | st.builds(
        lambda types, required: {"properties": {"id": types}, "required": required},
        SCHEMA_VALUES,
        SCHEMA_VALUES,
    )
)
def test_any_json_as_a_schema_is_refused_or_understood(schema: dict[str, Any]) -> None:
    collection = pb.Collection(name="any", key=["/id"], schema_json=to_json(schema))
    binding = pb.ValidateRequest.Binding(resource_json="{}", collection=collection)
    message = pb.ValidateRequest(endpoint_json="{}", bindings=[binding])
    with suppress(HeadraceError):
        assert specs.decode_validate(message).bindings[0].fields
