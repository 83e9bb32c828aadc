"""The two ends of a transactions stream, each of which enforces the order on itself and its peer.

A connector is given a `ConnectorStream` and composes the helpers of `protocol.loop` over it. A runtime
holds a `RuntimeStream`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import cast

from headrace.errors import HeadraceError, ProtocolError, StreamBroken
from headrace.faults import reached
from headrace.model.checkpoints import JsonObject
from headrace.protocol.channel import Channel
from headrace.protocol.messages import Request, Response, StartCommit
from headrace.protocol.phases import Phase, Phases


class ConnectorStream:
    """A connector reads requests from it and sends its responses to it. Safe to use from two threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._phases = Phases()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._runtime_checkpoint: JsonObject | None = None

    def receive(self) -> Request | None:
        """The next request, in order; `None` where the runtime ended the stream between transactions."""
        request = cast(Request | None, self._channel.get_request())
        with self._order() as phases:
            if request is None:
                phases.end()
                return None
            phases.observe(request)
        if isinstance(request, StartCommit):
            self._runtime_checkpoint = request.runtime_checkpoint
        return request

    def send(self, response: Response) -> None:
        # Two locks, since what waits for room to send must not keep the other thread from receiving.
        with self._sending:
            with self._order() as phases:
                phases.observe(response)
            self._channel.put_response(response)

    def fail(self, error: HeadraceError) -> None:
        """Ends the stream with this error on both sides; for a thread that works in the background."""
        self._channel.fail(error)

    @property
    def owes(self) -> str:
        """The message that must be sent before another request can come; empty if one can."""
        with self._lock:
            return self._phases.owed

    @property
    def runtime_checkpoint(self) -> JsonObject:
        """The checkpoint of the last StartCommit."""
        if self._runtime_checkpoint is None:
            raise RuntimeError("there is a runtime checkpoint only once stores() has ended at StartCommit")
        return self._runtime_checkpoint

    @contextmanager
    def _order(self) -> Iterator[Phases]:
        """Reports a refusal to the runtime, whatever error another thread runs into because of it."""
        with self._lock:
            try:
                yield self._phases
            except HeadraceError as refusal:
                self._channel.fail(refusal)
                raise


class RuntimeStream:
    """A runtime sends requests to it and receives responses from it, on one thread or on one for each.

    As a context manager it ends the stream and waits until the connector has ended too; if the block
    raises, it breaks the stream instead, and the connector rolls back.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._phases = Phases()
        self._lock = threading.Lock()
        self.who = "runtime"
        """Names this end in the names of fault points."""
        # A stream that is forgotten must not leave its connector waiting, with a connection to the endpoint.
        weakref.finalize(self, channel.fail, StreamBroken("the runtime dropped the stream"))

    def send(self, request: Request) -> None:
        with self._lock:
            self._phases.observe(request)
        reached(f"{self.who} sending {type(request).__name__}")
        self._channel.put_request(request)

    def receive(self) -> Response:
        """Returns the next response, in order; raises the connector's error."""
        response = cast(Response | None, self._channel.get_response())
        if response is None:
            raise StreamBroken(f"the connector ended the stream in phase {self._phases.phase}")
        with self._lock:
            self._phases.observe(response)
        reached(f"{self.who} received {type(response).__name__}")
        return response

    @property
    def phase(self) -> Phase:
        return self._phases.phase

    @property
    def acknowledged(self) -> bool:
        """Whether Acknowledged was received in this transaction."""
        return self._phases.acknowledged

    def close(self) -> None:
        """Ends the stream between transactions and waits for the connector's end."""
        try:
            self._phases.end()
        except ProtocolError:
            self.abandon()  # or the connector would wait for what comes next
            raise
        self._channel.end_requests()
        while self._channel.get_response() is not None:
            pass  # an Acknowledged that nobody waited for

    def abandon(self) -> None:
        """Breaks the stream at any point; the connector rolls back what it has not committed."""
        self._channel.fail(StreamBroken("the runtime went away in the middle of the stream"))

    def __enter__(self) -> RuntimeStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._phases.phase is not Phase.ENDED:
            self.close()
        else:
            self.abandon()
