"""What the port says of its connections."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from typing import Any

from headrace._native import Port

log = logging.getLogger(__name__)

LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats the port takes a connection, or waits a second for one."""
_SAY_EVERY_SECONDS = 60.0
_MOST = 2_048
_DESCRIPTORS_OF_ONE = 3
"""Its own, and both ends of the one on which its calls are passed on to the server in Python."""
_DESCRIPTORS_OF_OTHERS = 256
"""The log, uploads, the catalog and the pipes of child processes have to work whoever connects."""


def most_connections() -> int:
    """Returns how many connections there may be. Asks the system for enough descriptors; with fewer, some are
    left to the log, which would refuse writes without any."""
    wanted = _DESCRIPTORS_OF_OTHERS + _MOST * _DESCRIPTORS_OF_ONE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(min(_MOST, (soft - _DESCRIPTORS_OF_OTHERS) // _DESCRIPTORS_OF_ONE), 1)


class Connections:
    """Counts the connections of a port. `look` is called often, on one thread, and logs at most once a minute
    that connections were turned away."""

    def __init__(self, port: Port, clock: Callable[[], float] = time.monotonic) -> None:
        self._port, self._clock = port, clock
        self._said = (0, 0, 0)
        self._said_at: float | None = None

    def look(self) -> None:
        full, handshake, idle = counted = self._port.turned_away()
        now = self._clock()
        is_early = self._said_at is not None and now - self._said_at < _SAY_EVERY_SECONDS
        if counted == self._said or is_early:
            return
        log.warning(
            "connections were turned away: %d because there were %d, which is the most, "
            "%d that did not finish their handshake in time, and %d that were idle and made room for others",
            full - self._said[0],
            self._port.connections()[3],
            handshake - self._said[1],
            idle - self._said[2],
        )
        self._said, self._said_at = counted, now

    @property
    def problem(self) -> str | None:
        """Why nobody else can connect."""
        open_now, idle, _, most = self._port.connections()
        if idle or open_now < most:
            return None
        return f"{open_now:,} connections are open, which is the most: others are turned away"

    def to_json(self) -> dict[str, Any]:
        open_now, idle_now, handshakes, most = self._port.connections()
        full, handshake, idle = self._port.turned_away()
        return {
            "open": open_now,
            "idle": idle_now,
            "most": most,
            "handshakes": handshakes,
            "turned_away": {"full": full, "handshake": handshake, "idle": idle},
        }
