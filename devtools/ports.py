"""Ports for servers of tests and benchmarks, each held for one server until this process ends."""

from __future__ import annotations

import socket

from headrace.testing.ports import draw_port

_held: list[socket.socket] = []


def free_port() -> int:
    """Draws a port of 127.0.0.1 that nobody listens on and that no other process of ours has drawn."""
    port, lock = draw_port()
    _held.append(lock)
    return port
