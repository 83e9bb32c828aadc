"""Drives a connector message by message, also in ways that no runtime would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from headrace.errors import HeadraceError
from headrace.protocol.messages import Request, Response
from headrace.protocol.stream import RuntimeStream


class UncheckedStream(RuntimeStream):
    """A runtime's end that lets everything pass, to see what the connector makes of it."""

    def __init__(self, stream: RuntimeStream) -> None:
        super().__init__(stream._channel)
        self._stream = stream  # which breaks the channel when it is dropped

    def send(self, request: Request) -> None:
        self._channel.put_request(request)

    def receive(self) -> Response:
        return cast(Response, self._channel.get_response())

    def error_after(self, requests: Iterable[Request]) -> HeadraceError | None:
        """The error that the connector ends the stream with; `None` if it ends as if all were well."""
        try:
            for request in requests:
                self.send(request)
            self._channel.end_requests()
            while self.receive() is not None:
                pass
        except HeadraceError as error:
            return error
        return None
