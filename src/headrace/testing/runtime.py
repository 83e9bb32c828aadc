"""The reference runtime: drives one stream of a connector as the specification says, without optimizations.

It combines documents and reduces them with those loaded by `headrace.model.reductions`, in plain Python, so
what it leaves in an endpoint is right by definition. A transaction is held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import orjson
import pyarrow as pa

from headrace.errors import ConfigError, ProtocolError
from headrace.model.checkpoints import JsonObject, merge_patch
from headrace.model.collections import DOCUMENT_FIELD, Collection
from headrace.model.columns import extract
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.model.materializations import Binding, Materialization
from headrace.model.reductions import check_annotations, needs_load, reduce, reduce_all
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Opened,
    Request,
    Response,
    StartCommit,
    StartedCommit,
    Store,
    Validate,
    ValidateBinding,
)
from headrace.protocol.selection import select_fields
from headrace.testing.recovery_log import LoggedState, MemoryLog, RecoveryLog

Document: TypeAlias = Any  # a parsed JSON object
Key = tuple[Any, ...]
View = dict[Key, Document]
Expected = TypeVar("Expected", bound=Response)


@dataclass(frozen=True)
class Committed:
    """The counts of one transaction, over all bindings."""

    documents: int
    keys: int
    loaded: int


class Runtime:
    """One key range of a materialization. As a context manager it opens the stream and ends it."""

    def __init__(
        self,
        client: ConnectorClient,
        materialization: Materialization,
        log: RecoveryLog | None = None,
        key_range: KeyRange = FULL_RANGE,
        rows_per_message: int = 1000,
        observer: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._materialization = materialization
        self._log = log or MemoryLog()
        self._key_range = key_range
        self._rows_per_message = rows_per_message
        self._observer = observer
        self._state = self._log.read()
        self._stream = client.transactions()

    def __enter__(self) -> Runtime:
        try:
            self.open()
        except BaseException:
            self._stream.abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)

    @property
    def checkpoint(self) -> JsonObject:
        """The position of the materialization: the next transaction begins after it."""
        return self._state.runtime_checkpoint

    def open(self) -> None:
        """Opens the stream. A checkpoint of the endpoint takes precedence over the recovery log's."""
        connector_checkpoint = self._state.connector_checkpoint
        self._send(Open(self._materialization, "1", self._key_range, connector_checkpoint))
        opened = self._expect(Opened)
        if opened.runtime_checkpoint is not None:
            self._state = LoggedState(opened.runtime_checkpoint, connector_checkpoint)

    def transact(
        self, documents: Sequence[Sequence[Document]], checkpoint: JsonObject, always_load: bool = False
    ) -> Committed:
        """Commits one transaction, with each binding's documents in the order in which they were written.

        Loads that the schema makes unnecessary are skipped, unless `always_load` is set.
        """
        bindings = self._materialization.bindings
        combined = [
            combine(binding.collection, written) for binding, written in zip(bindings, documents, strict=True)
        ]
        self._send(Acknowledge())
        for index, binding in enumerate(bindings):
            if not binding.delta_updates and (always_load or needs_load(binding.collection.schema)):
                for rows in self._slices(combined[index]):
                    self._send(Load(index, extract(binding.keys, rows)))
        if not self._stream.acknowledged:
            self._expect(Acknowledged)
        self._send(Flush())
        loaded = self._read_loaded()
        for index, binding in enumerate(bindings):
            self._store(index, binding, combined[index], loaded[index])
        self._send(StartCommit(checkpoint))
        started = self._expect(StartedCommit)
        self._commit_to_log(checkpoint, started)
        return Committed(sum(map(len, documents)), sum(map(len, combined)), sum(map(len, loaded)))

    def _read_loaded(self) -> list[View]:
        loaded: list[View] = [{} for _ in self._materialization.bindings]
        while not isinstance(response := self._receive(), Flushed):
            assert isinstance(response, Loaded)
            collection = self._materialization.bindings[response.binding].collection
            documents = [orjson.loads(text) for text in response.documents.to_pylist()]
            if not extract(collection.key_fields, documents).equals(response.keys):
                raise ProtocolError(
                    "Loaded holds a document whose key is not the one it was sent for",
                    message_name="Loaded",
                    phase=str(self._stream.phase),
                    expected="each document under its own key",
                )
            loaded[response.binding].update(zip(keys_of(collection, documents), documents, strict=True))
        return loaded

    def _store(self, index: int, binding: Binding, combined: View, loaded: View) -> None:
        reduced = {
            key: reduce(binding.collection.schema, loaded[key], document) if key in loaded else document
            for key, document in combined.items()
        }
        for rows in self._slices(reduced):
            exists = [key in loaded for key in keys_of(binding.collection, rows)]
            documents = [orjson.dumps(row).decode() for row in rows] if binding.document else None
            self._send(
                Store(
                    index,
                    extract(binding.keys, rows),
                    extract(binding.values, rows),
                    None if documents is None else pa.array(documents, type=pa.string()),
                    pa.array(exists, type=pa.bool_()),
                )
            )

    def _commit_to_log(self, checkpoint: JsonObject, started: StartedCommit) -> None:
        connector_checkpoint = merge_patch(self._state.connector_checkpoint, started.connector_checkpoint)
        self._state = LoggedState(checkpoint, connector_checkpoint)
        self._log.commit(self._state)
        self._observer("committed to the log")

    def _slices(self, view: View) -> Iterator[list[Document]]:
        rows = list(view.values())
        for begin in range(0, len(rows), self._rows_per_message):
            yield rows[begin : begin + self._rows_per_message]

    def _send(self, request: Request) -> None:
        self._stream.send(request)
        self._observer(f"sent {type(request).__name__}")

    def _expect(self, kind: type[Expected]) -> Expected:
        """Returns the next response, for which the order allows only one kind."""
        response = self._receive()
        assert isinstance(response, kind)
        return response

    def _receive(self) -> Response:
        response = self._stream.receive()
        self._observer(f"received {type(response).__name__}")
        return response


