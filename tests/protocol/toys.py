"""Connectors that are small enough to see through, and a runtime for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model.checkpoints import START, JsonObject
from headrace.protocol.connector import Connector
from headrace.protocol.loop import accept_acknowledge, accept_open, loads, stores
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Flush,
    Flushed,
    Load,
    Loaded,
    Opened,
    Response,
    Spec,
    Specified,
    StartCommit,
    StartedCommit,
    Validate,
    Validated,
    ValidatedBinding,
)
from headrace.protocol.stream import ConnectorStream, RuntimeStream
from tests.protocol.samples import OPEN, load, store

Rows = dict[tuple[object, ...], str]


class Toy(Connector):
    """Answers Spec, Validate and Apply."""

    def spec(self, request: Spec) -> Specified:
        return Specified({"asked": dict(request.endpoint)}, {"type": "object"}, "https://example.com/toy")

    def validate(self, request: Validate) -> Validated:
        if "where" not in request.endpoint:
            raise ConfigError("'where' is missing: say where to put the rows")
        required = Constraint(ConstraintKind.REQUIRED, "a toy takes everything")
        return Validated(
            tuple(
                ValidatedBinding(
                    dict.fromkeys((*(field.name for field in binding.fields), "_document"), required),
                    (binding.collection.name,),
                    delta_updates=False,
                )
                for binding in request.bindings
            )
        )

    def apply(self, request: Apply) -> Applied:
        return Applied(f"made {request.materialization.name} at version {request.version}")


class MemoryConnector(Toy):
    """Keeps rows and a checkpoint in memory; a transaction is committed before StartedCommit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[int, Rows] = {}
        self.checkpoint: JsonObject = START
        self.looked_up: list[object] = []

    def transactions(self, stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened(self.checkpoint))
        while accept_acknowledge(stream):
            stream.send(Acknowledged())
            for asked in loads(stream):
                for found in self.look_up(asked):
                    stream.send(found)
            stream.send(Flushed())
            self.commit(*self.staged(stream))
            stream.send(StartedCommit())

    def look_up(self, asked: Load) -> Iterator[Loaded]:
        rows = self.rows.get(asked.binding, {})
        self.looked_up += keys_of(asked.keys)
        found = [(number, rows[key]) for number, key in enumerate(keys_of(asked.keys)) if key in rows]
        if found:
            positions, documents = zip(*found, strict=True)
            keys = asked.keys.take(pa.array(positions))
            yield Loaded(asked.binding, keys, pa.array(documents, pa.string()))

    def staged(self, stream: ConnectorStream) -> tuple[dict[int, Rows], JsonObject]:
        changes: dict[int, Rows] = {}
        for stored in stores(stream):
            assert stored.documents is not None
            documents = stored.documents.to_pylist()
            changes.setdefault(stored.binding, {}).update(zip(keys_of(stored.keys), documents, strict=True))
        return changes, stream.runtime_checkpoint

    def commit(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
        with self._lock:
            for binding, rows in changes.items():
                self.rows.setdefault(binding, {}).update(rows)
            self.checkpoint = checkpoint


class Scripted(Toy):
    """Does with its stream what a test says; the test can wait for its end."""

    def __init__(self, script: Callable[[ConnectorStream], None]) -> None:
        self._script = script
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def transactions(self, stream: ConnectorStream) -> None:
        try:
            self._script(stream)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()


def oblige(stream: ConnectorStream) -> None:
    """Answers as it should, and loads nothing."""
    answers: dict[type, Response] = {
        type(OPEN): Opened(),
        Acknowledge: Acknowledged(),
        Flush: Flushed(),
        StartCommit: StartedCommit(),
    }
    while (request := stream.receive()) is not None:
        if type(request) in answers:
            stream.send(answers[type(request)])


def keys_of(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def open_stream(stream: RuntimeStream) -> Opened:
    stream.send(OPEN)
    opened = stream.receive()
    assert isinstance(opened, Opened)
    return opened


def transact(stream: RuntimeStream, *ids: int, checkpoint: JsonObject | None = None) -> list[int]:
    """Loads and stores rows of the first binding in a transaction; answers which were there already."""
    stream.send(Acknowledge())
    stream.send(load(*ids))
    assert stream.receive() == Acknowledged()
    stream.send(Flush())
    there: list[int] = []
    while isinstance(response := stream.receive(), Loaded):
        there += response.keys["id"].to_pylist()
    assert response == Flushed()
    stream.send(store(*ids, exists=[number in there for number in ids]))
    stream.send(StartCommit({"ids": list(ids)} if checkpoint is None else checkpoint))
    assert isinstance(stream.receive(), StartedCommit)
    return there
