"""Store: writes a transaction's rows to staged objects, one for each binding that has any."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from uuid import uuid4

import pyarrow as pa

from headrace.connectors.config import read_config
from headrace.connectors.files.config import FilesResource
from headrace.connectors.files.encoding import encoder, file_schema, suffix
from headrace.connectors.files.layout import STAGED, StagedFile, published_name, staged_name
from headrace.connectors.files.storage import Storage
from headrace.errors import HeadraceError
from headrace.model.checkpoints import to_json
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Store


class StagedTransaction:
    """One transaction's files; as a context manager it removes them if the block fails."""

    def __init__(
        self, storage: Storage, materialization: Materialization, key_range: KeyRange, number: int
    ) -> None:
        self._storage = storage
        self._materialization = materialization
        self._key_range = key_range
        self._number = number
        self._files: dict[int, _OpenFile] = {}

    def add(self, store: Store) -> None:
        file = self._files.get(store.binding)
        if file is None:
            binding = self._materialization.bindings[store.binding]
            file = self._files[store.binding] = _OpenFile(
                self._storage, self._materialization.name, binding, self._key_range, self._number
            )
        file.add(store)

    def finish(self) -> list[StagedFile]:
        """Returns once all files would survive a crash of the machine."""
        return [file.finish() for file in self._files.values()]

    def __enter__(self) -> StagedTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for file in self._files.values():
                file.discard()


class _OpenFile:
    def __init__(
        self, storage: Storage, materialization: str, binding: Binding, key_range: KeyRange, number: int
    ) -> None:
        resource = read_config(FilesResource, binding.resource, "resource")
        unique, ending = uuid4().hex, suffix(resource)
        self._storage = storage
        self._prefix = resource.prefix
        self._staged = staged_name(materialization, key_range, unique, ending)
        self._published = published_name(number, key_range, unique, ending)
        self._schema = file_schema(binding)
        self._rows = 0
        about = {
            "materialization": materialization,
            "collection": binding.collection.name,
            "key_range": str(key_range),
            "number": number,
        }
        self._sink = storage.write(self._path)
        self._encoder = encoder(binding, resource, to_json(about).encode(), self._sink)

    @property
    def _path(self) -> str:
        return f"{self._prefix}/{STAGED}/{self._staged}"

    def add(self, store: Store) -> None:
        documents = [] if store.documents is None else [store.documents]
        columns = [*store.keys.columns, *store.values.columns, *documents]
        self._encoder.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += len(store.keys)

    def finish(self) -> StagedFile:
        self._encoder.close()
        self._sink.close()
        return StagedFile(self._prefix, self._staged, self._published, self._sink.size, self._rows)

    def discard(self) -> None:
        """Removes the files if possible; those that the store keeps are leftovers that nothing refers to."""
        for end in (self._encoder.close, self._sink.close, lambda: self._storage.delete([self._path])):
            with suppress(HeadraceError, OSError, ValueError, pa.ArrowException):
                end()
