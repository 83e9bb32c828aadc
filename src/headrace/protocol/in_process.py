"""The transport within a process: both sides share a channel, and messages are handed over as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.protocol.channel import Channel
from headrace.protocol.connector import Connector, serve_transactions
from headrace.protocol.loop import as_headrace_error
from headrace.protocol.messages import Applied, Apply, Spec, Specified, Validate, Validated
from headrace.protocol.stream import RuntimeStream


@contextmanager
def _as_over_a_wire() -> Iterator[None]:
    """Turns whatever a connector raises into one of our errors, as every other transport does."""
    try:
        yield
    except Exception as error:
        raise as_headrace_error(error) from error


class InProcess:
    """A connector of this process, for a runtime in the same process."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def spec(self, request: Spec) -> Specified:
        with _as_over_a_wire():
            return self._connector.spec(request)

    def validate(self, request: Validate) -> Validated:
        with _as_over_a_wire():
            return self._connector.validate(request)

    def apply(self, request: Apply) -> Applied:
        with _as_over_a_wire():
            return self._connector.apply(request)

    def transactions(self) -> RuntimeStream:
        channel = Channel()
        threading.Thread(
            target=serve_transactions, args=(self._connector, channel), name="headrace-connector", daemon=True
        ).start()
        return RuntimeStream(channel)
