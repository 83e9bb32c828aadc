"""Measures what open streams without anything to do cost a server.

    python -m benchmarks.idle_streams [--streams 1000]

Each stream has a connection of its own. All write once, in turn, with a schema and with one acknowledgement
for each tier, and then stay open. Memory is that of the server's process, without the committer.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time

import psutil
from rich.console import Console
from rich.table import Table

from headrace.bench.children import Child
from headrace.client import connect

MIB = 1 << 20
WRITING_SECONDS = 10
IDLE_SECONDS = 20
PATIENCE = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="how many are opened")
    streams = parser.parse_args().streams
    console = Console()
    console.print(f"Load of the machine when the run began: {os.getloadavg()[0]:.1f}")
    table = Table("streams", "server before, MiB", "while idle, MiB", "KiB a stream", "after they ended, MiB")
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as data,
        Child("headrace.bench.own_server", {"data": data, "commits": True}) as server,
    ):
        url, process = server.receive()["url"], psutil.Process(server.pid)
        before = process.memory_info().rss
        # A message each at first; at this rate the second one comes long after what is measured.
        load = {
            "url": url,
            "collection": "bench_idle",
            "clients": streams,
            "rate": streams / WRITING_SECONDS,
            "writes": 1 + IDLE_SECONDS // WRITING_SECONDS,
        }
        with Child("headrace.bench.load", load) as child:
            idle = 0
            ended = threading.Event()

            def watch() -> None:
                nonlocal idle
                while not ended.wait(0.1):
                    idle = max(idle, process.memory_info().rss)

            watcher = threading.Thread(target=watch)
            watcher.start()
            child.result()
            ended.set()
            watcher.join()
        with connect(url) as client:
            deadline = time.monotonic() + PATIENCE
            while client.health()["sessions"] and time.monotonic() < deadline:
                time.sleep(0.1)
        after = process.memory_info().rss
    growth = f"{(idle - before) / 1024 / streams:,.0f}"
    table.add_row(
        f"{streams:,}", *(f"{value / MIB:,.0f}" for value in (before, idle)), growth, f"{after / MIB:,.0f}"
    )
    console.print(table)


if __name__ == "__main__":
    main()
