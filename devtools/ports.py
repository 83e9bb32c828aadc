"""Ports for servers of tests and benchmarks, each held for one server until this process ends."""

from __future__ import annotations

from headrace.testing.ports import draw_port


def free_port() -> int:
    """Draws a port of 127.0.0.1 that nobody listens on and that no other process of ours has drawn."""
    port, lock = draw_port()
    lock.detach()  # keeps the descriptor, and with it the lock, open until this process ends
    return port
