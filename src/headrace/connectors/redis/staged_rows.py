"""Holds the rows of the current transaction until they may be looked up or written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.redis.chunks import chunks
from headrace.connectors.redis.fence import Fence
from headrace.connectors.redis.layouts import record_stored
from headrace.connectors.redis.session import Command, Session
from headrace.connectors.redis.spool import Spool
from headrace.connectors.redis.storage import DocumentStorage, Storage
from headrace.errors import EndpointError
from headrace.model.materializations import Binding
from headrace.protocol.messages import Load, Loaded, Store

# Their sizes are asked for in one go, and each answer is a few bytes.
_SIZES_AT_ONCE = 1000


class StagedRows:
    """Keys to load and rows to store, of all bindings."""

    def __init__(self, storages: Sequence[Storage]) -> None:
        self._storages = storages
        self._loads = [Spool(storage.binding.key_schema) for storage in storages]
        self._stores = [Spool(_row_schema(storage.binding)) for storage in storages]

    def add_keys(self, load: Load) -> None:
        self._loads[load.binding].add(load.keys)

    def add_rows(self, store: Store) -> None:
        columns = [*store.keys.columns, *store.values.columns]
        if store.documents is not None:
            columns.append(store.documents)
        schema = _row_schema(self._storages[store.binding].binding)
        self._stores[store.binding].add(pa.RecordBatch.from_arrays(columns, schema=schema))

    def load(self, session: Session) -> Iterator[Loaded]:
        """Yields the documents of the staged keys, and forgets the keys."""
        for number, storage in enumerate(self._storages):
            for keys in self._loads[number].drain():
                assert isinstance(storage, DocumentStorage)  # nothing is loaded of a stream
                yield from _load(session, number, storage, keys)

    def write(self, session: Session, fence: Fence) -> None:
        """Writes all staged rows, chunk by chunk, each of them atomically and under the fence."""
        fence.verify(session)  # also where there is nothing to write
        for number, storage in enumerate(self._storages):
            for rows in self._stores[number].drain():
                for chunk in chunks(_bytes_of(rows)):
                    part = rows.slice(chunk.start, chunk.stop - chunk.start)
                    commands: list[Command] = [command for row in storage.stores(part) for command in row]
                    fence.write(session, [record_stored(storage.resource.prefix), *commands])
        session.await_replicas()

    def close(self) -> None:
        for spool in (*self._loads, *self._stores):
            spool.close()


def _load(session: Session, number: int, storage: DocumentStorage, keys: pa.RecordBatch) -> Iterator[Loaded]:
    names = storage.keys(keys)
    for begin in range(0, len(names), _SIZES_AT_ONCE):
        part = names[begin : begin + _SIZES_AT_ONCE]
        # Sizes first, so that no response exceeds a chunk, and only existing documents are requested.
        sizes = session.pipeline([storage.size(name) for name in part])
        there = [begin + position for position, size in enumerate(sizes) if size]
        for chunk in chunks(size for size in sizes if size):
            rows = there[chunk]
            documents = storage.documents(session.pipeline(storage.loads([names[row] for row in rows])))
            # One may have expired since its size was asked for.
            found = {row: text for row, text in zip(rows, documents, strict=True) if text is not None}
            if found:
                yield Loaded(number, keys.take(pa.array(found.keys())), _texts(found.values()))


def _texts(documents: Iterable[bytes]) -> pa.StringArray:
    try:
        return pa.array([document.decode() for document in documents], type=pa.string())
    except UnicodeDecodeError:
        raise EndpointError(
            "Redis: a document is not UTF-8, so it is somebody else's: materialize under a new prefix"
        ) from None


def _bytes_of(rows: pa.RecordBatch) -> Sequence[int]:
    """Estimates the bytes of each row by its long texts, above all the document."""
    sizes = np.zeros(len(rows), dtype=np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    lengths: list[int] = sizes.tolist()
    return lengths


def _row_schema(binding: Binding) -> pa.Schema:
    fields = [*binding.key_schema, *binding.value_schema]
    if binding.document is not None:
        fields.append(pa.field(binding.document, pa.string()))
    return pa.schema(fields)
