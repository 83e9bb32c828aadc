"""Draws ports for test servers, and reserves each against other processes that draw one."""

from __future__ import annotations

import random
import socket
import sys

from headrace.errors import UnexpectedFailure

# Below Linux's range for outgoing connections. A port from within it may go to a client while its server is
# down, and a client that tries again and again is at last connected to itself.
PORTS = range(20_000, 32_768)


def draw_port() -> tuple[int, socket.socket]:
    """Draws a free port of 127.0.0.1; returns it with a lock that keeps other processes from drawing it.

    The port is held until the lock is closed, even while the server is down.
    """
    for port in random.sample(PORTS, len(PORTS)):
        lock = _hold(port)
        if lock is None:
            continue
        if is_free(port):
            return port, lock
        lock.close()
    raise UnexpectedFailure(f"all ports from {PORTS.start} to {PORTS.stop - 1} are taken")


def is_free(port: int) -> bool:
    """Returns whether a server could listen on the port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _hold(port: int) -> socket.socket | None:
    """Locks a port against other processes that draw one; returns None if it is locked.

    The lock is a Unix socket with an abstract name, which only Linux has. Like a lock file, it keeps two runs
    of the tests apart, also those of two users; unlike one, it cannot be left behind by a killed process.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if sys.platform == "linux":
            lock.bind(f"\0headrace-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock
