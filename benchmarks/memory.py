"""How much memory one transaction takes: documents are loaded, then stored, in a single transaction.

    python -m benchmarks.memory [--rows 2000000]

The connector runs in a process of its own, over gRPC. Its memory, and this process's, the runtime's, is
read after the first twentieth of the stores and at its highest from then on; what lies between is what
the rest of the documents took.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.served import Served, serve_noop
from benchmarks.workload import (
    ACCOUNTS,
    DOCUMENT_BYTES,
    ROWS_PER_MESSAGE,
    Batch,
    batches,
    load,
    opened,
    store,
)
from devtools.postgres_server import PostgresServer
from headrace.protocol.grpc import GrpcConnector
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import ConnectorProcess, materialization_of

MIB = 1024 * 1024


class HighWater:
    """The memory of a process when it was marked, and the most it had since."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._marked = threading.Event()
        self._stopped = threading.Event()
        self.start = self.highest = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def mark(self) -> None:
        self.start = self._process.memory_info().rss
        self._marked.set()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        self._marked.wait()
        while not self._stopped.wait(0.02):
            self.highest = max(self.highest, self._process.memory_info().rss)


def measure(
    client: GrpcConnector, pid: int, endpoint: Mapping[str, Any], resource: Mapping[str, Any], rows: int
) -> dict[str, HighWater]:
    binding = ValidateBinding(ACCOUNTS, resource)
    materialization = materialization_of(client, "bench", "any", endpoint, [binding])
    client.apply(Apply(materialization, "1"))
    marks = {"connector": HighWater(pid), "runtime": HighWater(psutil.Process().pid)}

    def marked() -> Iterator[Batch]:
        for number, batch in enumerate(batches(rows)):
            if number == rows // ROWS_PER_MESSAGE // 20:
                for mark in marks.values():
                    mark.mark()
            yield batch

    with opened(client, materialization) as stream:
        load(stream, (batch.keys for batch in batches(rows)))
        store(stream, marked(), exists=False)
        for mark in marks.values():
            mark.stop()
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    table = Table(
        "endpoint", "process", "at the start, MiB", "at most, MiB", "growth, MiB", "bytes a document"
    )
    table.title = f"One transaction of {rows:,} documents, {rows * DOCUMENT_BYTES / MIB:,.0f} MiB of JSON"
    served = Served(serve_noop)
    with served as port, GrpcConnector(f"127.0.0.1:{port}") as client:
        _report(table, "no-op", measure(client, served.pid, {}, {}, rows), rows)
    with tempfile.TemporaryDirectory() as folder, ConnectorProcess("sqlite") as connector:
        endpoint = {"path": f"{folder}/bench.db"}
        marks = measure(connector.client, connector.pid, endpoint, {"table": "accounts"}, rows)
        _report(table, "SQLite", marks, rows)
    with PostgresServer() as server, ConnectorProcess("postgres") as connector:
        marks = measure(connector.client, connector.pid, {"url": server.url}, {"table": "accounts"}, rows)
        _report(table, "PostgreSQL", marks, rows)
    Console().print(table)


def _report(table: Table, endpoint: str, marks: Mapping[str, HighWater], rows: int) -> None:
    for process, mark in marks.items():
        growth = mark.highest - mark.start
        table.add_row(
            endpoint,
            process,
            f"{mark.start / MIB:,.0f}",
            f"{mark.highest / MIB:,.0f}",
            f"{growth / MIB:,.0f}",
            f"{growth / rows:.0f}",
        )


if __name__ == "__main__":
    main()
