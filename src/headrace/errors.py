"""Every error that Headrace raises on purpose.

There are two kinds, and the kind alone decides what a caller does: a `Transient` error may go away
when the same thing is tried again from the last checkpoint, a `Terminal` one will not until somebody
changes something. Each class says in one sentence when it is raised; its fields are typed and travel
with it across processes (see `to_json` / `from_json`).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar


class HeadraceError(Exception):
    """Root of all errors of this package; raise one of the two kinds below, never this."""

    _by_name: ClassVar[dict[str, type[HeadraceError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        HeadraceError._by_name[cls.__name__] = cls

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        for name, value in fields.items():
            setattr(self, name, value)
        self._fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return HeadraceError.from_json, (self.to_json(),)

    def to_json(self) -> str:
        """What another process needs to raise the same error."""
        raw = {
            "error": type(self).__name__,
            "transient": isinstance(self, Transient),
            "message": self.message,
            "fields": self._fields,
        }
        return json.dumps(raw, default=str)

    @staticmethod
    def from_json(text: str) -> HeadraceError:
        """The error that `to_json` wrote; of a kind unknown here, a plain `Transient` or `Terminal`."""
        raw = json.loads(text)
        known = HeadraceError._by_name.get(raw["error"])
        kind = known or (Transient if raw.get("transient") is True else Terminal)
        error = kind.__new__(kind)
        HeadraceError.__init__(error, str(raw["message"]), **raw["fields"])
        return error


class Terminal(HeadraceError):
    """Trying again changes nothing: a configuration, a peer or the data itself is wrong."""


class Transient(HeadraceError):
    """The same work may succeed when it is tried again from the last checkpoint."""


class ConfigError(Terminal):
    """A configuration that the user wrote is wrong; the message names the key and what to do."""


class SchemaError(Terminal):
    """A collection's schema, or data that should follow it, cannot be what it says it is."""


class ReductionError(Terminal):
    """A document cannot be reduced by its schema's annotations, such as a sum over text."""


class ProtocolError(Terminal):
    """A message came out of turn, or said something that no message may say."""

    message_name: str = ""
    phase: str = ""
    expected: str = ""


class TupleError(Terminal):
    """A packed tuple is malformed, or does not hold the types that its binding declares."""

    row: int = 0
    offset: int = 0


class Fenced(Terminal):
    """Another instance took over this key range, so this one may not commit."""

    materialization: str = ""
    key_range: str = ""
    fence: int = 0
    taken_by: str = ""


class CheckpointConflict(Terminal):
    """A key range would join ranges that stand at different checkpoints."""


class ConnectorRefused(Terminal):
    """A connector ended a call in a way that says that trying again is no use."""


class EndpointError(Terminal):
    """The endpoint refused what it was asked, and would refuse it again."""


class SparkRefused(Terminal):
    """Spark refuses a plan, a setting or a credential, and would refuse it again."""


class EndpointUnavailable(Transient):
    """The endpoint cannot be reached, or gave up in the middle."""


class StreamBroken(Transient):
    """The other side of a transactions stream went away in the middle of a transaction."""


class CheckpointMoved(Transient):
    """Another process has moved an endpoint's checkpoint, so where to go on has to be found out again."""


class UnexpectedFailure(Transient):
    """Something failed that nobody foresaw; the message carries what it said."""


class InternalError(Terminal):
    """A server failed at what it was sent, because of a bug that would make it fail again."""


class Unauthenticated(Terminal):
    """A server wants a token and got none, or one that it does not know."""


class Unauthorized(Terminal):
    """The token's roles do not allow what was asked."""


class StorageFull(Transient):
    """The server's disk is almost full, or failing, so it accepts nothing until it heals."""


class ServerUnavailable(Transient):
    """The server cannot be reached, is shutting down, or gave up in the middle."""


class WriteLost(Terminal):
    """A write died with the server's process or disk after the client had let go of its data."""

    lsn: int = 0
    level: str = ""


class Quarantined(Terminal):
    """A collection is not committed any more until a person acts, so the server takes no writes to it."""

    collection: str = ""
    reason: str = ""


class UnknownProducer(Terminal):
    """A producer counts on where a server has no record of it, so its writes may be there already."""

    producer: str = ""
    collection: str = ""
    first_seq: int = 0


class WriteTimeout(Transient):
    """A write did not get as far as it was waited for in the time given; it may still get there."""


class BufferFull(Transient):
    """A writer's buffer holds as much as it may, and the writer was told to refuse rather than to wait."""


class Closed(Terminal):
    """A client or writer was used after it was closed, or closed before a write was accepted."""
