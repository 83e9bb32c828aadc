"""Converts Load, Loaded and Store to and from arenas with packed tuples.

A message with many rows is cut into several on the wire, each of a few megabytes: that is what keeps
memory bounded on both sides, and a message below gRPC's limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ProtocolError
from headrace.model.columns import extract
from headrace.model.materializations import Binding
from headrace.protocol.arenas import ArenaWriter, read_slices
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.methods import MAX_MESSAGE_BYTES
from headrace.protocol.messages import Load, Loaded, Store
from headrace.protocol.packed_rows import pack_rows, unpack_rows

CHUNK_BYTES = 2 * 1024 * 1024
NO_ROWS = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
NO_DOCUMENTS = pa.array([], pa.string())
MAX_ROW_BYTES = MAX_MESSAGE_BYTES - 1024 * 1024


def encode_load(load: Load) -> Iterator[pb.TransactionRequest]:
    packed = pack_rows(load.keys)
    for begin, end in _chunks([packed]):
        arena = ArenaWriter()
        keys = _slices(arena, packed, begin, end)
        message = pb.TransactionRequest.Load(binding=load.binding, packed_keys=keys, arena=arena.bytes())
        yield pb.TransactionRequest(load=message)


def decode_load(message: pb.TransactionRequest.Load, bindings: Sequence[Binding]) -> Load:
    if message.binding >= len(bindings):
        return Load(message.binding, NO_ROWS)  # which the phase machine refuses by name
    binding = bindings[message.binding]
    packed = read_slices(pa.py_buffer(message.arena), message.packed_keys.offsets, "packed_keys")
    return Load(message.binding, unpack_rows(packed, binding.key_schema))


def encode_loaded(loaded: Loaded) -> Iterator[pb.TransactionResponse]:
    packed, documents = pack_rows(loaded.keys), loaded.documents
    for begin, end in _chunks([packed, documents]):
        arena = ArenaWriter()
        keys = _slices(arena, packed, begin, end)
        docs = _slices(arena, documents, begin, end)
        message = pb.TransactionResponse.Loaded(
            binding=loaded.binding, docs_json=docs, packed_keys=keys, arena=arena.bytes()
        )
        yield pb.TransactionResponse(loaded=message)


def decode_loaded(message: pb.TransactionResponse.Loaded, bindings: Sequence[Binding]) -> Loaded:
    if message.binding >= len(bindings):
        return Loaded(message.binding, NO_ROWS, NO_DOCUMENTS)
    binding = bindings[message.binding]
    arena = pa.py_buffer(message.arena)
    documents = _documents(arena, message.docs_json, "Loaded")
    if message.HasField("packed_keys"):
        packed = read_slices(arena, message.packed_keys.offsets, "packed_keys")
        keys = unpack_rows(packed, binding.key_schema)
    else:
        keys = extract(binding.keys, [_parse(document) for document in documents.to_pylist()])
    return Loaded(message.binding, keys, documents)


def encode_store(store: Store) -> Iterator[pb.TransactionRequest]:
    packed_keys = pack_rows(store.keys)
    packed_values = pack_rows(store.values) if store.values.num_columns else None
    parts = [part for part in (packed_keys, packed_values, store.documents) if part is not None]
    for begin, end in _chunks(parts):
        arena = ArenaWriter()
        message = pb.TransactionRequest.Store(
            binding=store.binding,
            packed_keys=_slices(arena, packed_keys, begin, end),
            packed_values=_slices(arena, packed_values, begin, end),
            docs_json=_slices(arena, store.documents, begin, end),
            exists=store.exists.slice(begin, end - begin).to_numpy(zero_copy_only=False),
            arena=arena.bytes(),
        )
        yield pb.TransactionRequest(store=message)


def decode_store(message: pb.TransactionRequest.Store, bindings: Sequence[Binding]) -> Store:
    if message.binding >= len(bindings):
        return Store(message.binding, NO_ROWS, NO_ROWS, NO_DOCUMENTS, pa.array([], pa.bool_()))
    binding = bindings[message.binding]
    arena = pa.py_buffer(message.arena)
    packed_keys = read_slices(arena, message.packed_keys.offsets, "packed_keys")
    keys = unpack_rows(packed_keys, binding.key_schema)
    if binding.values:
        packed_values = read_slices(arena, message.packed_values.offsets, "packed_values")
        values = unpack_rows(packed_values, binding.value_schema)
    else:
        values = pa.RecordBatch.from_arrays([], schema=binding.value_schema)
    documents = _documents(arena, message.docs_json, "Store") if message.HasField("docs_json") else None
    exists = pa.array(np.array(message.exists, dtype=np.bool_))
    return Store(message.binding, keys, values, documents, exists)


def _chunks(parts: Sequence[pa.Array]) -> Iterator[tuple[int, int]]:
    """Yields row ranges whose bytes, over all parts, are about `CHUNK_BYTES`, with at least one row in
    each."""
    sizes = sum(pc.binary_length(part).to_numpy().astype(np.int64) for part in parts)
    if len(sizes) and sizes.max() > MAX_ROW_BYTES:
        raise ProtocolError(
            f"a row of {sizes.max()} bytes is too long for the wire",
            expected=f"at most {MAX_ROW_BYTES} bytes",
        )
    ends = np.cumsum(sizes)
    begin, done = 0, 0
    while begin < len(ends):
        end = max(int(np.searchsorted(ends, done + CHUNK_BYTES, side="right")), begin + 1)
        yield begin, end
        begin, done = end, int(ends[end - 1])


def _slices(arena: ArenaWriter, array: pa.Array | None, begin: int, end: int) -> pb.Slices | None:
    if array is None:
        return None
    return pb.Slices(offsets=arena.add(array.slice(begin, end - begin)))


def _documents(arena: pa.Buffer, slices: pb.Slices, message_name: str) -> pa.StringArray:
    raw = read_slices(arena, slices.offsets, "docs_json")
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        raise ProtocolError(
            f"a document of {message_name} is not UTF-8",
            message_name=message_name,
            expected="JSON text in UTF-8",
        ) from None


def _parse(document: str) -> object:
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(
            f"a document of Loaded is not JSON: {error}", message_name="Loaded", expected="JSON"
        ) from None
