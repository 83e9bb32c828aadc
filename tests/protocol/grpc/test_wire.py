"""Messages to protobuf and back: what goes in comes out, and the bytes in between stay what they are."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.model.collections import Collection, Field
from headrace.model.field_types import FieldType, Kind
from headrace.model.key_range import MAX_KEY_HASH, KeyRange
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.grpc import rows, specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.methods import MAX_MESSAGE_BYTES
from headrace.protocol.grpc.transactions import Codec
from headrace.protocol.messages import (
    MAX_DOCUMENT_BYTES,
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Load,
    Loaded,
    Open,
    Opened,
    Request,
    Response,
    Spec,
    Specified,
    StartCommit,
    StartedCommit,
    Store,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)
from tests.protocol.grpc.wire_samples import (
    CALLS,
    DELTA_KEYS,
    DOCUMENTS,
    KEYS,
    MATERIALIZATION,
    NO_VALUES,
    OPEN,
    REQUESTS,
    RESPONSES,
    ROWS,
    decoders,
    encoded,
    one,
    opened_codec,
)

GOLDEN = Path(__file__).parent / "golden"
NAMES = [*REQUESTS, *RESPONSES, *CALLS]


def on_the_wire(message: ProtoMessage) -> bytes:
    return message.SerializeToString(deterministic=True)


def test_there_is_a_golden_file_for_each_message_and_no_other() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        for name, message in encoded().items():
            text = "\n".join(textwrap.wrap(on_the_wire(message).hex(), 96))
            (GOLDEN / f"{name}.hex").write_text(text + "\n")
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(NAMES)
    kinds = {type(message) for message in (*REQUESTS.values(), *RESPONSES.values())}
    assert kinds == {*Request.__args__, *Response.__args__}


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_on_the_wire_are_the_golden_ones(name: str) -> None:
    """A change here breaks peers of another version. Where it is meant, run this with UPDATE_GOLDEN=1."""
    assert on_the_wire(encoded()[name]).hex() == golden(name).hex()


@pytest.mark.parametrize("name", NAMES)
def test_golden_bytes_are_still_understood(name: str) -> None:
    kind, decode, message = decoders()[name]
    assert decode(kind.FromString(golden(name))) == message


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def through_the_wire(codec: Codec, message: Any) -> Any:
    if isinstance(message, Request):
        raw = one(codec.encode_request(message)).SerializeToString()
        return codec.decode_request(pb.TransactionRequest.FromString(raw))
    raw = one(codec.encode_response(message)).SerializeToString()
    return codec.decode_response(pb.TransactionResponse.FromString(raw))


@pytest.mark.parametrize("message", [*REQUESTS.values(), *RESPONSES.values()], ids=[*REQUESTS, *RESPONSES])
def test_a_message_of_a_stream_comes_back_as_it_was(message: Request | Response) -> None:
    assert through_the_wire(opened_codec(), message) == message


def test_a_decoder_learns_the_bindings_from_the_first_open() -> None:
    codec = Codec()
    codec.decode_request(one(Codec().encode_request(OPEN)))
    other = Open(Materialization("other", "memory", {}, ()), "1", KeyRange(0, 1))
    codec.decode_request(one(Codec().encode_request(other)))
    assert codec.decode_request(one(opened_codec().encode_request(Load(0, KEYS)))) == Load(0, KEYS)


def test_a_checkpoint_that_is_absent_is_not_an_empty_one() -> None:
    codec = opened_codec()
    for absent, empty in [(Opened(), Opened({})), (StartedCommit(), StartedCommit({}))]:
        assert through_the_wire(codec, absent) == absent != empty == through_the_wire(codec, empty)
    empty_open = Open(MATERIALIZATION, "1", KeyRange(0, 1), {})
    assert through_the_wire(codec, empty_open) == empty_open


NAME = st.text(max_size=6)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAME,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=5,
)
JSON_OBJECTS = st.dictionaries(NAME, JSON_VALUES, max_size=3)
FIELD_TYPES = st.sampled_from([kind for kind in Kind if kind is not Kind.DECIMAL]).map(
    FieldType
) | st.integers(1, 38).flatmap(
    lambda precision: st.builds(
        FieldType, st.just(Kind.DECIMAL), st.just(precision), st.integers(0, precision)
    )
)
FIELDS = st.builds(Field, NAME, NAME, FIELD_TYPES, st.booleans())
KEY_SCHEMA = {"required": ["id"], "properties": {"id": {"type": "integer"}}}
COLLECTIONS = st.builds(
    Collection, NAME, st.just(("/id",)), JSON_OBJECTS.map(lambda schema: {**schema, **KEY_SCHEMA})
)
BINDINGS = st.builds(
    Binding,
    COLLECTIONS,
    JSON_OBJECTS,
    st.lists(NAME, min_size=1, max_size=2).map(tuple),
    st.lists(FIELDS, max_size=3).map(tuple),
    st.none() | NAME,
    st.booleans(),
)
MATERIALIZATIONS = st.builds(
    Materialization,
    NAME,
    NAME,
    JSON_OBJECTS,
    st.lists(BINDINGS, max_size=2, unique_by=lambda binding: binding.resource_path).map(tuple),
)
KEY_RANGES = st.lists(st.integers(0, MAX_KEY_HASH), min_size=2, max_size=2).map(
    lambda ends: KeyRange(min(ends), max(ends))
)


@given(st.builds(Open, MATERIALIZATIONS, NAME, KEY_RANGES, st.none() | JSON_OBJECTS))
def test_any_open_comes_back_as_it_was(message: Open) -> None:
    assert through_the_wire(Codec(), message) == message


@given(JSON_OBJECTS)
def test_any_checkpoint_comes_back_as_it_was(checkpoint: dict[str, Any]) -> None:
    codec = Codec()
    for message in (StartCommit(checkpoint), Opened(checkpoint), StartedCommit(checkpoint)):
        assert through_the_wire(codec, message) == message


@given(st.builds(Spec, JSON_OBJECTS), st.builds(Specified, JSON_OBJECTS, JSON_OBJECTS, NAME))
def test_any_spec_comes_back_as_it_was(request: Spec, response: Specified) -> None:
    assert specs.decode_spec(again(specs.encode_spec(request))) == request
    assert specs.decode_specified(again(specs.encode_specified(response))) == response


VALIDATED_BINDINGS = st.builds(
    ValidatedBinding,
    st.dictionaries(NAME, st.builds(Constraint, st.sampled_from(ConstraintKind), NAME), max_size=5),
    st.lists(NAME, max_size=3).map(tuple),
    st.booleans(),
)


@given(
    st.builds(
        Validate,
        NAME,
        NAME,
        JSON_OBJECTS,
        st.lists(st.builds(ValidateBinding, COLLECTIONS, JSON_OBJECTS), max_size=2).map(tuple),
    ),
    st.lists(VALIDATED_BINDINGS, max_size=2).map(tuple).map(Validated),
)
def test_any_validation_comes_back_as_it_was(request: Validate, response: Validated) -> None:
    assert specs.decode_validate(again(specs.encode_validate(request))) == request
    assert specs.decode_validated(again(specs.encode_validated(response))) == response


@given(st.builds(Apply, MATERIALIZATIONS, NAME, st.booleans()), st.builds(Applied, NAME))
def test_any_apply_comes_back_as_it_was(request: Apply, response: Applied) -> None:
    assert specs.decode_apply(again(specs.encode_apply(request))) == request
    assert specs.decode_applied(again(specs.encode_applied(response))) == response


def again(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


def test_fields_are_sent_to_connectors_that_do_not_read_schemas() -> None:
    message = specs.encode_validate(
        Validate("it", "memory", {}, (ValidateBinding(MATERIALIZATION.bindings[0].collection, {}),))
    )
    sent = {field.name: (field.pointer, field.type, field.required) for field in message.bindings[0].fields}
    assert sent["text"] == ("/text", "string", True)
    assert sent["amount"] == ("/amount", "decimal(18,2)", False)
    assert [field.name for field in message.bindings[0].fields][:2] == ["text", "day"]
    binding = specs.encode_materialization(MATERIALIZATION).bindings[0]
    assert [field.name for field in binding.keys] == ["text", "day"]
    assert binding.document == "_document"
    assert not specs.encode_materialization(MATERIALIZATION).bindings[1].HasField("document")


def test_nothing_known_of_an_endpoint_is_an_empty_configuration() -> None:
    assert specs.decode_spec(pb.SpecRequest()) == Spec({})


ROW_COUNTS = st.integers(0, 12)
CHUNK_SIZES = st.integers(1, 400)


def numbered_keys(count: int) -> pa.RecordBatch:
    texts = [f"key {number:02}" * (1 + number % 3) for number in range(count)]
    return pa.record_batch(
        [pa.array(texts, pa.string()), KEYS["day"].take(pa.array([0] * count, pa.int64()))],
        schema=KEYS.schema,
    )


@given(ROW_COUNTS, CHUNK_SIZES)
def test_chunks_join_to_what_was_cut(count: int, size: int) -> None:
    keys = numbered_keys(count)
    values = ROWS.take(pa.array([number % 2 for number in range(count)], pa.int64()))
    documents = pa.array(["x" * (number * 7) for number in range(count)], pa.string())
    exists = pa.array([number % 3 == 0 for number in range(count)], pa.bool_())
    codec = opened_codec()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "CHUNK_BYTES", size)
        wire_loads = list(codec.encode_request(Load(0, keys)))
        wire_stores = list(codec.encode_request(Store(0, keys, values, documents, exists)))
        wire_loaded = list(codec.encode_response(Loaded(0, keys, documents)))
    for message in (*wire_loads, *wire_stores, *wire_loaded):
        body = getattr(message, message.WhichOneof("message"))
        # Over the size only where a single row is.
        assert len(body.arena) <= size or len(body.packed_keys.offsets) == 2
    loads: list[Any] = [codec.decode_request(message) for message in wire_loads]
    stores: list[Any] = [codec.decode_request(message) for message in wire_stores]
    loaded: list[Any] = [codec.decode_response(message) for message in wire_loaded]
    for cut in (loads, stores, loaded):
        assert joined([message.keys for message in cut], keys.schema) == keys.to_pylist()
        assert all(len(message.keys) for message in cut)
    assert joined([message.values for message in stores], values.schema) == values.to_pylist()
    for cut in (stores, loaded):
        assert [text for message in cut for text in message.documents.to_pylist()] == documents.to_pylist()
    assert [flag for message in stores for flag in message.exists.to_pylist()] == exists.to_pylist()


def joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=schema).to_pylist()
    return found


def test_a_message_of_many_megabytes_is_cut_at_a_few() -> None:
    count = 2000
    keys = numbered_keys(count)
    documents = pa.array(["x" * 5_000] * count)
    messages = list(opened_codec().encode_response(Loaded(0, keys, documents)))
    assert 5 <= len(messages) <= 7
    assert max(message.ByteSize() for message in messages) < rows.CHUNK_BYTES + 100_000


def test_a_slice_of_a_batch_is_sent_as_that_slice() -> None:
    codec = opened_codec()
    sliced = Store(0, KEYS.slice(1), ROWS.slice(1), DOCUMENTS.slice(1), pa.array([True, False]).slice(1))
    assert through_the_wire(codec, sliced) == sliced


def test_a_message_without_rows_is_not_sent() -> None:
    codec = opened_codec()
    assert list(codec.encode_request(Load(0, KEYS.slice(0, 0)))) == []
    assert list(codec.encode_response(Loaded(0, KEYS.slice(0, 0), DOCUMENTS.slice(0, 0)))) == []
    assert (
        list(
            codec.encode_request(Store(1, DELTA_KEYS.slice(0, 0), NO_VALUES, None, pa.array([], pa.bool_())))
        )
        == []
    )


def test_the_largest_document_passes_in_one_message_below_the_limit() -> None:
    document = "x" * MAX_DOCUMENT_BYTES
    codec = opened_codec()
    biggest_value = ROWS.slice(0, 1).set_column(5, "more", pa.array([document]))
    store = Store(0, KEYS.slice(0, 1), biggest_value, pa.array([document]), pa.array([True]))
    message = one(codec.encode_request(store))
    assert message.ByteSize() < MAX_MESSAGE_BYTES
    assert codec.decode_request(message) == store
    loaded = Loaded(0, KEYS.slice(0, 1), pa.array([document]))
    assert through_the_wire(codec, loaded) == loaded


def test_loaded_without_keys_takes_them_from_the_documents() -> None:
    codec = opened_codec()
    message = one(codec.encode_response(Loaded(0, KEYS, DOCUMENTS)))
    message.loaded.ClearField("packed_keys")
    assert codec.decode_response(again(message)) == Loaded(0, KEYS, DOCUMENTS)


def test_a_row_that_is_too_long_for_the_wire_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or gRPC would refuse it in a way that looks as if trying again could help."""
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 100)
    codec = opened_codec()
    fits = Loaded(0, KEYS.slice(0, 1), pa.array(["x" * 50]))
    assert through_the_wire(codec, fits) == fits
    too_long = Loaded(0, KEYS.slice(0, 1), pa.array(["x" * 100]))
    with pytest.raises(ProtocolError, match="is too long for the wire"):
        list(codec.encode_response(too_long))


def test_the_longest_row_is_shorter_than_a_message() -> None:
    assert MAX_DOCUMENT_BYTES * 2 < rows.MAX_ROW_BYTES < MAX_MESSAGE_BYTES


def test_a_checkpoint_may_hold_any_mapping_and_any_integer() -> None:
    checkpoint = MappingProxyType({"at": MappingProxyType({"offset": 2**70})})
    assert through_the_wire(Codec(), StartCommit(checkpoint)) == StartCommit({"at": {"offset": 2**70}})


@pytest.mark.parametrize("value", [{1}, object, float("nan"), float("inf")], ids=str)
def test_a_checkpoint_that_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="a message holds what is not JSON"):
        list(Codec().encode_request(StartCommit({"it": value})))
