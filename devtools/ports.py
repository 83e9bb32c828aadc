"""Ports for servers of tests and benchmarks, each held for one server until this process ends."""

from __future__ import annotations

import random
import socket

# Below Linux's range for outgoing connections. A port from within it may go to a client while its server is
# down, and a client that tries again and again is at last connected to itself.
_PORTS = range(20_000, 32_768)
_held: list[socket.socket] = []


def free_port() -> int:
    """Draws a port of 127.0.0.1 that nobody listens on and that no other process of ours has drawn."""
    for port in random.sample(_PORTS, len(_PORTS)):
        lock = _hold(port)
        if lock is None:
            continue
        if is_free(port):
            _held.append(lock)
            return port
        lock.close()
    raise RuntimeError(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are taken")


def is_free(port: int) -> bool:
    """True if a server could listen on the port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _hold(port: int) -> socket.socket | None:
    """Locks a port against others who draw one; None if it is locked.

    The lock is a Unix socket with an abstract name. Like a lock file, it keeps two runs of the tests apart,
    also those of two users; unlike one, it cannot be left behind by a process that is killed.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0headrace-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock
