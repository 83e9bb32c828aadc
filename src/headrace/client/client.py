"""The public client."""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
from pyarrow import flight

from headrace.client.connection import Connection
from headrace.client.failures import flight_errors
from headrace.client.sender import Reconnect
from headrace.client.writer import EXIT_SECONDS, Writer
from headrace.errors import Closed, ConfigError, HeadraceError
from headrace.model.tiers import Tier

# An action that takes longer has met a server that is stuck.
ACTION_SECONDS = 30.0

MIB = 1024 * 1024

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def connect(url: str, *, token: str | None = None, tls_roots: str | Path | bytes | None = None) -> Client:
    """Returns a client of the server at `grpc://host:port` or `grpc+tls://host:port`.

    `token` is sent with every call. `tls_roots` are the certificates to trust, as PEM or the path of a file,
    if the system's own are not sufficient. Nothing is sent yet: `client.health()` tells whether a server
    responds.
    """
    return Client(Connection(url, token, tls_roots))


class Client:
    """Creates writers, reads collections, and queries a server about them. Safe to use from many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._writers: list[Writer] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._watch: threading.Thread | None = None
        self._watch_seconds = 1.0
        _clients.add(self)

    def writer(
        self,
        collection: str = "default",
        *,
        producer: str | None = None,
        linger: float = 0.002,
        max_batch_writes: int = 16384,
        max_batch_bytes: int = 4 * MIB,
        max_buffer: int = 64 * MIB,
        on_full: Literal["block", "raise"] = "block",
        retain: str | Tier = Tier.LOCAL_DISK,
        reconnect: Reconnect | None = None,
        on_forgotten: Literal["raise", "resend"] = "raise",
    ) -> Writer:
        """Returns a writer to a collection. It connects with its first write.

        Writes are gathered for `linger` seconds or until there are `max_batch_writes` or `max_batch_bytes`
        of them, and sent in one message. Their data is kept, and sent again after a reconnection, until it
        has reached `retain`; when `max_buffer` bytes are kept, a write waits or raises `BufferFull`, as
        `on_full` says. `producer` is the id by which the server tells a repeated write from a new one.
        A server forgets one that is silent for seven days; where it then cannot say whether it has a write,
        the writer fails with `UnknownProducer`, or sends it again, as `on_forgotten` says.
        """
        reconnect = reconnect or Reconnect()
        writer = Writer(
            self._connection,
            collection,
            uuid4().hex if producer is None else producer,
            linger=linger,
            max_batch_writes=max_batch_writes,
            max_batch_bytes=max_batch_bytes,
            max_buffer=max_buffer,
            on_full=on_full,
            retain=retain,
            reconnect=reconnect,
            on_forgotten=on_forgotten,
        )
        with self._lock:
            if self._closing.is_set():
                raise Closed("the client is closed")
            self._writers = [known for known in self._writers if not known.is_closed]
            self._writers.append(writer)
            self._watch_seconds = min(self._watch_seconds, reconnect.ack_timeout / 4)
            if self._watch is None:
                self._watch = threading.Thread(target=self._look_after, name="headrace-watch", daemon=True)
                self._watch.start()
        return writer

    def read(
        self,
        collection: str = "default",
        *,
        from_lsn: int | None = None,
        to_lsn: int | None = None,
        committed_only: bool = False,
    ) -> pa.RecordBatchReader:
        """Returns the collection's rows with `_lsn` and `_row`, including uncommitted ones unless
        `committed_only` is set."""
        ticket: dict[str, object] = {"collection": collection, "committed_only": committed_only}
        limits = {"from_lsn": from_lsn, "to_lsn": to_lsn}
        ticket |= {name: lsn for name, lsn in limits.items() if lsn is not None}
        with flight_errors():
            stream = self._connection.flight.do_get(
                flight.Ticket(json.dumps(ticket).encode()), self._connection.options()
            )
            schema = stream.schema

        def batches() -> Iterator[pa.RecordBatch]:
            while True:
                try:
                    with flight_errors():
                        chunk = stream.read_chunk()
                except StopIteration:
                    return
                if chunk.data is not None:
                    yield chunk.data

        return pa.RecordBatchReader.from_batches(schema, batches())

    def collections(self) -> list[dict[str, Any]]:
        """Returns the descriptions of all collections."""
        listed: list[dict[str, Any]] = self._connection.action("list_collections", timeout=ACTION_SECONDS)[
            "collections"
        ]
        return listed

    def create_collection(
        self,
        name: str,
        schema: pa.Schema | None = None,
        *,
        key: Sequence[str] | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Creates a collection from an Arrow schema, or a key and a JSON schema; returns its description."""
        if (schema is None) == (json_schema is None):
            raise ConfigError("a collection is made from an Arrow schema, or from a key and a JSON schema")
        body: dict[str, object] = {"name": name}
        if schema is not None:
            body["arrow_schema"] = base64.b64encode(schema.serialize()).decode()
        else:
            body["schema"] = json_schema
        if key is not None:
            body["key"] = list(key)
        return self._connection.action("create_collection", body, ACTION_SECONDS)

    def describe(self, name: str) -> dict[str, Any]:
        return self._connection.action("describe_collection", {"name": name}, ACTION_SECONDS)

    def watermarks(self, collection: str | None = None, lsns: Sequence[int] | None = None) -> dict[str, Any]:
        """Returns the server's watermarks and lost ranges, and how far each of these LSNs has come."""
        asked = {"collection": collection, "lsns": None if lsns is None else [int(lsn) for lsn in lsns]}
        body = {name: value for name, value in asked.items() if value is not None}
        return self._connection.action("watermarks", body, ACTION_SECONDS)

    def flush(self, level: str | Tier = Tier.COMMITTED, timeout: float | None = None) -> dict[str, Any]:
        """Asks the server to bring everything that it has to a level, and waits for it; returns the
        watermarks."""
        body: dict[str, object] = {"level": Tier.parse(level).name}
        if timeout is not None:
            body["timeout"] = timeout
        return self._connection.action("flush", body, None if timeout is None else timeout + ACTION_SECONDS)

    def quarantine(self) -> list[dict[str, Any]]:
        """The collections that are in quarantine, each with its reason."""
        listed: list[dict[str, Any]] = self._connection.action("list_quarantine", timeout=ACTION_SECONDS)[
            "quarantine"
        ]
        return listed

    def release_quarantine(self, name: str, timeout: float | None = None) -> dict[str, Any]:
        """Has all that a collection in quarantine has committed, and waits for it; then it takes writes."""
        body: dict[str, object] = {"name": name}
        if timeout is not None:
            body["timeout"] = timeout
        limit = None if timeout is None else timeout + ACTION_SECONDS
        return self._connection.action("release_quarantine", body, limit)

    def drop_quarantine(self, name: str, *, confirm: str) -> dict[str, Any]:
        """Gives up what a collection in quarantine has; `confirm` is its name once more."""
        return self._connection.action("drop_quarantine", {"name": name, "confirm": confirm}, ACTION_SECONDS)

    def health(self) -> dict[str, Any]:
        return self._connection.action("health", timeout=ACTION_SECONDS)

    def close(self, timeout: float | None = None) -> None:
        """Closes all its writers, as their own `close` does, and the connection. May be called repeatedly."""
        with self._lock:
            self._closing.set()
            writers, self._writers = self._writers, []
        deadline = None if timeout is None else time.monotonic() + timeout
        failures: list[HeadraceError] = []
        for writer in writers:
            try:
                writer.close(None if deadline is None else max(deadline - time.monotonic(), 0))
            except HeadraceError as error:
                failures.append(error)
        if self._watch is not None:
            self._watch.join()
        self._connection.close()
        if failures:
            raise failures[0]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(HeadraceError):
                self.close(EXIT_SECONDS)

    def _look_after(self) -> None:
        while not self._closing.wait(self._watch_seconds):
            with self._lock:
                writers = list(self._writers)
            for writer in writers:
                writer.check_stalled()


@atexit.register
def _close_forgotten() -> None:
    """Closes clients before the interpreter exits: a thread that is inside gRPC then may crash the
    process."""
    for client in list(_clients):
        with contextlib.suppress(HeadraceError):
            client.close(EXIT_SECONDS)
