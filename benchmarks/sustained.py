"""Whether the committer keeps up with a load that lasts: does the log grow?

    python -m benchmarks.sustained [--rate 50000] [--seconds 600] [--clients 100]

Native clients send one write a message to a server with the default settings. Once a second the server is
asked how large its log is. If that does not grow, all that is written is also committed and released.
"""

from __future__ import annotations

import argparse
import os
import threading

from rich.console import Console
from rich.table import Table

from headrace.bench.children import Child, own_server
from headrace.bench.figures import Run
from headrace.client import connect

MIB = 1 << 20
PARTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", type=int, default=50_000, help="writes a second of all clients together")
    parser.add_argument("--seconds", type=int, default=600, help="how long they write")
    parser.add_argument("--clients", type=int, default=100, help="connections, each with a stream")
    options = parser.parse_args()
    console = Console()
    console.print(f"Load of the machine when the run began: {os.getloadavg()[0]:.1f}")
    load = {
        "collection": "bench_sustained",
        "rate": options.rate,
        "seconds": options.seconds,
        "clients": options.clients,
        "silence_seconds": 300.0,
    }
    samples: list[int] = []
    with own_server() as server, connect(server.url) as client, console.status("") as status:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(1.0):
                samples.append(client.health()["log_bytes"])
                status.update(f"{len(samples)} of {options.seconds} s, log {samples[-1] / MIB:,.0f} MiB")

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            with Child("headrace.bench.load", {"url": server.url, **load}) as child:
                run = Run.from_json(child.result())
        finally:
            ended.set()
            watcher.join()
    console.print(_growth(samples[: options.seconds]))
    console.print(_latencies(run, options.rate))


def _growth(samples: list[int]) -> Table:
    """The log's size in each tenth of the run, highest and lowest, since it is released in steps."""
    table = Table("second", "log at most, MiB", "log at least, MiB", title="Size of the log")
    step = max(len(samples) // PARTS, 1)
    for start in range(0, len(samples) - step + 1, step):
        part = samples[start : start + step]
        table.add_row(f"{start + step}", f"{max(part) / MIB:,.0f}", f"{min(part) / MIB:,.0f}")
    return table


def _latencies(run: Run, rate: int) -> Table:
    title = f"{run.sent:,} writes at {rate:,}/s, {run.clients} clients, one write a message"
    table = Table("tier", "/s", "p50 ms", "p99 ms", "max ms", title=title)
    for name, tier in run.tiers.items():
        figures = (tier.latency.p50, tier.latency.p99, tier.latency.max)
        table.add_row(name, f"{tier.per_second:,.0f}", *(f"{value:,.2f}" for value in figures))
    return table


if __name__ == "__main__":
    main()
