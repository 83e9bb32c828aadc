"""Rows a second from a collection into PostgreSQL, next to what else does it and to what the machine can do.

    python -m benchmarks.pipeline [--quick] [--rows 2000000] [--keys 500000] [--runs 1] [--json]

All read the same files of one Iceberg table, two in each of four epochs, in one Spark session (but dlt, which
has none), and end with a durable commit in one server, each in a database of its own. The insert-heavy stream
has new keys in each epoch, with several rows for a key; the update-heavy one has rows for any of the keys
that are there by then. Nothing is reported unless all tables hold exactly what the input says.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import pipeline_dlt, pipeline_overhead
from benchmarks.pipeline_contenders import Contender, Floor, JdbcMerge, Ours, Place
from benchmarks.pipeline_dlt import Dlt, DltOfLast
from benchmarks.pipeline_input import EPOCHS, Orders, content_of, execute
from benchmarks.pipeline_overhead import Overhead
from devtools.postgres_server import PostgresServer
from headrace.pipeline.progress import EpochProgress
from headrace.spark.lines import Needs
from headrace.spark.session import SparkSettings, make_session

CONTENDERS: dict[str, type[Contender]] = {
    "ours": Ours,
    "jdbc": JdbcMerge,
    "dlt": Dlt,
    "dlt-of-last": DltOfLast,
    "floor": Floor,
}
PHASES = ("insert", "update")
FLOOR_GOAL = 1.5
QUICK_ROWS, QUICK_KEYS = 100_000, 25_000
_WARM_UP_ROWS = 400_000


@dataclass
class Results:
    rows: int
    keys: int
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """By phase and contender; the best of all runs."""
    epochs: dict[str, list[EpochProgress]] = field(default_factory=dict)
    """Of ours, in the best run of a phase."""
    overheads: list[Overhead] = field(default_factory=list)

    def add(self, phase: str, contender: str, seconds: float, epochs: list[EpochProgress]) -> None:
        best = self.seconds.setdefault(phase, {})
        if seconds < best.get(contender, float("inf")):
            best[contender] = seconds
            if epochs:
                self.epochs[phase] = epochs

    def ratio(self, phase: str, contender: str) -> float | None:
        """Ours to a contender's: how many times as long it takes."""
        seconds = self.seconds[phase]
        return seconds["ours"] / seconds[contender] if "ours" in seconds else None

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "keys": self.keys,
            "phases": {
                phase: {
                    name: {
                        "seconds": seconds,
                        "rows_per_second": self.rows / seconds,
                        "ours_to_this": self.ratio(phase, name),
                    }
                    for name, seconds in contenders.items()
                }
                for phase, contenders in self.seconds.items()
            },
            "epochs": {phase: [one.to_json() for one in epochs] for phase, epochs in self.epochs.items()},
            "overheads": [{**vars(one), "ratio": one.ratio} for one in self.overheads],
        }


