"""The order of messages, as one machine that both sides run over all that they send and receive.

    phase        entered by                       the runtime may send      the connector may send
    OPEN         the start                        Open
    OPENING      Open                                                       Opened
    ACKNOWLEDGE  Opened, StartedCommit            Acknowledge               Acknowledged
    LOAD         Acknowledge                      Load, Flush (1)           Acknowledged, Loaded (1)
    FLUSH        Flush                                                      Loaded, Flushed
    STORE        Flushed                          Store, StartCommit
    COMMIT       StartCommit                                                StartedCommit
    ENDED        the end, or a refusal                                      Acknowledged (2)

    (1) only once Acknowledged was seen in this transaction
    (2) only after a clean end that came before it

The runtime may end the stream where no transaction has begun: in OPEN and ACKNOWLEDGE, and in LOAD
before anything was loaded. A refused message ends it for good, so nothing that follows can commit.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, ProtocolError
from headrace.model.materializations import Binding
from headrace.protocol.key_digests import SeenKeys
from headrace.protocol.messages import (
    MAX_DOCUMENT_BYTES,
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Message,
    Open,
    Opened,
    StartCommit,
    StartedCommit,
    Store,
)
from headrace.protocol.packed_rows import to_tuple_type


class Phase(StrEnum):
    OPEN = "OPEN"
    OPENING = "OPENING"
    ACKNOWLEDGE = "ACKNOWLEDGE"
    LOAD = "LOAD"
    FLUSH = "FLUSH"
    STORE = "STORE"
    COMMIT = "COMMIT"
    ENDED = "ENDED"


class _BindingKeys:
    """The keys of one binding that this transaction has loaded and stored."""

    def __init__(self) -> None:
        self.asked = SeenKeys()
        self.stored = SeenKeys()


class Phases:
    """Refuses every message that is out of turn or has invalid content."""

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self.transaction = 0
        self._acknowledged = False
        self._loads_sent = False
        self._acknowledged_may_follow = False
        self._bindings: tuple[Binding, ...] = ()
        self._keys: list[_BindingKeys] = []

    def observe(self, message: Message) -> None:
        """Records a message that was sent or received, or refuses it and all that follow."""
        try:
            self._step(message)
        except HeadraceError:  # a SchemaError too, where a binding's key turns out to be none
            self.phase = Phase.ENDED
            self._acknowledged_may_follow = False
            raise

    def end(self) -> None:
        """Records that the runtime ended the stream, or refuses that in the middle of a transaction."""
        clean = self.at_rest
        phase, self.phase = self.phase, Phase.ENDED
        self._acknowledged_may_follow = clean and phase is not Phase.OPEN and not self._acknowledged
        if not clean:
            raise _refusal(
                "the end of the stream", phase, self.transaction, _expected(phase, self._acknowledged)
            )

    @property
    def at_rest(self) -> bool:
        """Whether no transaction is in progress, so that the stream may end here."""
        if self.phase is Phase.LOAD:
            return not self._loads_sent
        return self.phase in (Phase.OPEN, Phase.ACKNOWLEDGE)

    @property
    def owed(self) -> str:
        """The only response that can come next, if there is one."""
        return _OWED.get(self.phase, "")

    @property
    def acknowledged(self) -> bool:
        """Whether Acknowledged was seen in this transaction."""
        return self._acknowledged

    def _step(self, message: Message) -> None:
        match self.phase, message:
            case Phase.OPEN, Open():
                self._bindings = message.materialization.bindings
                self.phase = Phase.OPENING
            case Phase.OPENING, Opened():
                self._begin_transaction()
            case ((Phase.ACKNOWLEDGE | Phase.LOAD), Acknowledged()) if not self._acknowledged:
                self._acknowledged = True
            case Phase.ACKNOWLEDGE, Acknowledge():
                self.phase = Phase.LOAD
            case Phase.LOAD, Load():
                self._load(message)
            case ((Phase.LOAD | Phase.FLUSH), Loaded()) if self._acknowledged:
                self._loaded(message)
            case Phase.LOAD, Flush() if self._acknowledged:
                self.phase = Phase.FLUSH
            case Phase.FLUSH, Flushed():
                self.phase = Phase.STORE
            case Phase.STORE, Store():
                self._store(message)
            case Phase.STORE, StartCommit():
                self._start_commit(message)
            case Phase.COMMIT, StartedCommit():
                self._begin_transaction()
            case Phase.ENDED, Acknowledged() if self._acknowledged_may_follow:
                self._acknowledged_may_follow = False
            case _:
                raise self._refuse(message, _expected(self.phase, self._acknowledged))

    def _begin_transaction(self) -> None:
        self.phase = Phase.ACKNOWLEDGE
        self.transaction += 1
        self._acknowledged = False
        self._loads_sent = False
        self._keys = [_BindingKeys() for _ in self._bindings]

    def _load(self, message: Load) -> None:
        binding = self._binding(message)
        if binding.delta_updates:
            raise self._refuse(message, f"no Load at all for {binding}, which takes delta updates")
        self._check_keys(message, binding)
        repeated = self._keys[message.binding].asked.add(message.digests)
        if repeated is not None:
            raise self._refuse(message, f"each key once, and {_show_key(message.keys, repeated)} came before")
        self._loads_sent = True

    def _loaded(self, message: Loaded) -> None:
        binding = self._binding(message)
        self._check_keys(message, binding)
        self._check_documents(message, message.documents)
        unknown, repeated = self._keys[message.binding].asked.mark(message.digests)
        if unknown is not None:
            raise self._refuse(message, f"keys that were asked for, not {_show_key(message.keys, unknown)}")
        if repeated is not None:
            raise self._refuse(message, f"each key once, and {_show_key(message.keys, repeated)} came before")

    def _store(self, message: Store) -> None:
        binding = self._binding(message)
        self._check_keys(message, binding)
        self._check_schema(message, "values", message.values, binding.value_schema)
        if binding.values and len(message.values) != len(message.keys):
            raise self._refuse(message, f"values for {len(message.keys)} keys, not {len(message.values)}")
        if (message.documents is not None) != (binding.document is not None):
            raise self._refuse(message, "documents exactly where the binding stores them")
        if message.documents is not None:
            self._check_documents(message, message.documents)
        exists = message.exists
        if exists.type != pa.bool_() or len(exists) != len(message.keys) or exists.null_count:
            raise self._refuse(message, "true or false in 'exists' for each key")
        repeated = self._keys[message.binding].stored.add(message.digests)
        if repeated is not None:
            raise self._refuse(message, f"each key once, and {_show_key(message.keys, repeated)} came before")

    def _start_commit(self, message: StartCommit) -> None:
        if not message.runtime_checkpoint:
            # An endpoint that kept it would have to start all over again.
            raise self._refuse(message, "a runtime checkpoint, since an empty one means the beginning")
        self.phase = Phase.COMMIT

    def _binding(self, message: Load | Loaded | Store) -> Binding:
        if not 0 <= message.binding < len(self._bindings):
            known = f"a binding from 0 to {len(self._bindings) - 1}"
            raise self._refuse(message, f"{known}, not {message.binding}")
        return self._bindings[message.binding]

    def _check_keys(self, message: Load | Loaded | Store, binding: Binding) -> None:
        self._check_schema(message, "keys", message.keys, binding.key_schema)
        for column, name in zip(message.keys.columns, message.keys.schema.names, strict=True):
            if column.null_count:
                raise self._refuse(message, f"no null in key field {name!r}")

    def _check_schema(self, message: Message, part: str, rows: pa.RecordBatch, schema: pa.Schema) -> None:
        if rows.schema.names != schema.names or rows.schema.types != schema.types:
            raise self._refuse(message, f"{part} of {_show_schema(schema)}, not {_show_schema(rows.schema)}")

    def _check_documents(self, message: Loaded | Store, documents: pa.StringArray) -> None:
        if len(documents) != len(message.keys) or documents.null_count:
            raise self._refuse(message, f"a document for each of {len(message.keys)} keys")
        if documents.type != pa.string() or isinstance(documents, pa.ChunkedArray):
            raise self._refuse(message, f"documents in one array of string, not {documents.type}")
        if len(documents) == 0:
            return
        lengths = pc.min_max(pc.binary_length(documents)).as_py()
        if lengths["max"] > MAX_DOCUMENT_BYTES:
            raise self._refuse(
                message, f"documents of at most {MAX_DOCUMENT_BYTES} bytes, not {lengths['max']}"
            )
        if lengths["min"] < len("{}"):
            raise self._refuse(message, "documents that are JSON objects, not empty text")

    def _refuse(self, message: Message, expected: str) -> ProtocolError:
        return _refusal(type(message).__name__, self.phase, self.transaction, expected)


_OWED = {Phase.OPENING: "Opened", Phase.FLUSH: "Flushed", Phase.COMMIT: "StartedCommit"}

_EXPECTED: dict[Phase, Callable[[bool], str]] = {
    Phase.OPEN: lambda _: "Open",
    Phase.OPENING: lambda _: "Opened",
    Phase.ACKNOWLEDGE: lambda acknowledged: "Acknowledge" if acknowledged else "Acknowledge or Acknowledged",
    Phase.LOAD: lambda acknowledged: "Load, Loaded or Flush" if acknowledged else "Load or Acknowledged",
    Phase.FLUSH: lambda _: "Loaded or Flushed",
    Phase.STORE: lambda _: "Store or StartCommit",
    Phase.COMMIT: lambda _: "StartedCommit",
    Phase.ENDED: lambda _: "nothing, since the stream has ended",
}


def _expected(phase: Phase, acknowledged: bool) -> str:
    return _EXPECTED[phase](acknowledged)


def _refusal(message_name: str, phase: Phase, transaction: int, expected: str) -> ProtocolError:
    return ProtocolError(
        f"{message_name} is refused in phase {phase} of transaction {transaction}: expected {expected}",
        message_name=message_name,
        phase=str(phase),
        expected=expected,
    )


def _show_key(keys: pa.RecordBatch, row: int) -> str:
    # In packed form, since Python does not support every date that Arrow does.
    values = (to_tuple_type(column.slice(row, 1))[0].as_py() for column in keys.columns)
    shown = ", ".join(map(repr, values))
    return f"({shown if len(shown) <= 80 else shown[:77] + '...'})"


def _show_schema(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
