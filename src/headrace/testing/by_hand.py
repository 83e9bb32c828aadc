"""Drives a connector message by message, even in ways that no runtime would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from headrace.errors import HeadraceError
from headrace.protocol.messages import Request, Response
from headrace.protocol.stream import RuntimeStream


class UncheckedStream(RuntimeStream):
    """A runtime's end that does not check the order, to test how the connector reacts."""

    def __init__(self, stream: RuntimeStream) -> None:
        super().__init__(stream._channel)
        self._stream = stream  # which breaks the channel when it is dropped

    def send(self, request: Request) -> None:
        self._channel.put_request(request)

    def receive(self) -> Response:
        return cast(Response, self._channel.get_response())

    def error_after(self, requests: Iterable[Request]) -> HeadraceError | None:
        """Returns the error with which the connector ends the stream; `None` if it ends without one."""
        try:
            for request in requests:
                self.send(request)
            self._channel.end_requests()
            while self.receive() is not None:
                pass
        except HeadraceError as error:
            return error
        return None