class Benchmark:
    def __init__(self, arguments: argparse.Namespace, names: list[str], say: Callable[[str], None]) -> None:
        self._arguments, self._names, self._say = arguments, names, say
        self._home = Path()
        self._spark: SparkSession

    def run(self) -> Results:
        arguments = self._arguments
        results = Results(arguments.rows, arguments.keys)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as home:
            self._home = Path(home)
            self._say("starting Spark")
            conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
            needs = {Needs.ICEBERG, Needs.SQLITE, Needs.POSTGRES}
            self._spark = make_session(SparkSettings("local[2]", conf), "headrace-bench", needs)
            try:
                with PostgresServer() as server:
                    # Spark's first rows are its slowest, and whoever comes first would pay for them.
                    self._pass(server, "warm-up", _WARM_UP_ROWS, _WARM_UP_ROWS // 4, self._names, None)
                for number in range(arguments.runs):
                    # Another order each time, so that nobody always comes after the same.
                    names = self._names if number % 2 == 0 else self._names[::-1]
                    with PostgresServer() as server:
                        name = f"run {number + 1} of {arguments.runs}"
                        self._pass(server, name, arguments.rows, arguments.keys, names, results)
                if arguments.epochs:
                    self._overhead(results)
            finally:
                self._spark.stop()
        return results

    def _pass(
        self,
        server: PostgresServer,
        name: str,
        rows: int,
        keys: int,
        names: list[str],
        results: Results | None,
    ) -> None:
        # Or what one has left would be cleaned up while another is measured.
        execute(server.url, "ALTER SYSTEM SET autovacuum = off")
        # As our connector has it for itself; with the default the joins of large merges go to disk.
        execute(server.url, "ALTER SYSTEM SET work_mem = '64MB'")
        execute(server.url, "SELECT pg_reload_conf()")
        folder = self._home / name.replace(" ", "-")
        orders = Orders(folder / "collection", rows, keys)
        self._say(f"{name}: writing {rows:,} rows over {keys:,} keys")
        orders.add_inserts()
        contenders = [
            CONTENDERS[one](Place(self._spark, orders, server.create_database(one), folder / one))
            for one in names
        ]
        for index, phase in enumerate(PHASES):
            if phase == "update":
                self._say(f"{name}: writing {rows:,} rows more")
                orders.add_updates()
                for contender in contenders:
                    execute(contender.place.url, f"VACUUM ANALYZE {contender.table}")
            for one, contender in zip(names, contenders, strict=True):
                execute(server.url, "CHECKPOINT")
                seconds = _timed(contender, range(index * EPOCHS, (index + 1) * EPOCHS))
                self._say(f"{name}: {phase}, {contender.name}: {seconds:.1f} s, {rows / seconds:,.0f} rows/s")
                epochs = contender.epochs[-EPOCHS:] if isinstance(contender, Ours) else []
                for progress in epochs:
                    self._say(f"  {progress.line()}")
                if results is not None:
                    results.add(phase, one, seconds, epochs)
            self._check(orders, contenders, server.url)

    def _check(self, orders: Orders, contenders: list[Contender], url: str) -> None:
        expected = orders.expected(url)
        for contender in contenders:
            found = content_of(contender.place.url, contender.table)
            if found != expected:
                raise SystemExit(
                    f"{contender.name} has {found}, and the input makes {expected}: nothing is reported"
                )

    def _overhead(self, results: Results) -> None:
        self._say("epochs of a few rows")
        with PostgresServer() as server:
            for one in pipeline_overhead.measure(
                self._spark, server, self._home / "overhead", self._arguments.epochs
            ):
                self._say(
                    f"  {one.rows:,} rows: {one.ours_ms:.0f} ms, bare foreachBatch {one.bare_ms:.0f} ms"
                )
                results.overheads.append(one)


def _timed(contender: Contender, epochs: range) -> float:
    os.sync()  # or whoever comes first shares the disk with what was just written for all
    start = time.perf_counter()
    contender.run(epochs)
    return time.perf_counter() - start


def show(console: Console, results: Results) -> None:
    for phase, contenders in results.seconds.items():
        table = Table(title=f"{phase}-heavy: {results.rows:,} rows over {results.keys:,} keys")
        table.add_column("")
        for heading in ("seconds", "rows/s", "ours takes, times", "goal", ""):
            table.add_column(heading, justify="right")
        for name, seconds in contenders.items():
            most = FLOOR_GOAL if name == "floor" else 1.0
            ratio = results.ratio(phase, name)
            cells = ["", "", ""]
            if name != "ours" and ratio is not None:
                met = "[green]met[/]" if ratio <= most else "[red]missed[/]"
                cells = [f"{ratio:.2f}", f"at most {most:g}", met]
            table.add_row(CONTENDERS[name].name, f"{seconds:.1f}", f"{results.rows / seconds:,.0f}", *cells)
        console.print(table)
    if results.overheads:
        table = Table(title="From the end of one epoch to the end of the next, median, ms")
        table.add_column("rows")
        for heading in ("ours", "bare foreachBatch", "ratio", "of ours"):
            table.add_column(heading, justify="right")
        for one in results.overheads:
            parts = ", ".join(f"{name} {ms:.0f}" for name, ms in one.phases_ms.items() if ms >= 0.5)
            figures = (f"{one.ours_ms:.0f}", f"{one.bare_ms:.0f}", f"{one.ratio:.2f}")
            table.add_row(f"{one.rows:,}", *figures, parts)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, help="in each of the two streams")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--runs", type=int, default=1, help="the best of so many is reported")
    parser.add_argument("--epochs", type=int, default=15, help="of a few rows each; 0 to leave them out")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, to see that it works")
    parser.add_argument("--without", action="append", default=[], choices=list(CONTENDERS))
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    arguments = parser.parse_args()
    arguments.rows = arguments.rows or (QUICK_ROWS if arguments.quick else 2_000_000)
    arguments.keys = arguments.keys or (QUICK_KEYS if arguments.quick else 500_000)
    names = [name for name in CONTENDERS if name not in arguments.without]
    if any(issubclass(CONTENDERS[name], Dlt) for name in names) and not pipeline_dlt.is_installed():
        raise SystemExit(pipeline_dlt.MISSING)
    progress = Console(stderr=True, highlight=False)
    began = time.perf_counter()

    def say(text: str) -> None:
        so_far = f"{time.perf_counter() - began:5.0f} s, load {os.getloadavg()[0]:4.1f}"
        progress.print(f"[dim]{so_far}[/]  {text}", soft_wrap=True)

    results = Benchmark(arguments, names, say).run()
    if arguments.json:
        print(json.dumps(results.to_json(), indent=1))
    else:
        show(Console(), results)


if __name__ == "__main__":
    main()
