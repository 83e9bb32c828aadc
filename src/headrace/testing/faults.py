"""Watches a connector's messages, and kills or freezes its process at one of them.

A step has just happened at the connector, such as `received Load` or `sent Flushed`, or is about to happen:
`sending StartedCommit` comes after the endpoint's commit and before the runtime can know of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from headrace.protocol.connector import Connector
from headrace.protocol.messages import Applied, Apply, Request, Response, Spec, Specified, Validate, Validated
from headrace.protocol.stream import ConnectorStream

Observer = Callable[[str], None]


class Observed(Connector):
    """Wraps a connector, and notifies an observer of each message of its streams."""

    def __init__(self, connector: Connector, observer: Observer) -> None:
        self._connector = connector
        self._observer = observer

    def spec(self, request: Spec) -> Specified:
        return self._connector.spec(request)

    def validate(self, request: Validate) -> Validated:
        return self._connector.validate(request)

    def apply(self, request: Apply) -> Applied:
        return self._connector.apply(request)

    def transactions(self, stream: ConnectorStream) -> None:
        self._connector.transactions(_ObservedStream(stream, self._observer))


class _ObservedStream(ConnectorStream):
    def __init__(self, stream: ConnectorStream, observer: Observer) -> None:
        super().__init__(stream._channel)
        self._observer = observer

    def receive(self) -> Request | None:
        request = super().receive()
        self._observer(f"received {type(request).__name__}" if request is not None else "received the end")
        return request

    def send(self, response: Response) -> None:
        self._observer(f"sending {type(response).__name__}")
        super().send(response)
        self._observer(f"sent {type(response).__name__}")


def kill_at(step: str, occurrence: int = 1) -> Observer:
    """Kills this process, as kill -9 does, at the given occurrence of a step."""
    return _signal_at(step, occurrence, signal.SIGKILL)


def stop_at(step: str, occurrence: int = 1) -> Observer:
    """Freezes this process, until it gets SIGCONT, at the given occurrence of a step."""
    return _signal_at(step, occurrence, signal.SIGSTOP)


def freeze_here() -> None:
    """Freezes this process until it gets SIGCONT, before the calling thread continues.

    Another thread of the process may take a signal to it, while this one continues.
    """
    _signal_here(signal.SIGSTOP)


def _signal_here(signal_number: signal.Signals) -> None:
    signal.pthread_kill(threading.get_ident(), signal_number)


def _signal_at(step: str, occurrence: int, signal_number: signal.Signals) -> Observer:
    left = occurrence

    def observe(happened: str) -> None:
        nonlocal left
        if happened == step:
            left -= 1
            if left == 0:
                _signal_here(signal_number)

    return observe
