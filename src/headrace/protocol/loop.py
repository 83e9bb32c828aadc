"""Helpers that a connector composes into its own loop; none of them calls it back.

A synchronous connector, laid beside the protocol's sequence diagram:

    opened = accept_open(stream)
    stream.send(Opened(...))
    while accept_acknowledge(stream):
        stream.send(Acknowledged())
        for load in loads(stream):
            ...                                     # look up, or stage for later
        stream.send(Flushed())                      # after the last Loaded
        for store in stores(stream):
            ...
        ...                                         # commit, with stream.runtime_checkpoint
        stream.send(StartedCommit())

A pipelined one reads loads while it still finishes the transaction before:

    while accept_acknowledge(stream):
        with acknowledging(stream, finish_last_transaction):
            staged = list(loads(stream))            # staged, not yet looked up
        ...                                         # Acknowledged is sent: look them up now

The stream itself refuses what is out of turn, so these only read what comes next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, ProtocolError, UnexpectedFailure
from headrace.protocol.messages import Acknowledge, Acknowledged, Load, Open, Request, Store
from headrace.protocol.stream import ConnectorStream

log = logging.getLogger(__name__)


class StreamEnded(Exception):
    """The runtime ended the stream where that is allowed. The exception unwinds a connector's loop and is not
    an error."""


def accept_open(stream: ConnectorStream) -> Open:
    request = _next(stream)
    assert isinstance(request, Open)
    return request


def accept_acknowledge(stream: ConnectorStream) -> bool:
    """Reads the Acknowledge that begins a transaction. Returns False at the end of the stream."""
    request = _receive(stream)
    assert request is None or isinstance(request, Acknowledge)
    return request is not None


def loads(stream: ConnectorStream) -> Iterator[Load]:
    """Yields the transaction's loads. Ends at Flush, which never comes before Acknowledged was sent."""
    while isinstance(request := _next(stream), Load):
        yield request


def stores(stream: ConnectorStream) -> Iterator[Store]:
    """Yields the transaction's stores. Ends at StartCommit; then `stream.runtime_checkpoint` is its
    checkpoint."""
    while isinstance(request := _next(stream), Store):
        yield request


@contextmanager
def acknowledging(stream: ConnectorStream, finish: Callable[[], None]) -> Iterator[None]:
    """Runs `finish` on one extra thread and then sends Acknowledged, while the block stages loads.

    Loads may not be looked up inside the block, since what `finish` applies would be missed. No other
    coordination is needed: `loads` cannot end before Acknowledged was sent. When `finish` fails, so does
    the block, with that error.
    """

    def run() -> None:
        try:
            finish()
            stream.send(Acknowledged())
        except BaseException as error:  # noqa: BLE001 - whatever it is must end the stream, or both sides wait
            stream.fail(as_headrace_error(error))

    thread = threading.Thread(target=run, name="headrace-acknowledge", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def as_headrace_error(error: BaseException) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    log.error("a connector failed unexpectedly", exc_info=error)
    return UnexpectedFailure(f"{type(error).__name__}: {error}")


def _receive(stream: ConnectorStream) -> Request | None:
    if owed := stream.owes:
        raise ProtocolError(
            f"the connector waits for a request and the runtime for {owed}: send it first",
            message_name=owed,
            expected=owed,
        )
    return stream.receive()


def _next(stream: ConnectorStream) -> Request:
    request = _receive(stream)
    if request is None:
        raise StreamEnded
    return request
