"""SQLite by a connector that is served over gRPC, in a process of its own, through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.certify.proxy import Proxy
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.target import Place
from headrace.testing.processes import ConnectorProcess


class ServedSqliteTarget(SqliteTarget):
    name = "sqlite-grpc"

    @contextmanager
    def running(self) -> Iterator[None]:
        with ConnectorProcess("sqlite") as process:
            host, _, port = process.address.rpartition(":")
            with Proxy(host, int(port)) as self.proxy:
                yield

    def place(self, lane: str) -> Place:
        assert self.proxy is not None, "a connector has an address only while it runs"
        place = super().place(lane)
        connector = {"name": "sqlite", "grpc": self.proxy.address}
        return Place({**place.materialization, "connector": connector}, place.binding)
