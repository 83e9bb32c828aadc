"""Ports for the servers of tests and benchmarks. Each port is reserved until this process ends."""

from __future__ import annotations

import random
import socket

# Below Linux's ephemeral port range. A port inside that range may be given to a client while the server is
# down, and a client that keeps retrying eventually connects to itself.
_PORTS = range(20_000, 32_768)
_held: list[socket.socket] = []


def free_port() -> int:
    """Picks a port of 127.0.0.1 that is free and that no other process of ours has reserved."""
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
    """True if a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _hold(port: int) -> socket.socket | None:
    """Reserves a port; returns None if another process has reserved it.

    The lock is a Unix socket with an abstract name. Like a lock file it works across test runs and users, but
    a process that is killed cannot leave it behind.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0headrace-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock
