"""A server in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.noop_connector import NoopConnector
from headrace.protocol.grpc import GrpcServer


class Served:
    """Runs a function that sends its port when it listens; the block gets the port."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, ready = context.Pipe()
        self._process = context.Process(target=serve, args=(ready,), daemon=True)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def __enter__(self) -> int:
        self._process.start()
        return int(self._ready.recv())

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def serve_noop(ready: Connection) -> None:
    with GrpcServer(NoopConnector(), "127.0.0.1:0") as server:
        ready.send(server.port)
        server.wait()