def keys_of(collection: Collection, documents: Sequence[Document]) -> list[Key]:
    """Returns the keys of documents by value: two spellings of the same instant are one key."""
    columns = [column.to_pylist() for column in extract(collection.key_fields, documents).columns]
    return list(zip(*columns, strict=True))


def combine(collection: Collection, documents: Sequence[Document]) -> View:
    """Combines documents by key: all documents yield the full view, those of a transaction its delta."""
    written: dict[Key, list[Document]] = {}
    for key, document in zip(keys_of(collection, documents), documents, strict=True):
        written.setdefault(key, []).append(document)
    return {key: reduce_all(collection.schema, group) for key, group in written.items()}


def materialization_of(
    client: ConnectorClient,
    name: str,
    endpoint_type: str,
    endpoint: Mapping[str, Any],
    bindings: Sequence[ValidateBinding],
    include: Sequence[str] = (),
) -> Materialization:
    """Validates the bindings with the connector and selects their fields, as a runtime does before Apply."""
    for binding in bindings:
        check_annotations(binding.collection.schema)
    offered = {DOCUMENT_FIELD, *(field.name for binding in bindings for field in binding.fields)}
    for name_asked in include:
        if name_asked not in offered:
            raise ConfigError(f"no collection has the field {name_asked!r}")
    validated = client.validate(Validate(name, endpoint_type, endpoint, tuple(bindings)))
    chosen = []
    for binding, answer in zip(bindings, validated.bindings, strict=True):
        here = {DOCUMENT_FIELD, *(field.name for field in binding.fields)}
        chosen.append(select_fields(binding, answer, include=[field for field in include if field in here]))
    return Materialization(name, endpoint_type, endpoint, tuple(chosen))
