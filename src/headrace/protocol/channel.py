"""The pipe between a runtime and a connector: one bounded queue each way, under one lock.

Every transport ends in a channel. In process, the two sides share one. Over gRPC each process has its own,
and threads move messages from one to the other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from headrace.errors import HeadraceError, StreamBroken

# Enough to overlap the two sides. A message holds up to a few megabytes, so this bounds memory too.
CAPACITY = 4


class _Queue:
    def __init__(self) -> None:
        self.items: deque[object] = deque()
        self.closed = False

    @property
    def full(self) -> bool:
        return len(self.items) >= CAPACITY


class Channel:
    """Carries requests one way and responses the other. Either side can end its own direction, and an error
    ends both."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests = _Queue()
        self._responses = _Queue()
        self._overflow: deque[object] = deque()
        self._error: HeadraceError | None = None
        self._on_failure: Callable[[], object] = lambda: None

    def put_request(self, request: object) -> None:
        with self._changed:
            while self._requests.full and not self._error and not self._responses.closed:
                # A runtime may send all its loads before it reads an answer, and a connector may answer
                # each at once. When both queues are full neither would move again, so answers step aside.
                if self._responses.full:
                    self._overflow.extend(self._responses.items)
                    self._responses.items.clear()
                    self._changed.notify_all()
                else:
                    self._changed.wait()
            if self._error:
                raise self._error
            if self._responses.closed:
                raise StreamBroken("the connector ended the stream before the runtime did")
            self._requests.items.append(request)
            self._changed.notify_all()

    def put_response(self, response: object) -> None:
        with self._changed:
            while self._responses.full and not self._error:
                self._changed.wait()
            if self._error:
                raise self._error
            self._responses.items.append(response)
            self._changed.notify_all()

    def get_request(self) -> object | None:
        """Returns the next request, or `None` once the runtime has ended its side."""
        with self._changed:
            while not self._requests.items and not self._requests.closed and not self._error:
                self._changed.wait()
            if self._error:
                raise self._error
            return self._pop(self._requests.items)

    def get_response(self) -> object | None:
        """Returns the next response, or `None` once the connector has ended its side.

        Responses that the connector sent before it failed are still delivered: one may be a StartedCommit.
        """
        with self._changed:
            while not self._waiting_response and not self._responses.closed and not self._error:
                self._changed.wait()
            if not self._waiting_response and self._error:
                raise self._error
            return self._pop(self._overflow or self._responses.items)

    def end_requests(self) -> None:
        with self._changed:
            self._requests.closed = True
            self._changed.notify_all()

    def end_responses(self) -> None:
        with self._changed:
            self._responses.closed = True
            self._changed.notify_all()

    def fail(self, error: HeadraceError) -> None:
        """Ends both directions; the first error is the one that everyone sees."""
        with self._changed:
            first, self._error = self._error is None, self._error or error
            self._changed.notify_all()
        if first:
            self._on_failure()

    def on_failure(self, call: Callable[[], object]) -> None:
        """Registers a callback for code that waits for something other than this channel, and must be
        woken."""
        self._on_failure = call

    @property
    def _waiting_response(self) -> bool:
        return bool(self._overflow or self._responses.items)

    def _pop(self, items: deque[object]) -> object | None:
        item = items.popleft() if items else None
        self._changed.notify_all()
        return item
