"""Rows a second into each two-phase-commit sink, next to Spark's own writer of the same format.

    python -m benchmarks.sinks [--quick] [--rows 5000000] [--only iceberg] [--runs 2] [--json]

Both write the same Parquet files, read by one Spark session of two cores. Ours prepares the rows under an
epoch, writes the decision to a recovery log and commits; the other appends them, and nothing keeps it from
doing so twice. Both write a tenth of the rows first, for Java to compile what they need. Then they take
turns, in the one order and in the other, and the best of each counts. Nothing is reported unless both places
hold as many rows as were given.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.sink_peers import PEERS, Peer, Stage
from devtools.kafka_broker import KafkaBroker
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.objects import ObjectStore
from headrace.pipeline.recovery_log import Decision, RecoveryLog
from headrace.sinks.contract import Epoch, RowSink
from headrace.sinks.registry import find_sink
from headrace.spark.catalogs import catalog_conf, needs_of
from headrace.spark.jars import Jar, fetch_jars
from headrace.spark.lines import Needs
from headrace.spark.session import SparkSettings, make_session

GOAL = 0.8
QUICK_ROWS = 100_000
SMALL_ROWS = 1_000
_DELTA = (Jar("io.delta", "delta-spark_2.12", "3.3.3"),)
_DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


class Phases(NamedTuple):
    """Seconds of each, of one epoch."""

    prepare: float
    decide: float
    commit: float


@dataclass(frozen=True)
class Result:
    format: str
    rows: int
    ours_seconds: float
    prepare_seconds: float
    decide_seconds: float
    commit_seconds: float
    peer_seconds: float
    small_prepare_ms: float
    small_decide_ms: float
    small_commit_ms: float
    small_peer_ms: float

    @property
    def ratio(self) -> float:
        """Of our rows a second to those of Spark's own writer."""
        return self.peer_seconds / self.ours_seconds


class Ours:
    """Epochs of one sink, one after the other, with a recovery log on the local disk."""

    def __init__(self, sink: RowSink, state: Path) -> None:
        self._sink, self._epoch = sink, -1
        self._log = RecoveryLog(ObjectStore(state.as_uri()), f"materializations/{sink.name}/log")
        self._fence = self._log.open().fence
        sink.start(None, None, self._fence)

    def write(self, rows: DataFrame) -> Phases:
        self._epoch += 1
        checkpoint = {"epoch": self._epoch}
        epoch = Epoch(self._epoch, self._fence, checkpoint, lambda: None)
        began = time.perf_counter()
        handle = self._sink.prepare(epoch, rows.selectExpr("*", f"cast({self._epoch} as bigint) as _epoch"))
        prepared = time.perf_counter()
        self._log.decide(Decision(self._epoch, checkpoint, {self._sink.name: handle}))
        decided = time.perf_counter()
        self._sink.commit(self._epoch, handle)
        return Phases(prepared - began, decided - prepared, time.perf_counter() - decided)


class Theirs:
    """What Spark's own writer appends, under a number each time, as ours does."""

    def __init__(self, peer: Peer) -> None:
        self._peer, self._epoch = peer, -1

    def write(self, rows: DataFrame) -> float:
        self._epoch += 1
        began = time.perf_counter()
        self._peer.write(rows.selectExpr("*", f"cast({self._epoch} as bigint) as _epoch"))
        return time.perf_counter() - began


def measure(spark: SparkSession, stage: Stage, kind: type[Peer], epochs: int, runs: int) -> Result:
    peer = kind(stage)
    ours = Ours(find_sink(kind.format).open(kind.format, peer.place, spark), stage.home / "state")
    theirs = Theirs(peer)
    of_ours, of_theirs = _in_turns(ours, theirs, stage.rows(spark), runs, stage.warm(spark))
    small_ours, small_theirs = _in_turns(ours, theirs, stage.small(spark), epochs, stage.small(spark))
    expected = stage.count * runs + stage.warm_count + SMALL_ROWS * (1 + epochs)
    for whose, count in (("ours", peer.count_ours()), ("Spark's", peer.count_theirs())):
        if count != expected:
            raise SystemExit(f"{kind.format}, {whose}: {count} rows of {expected}: nothing is reported")
    best = min(of_ours, key=sum)
    return Result(
        kind.format,
        stage.count,
        sum(best),
        *best,
        min(of_theirs),
        1000 * statistics.median(phases.prepare for phases in small_ours),
        1000 * statistics.median(phases.decide for phases in small_ours),
        1000 * statistics.median(phases.commit for phases in small_ours),
        1000 * statistics.median(small_theirs),
    )


def _in_turns(
    ours: Ours, theirs: Theirs, rows: DataFrame, runs: int, warm: DataFrame
) -> tuple[list[Phases], list[float]]:
    """How long each took, after both have written `warm`."""
    ours.write(warm)
    theirs.write(warm)
    of_ours: list[Phases] = []
    of_theirs: list[float] = []
    for number in range(runs):
        for is_ours in (number % 2 == 0, number % 2 != 0):
            os.sync()  # or whoever comes next shares the disk with what was just written
            if is_ours:
                of_ours.append(ours.write(rows))
            else:
                of_theirs.append(theirs.write(rows))
    return of_ours, of_theirs


def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Result]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        catalog = embedded_catalog(home)
        names = arguments.only or list(PEERS)
        say("starting Spark" + (" and Kafka" if "kafka" in names else ""))
        broker = stack.enter_context(KafkaBroker()) if "kafka" in names else None
        jars = fetch_jars("spark-3.5-delta", _DELTA)
        conf = {
            "spark.driver.memory": "4g",
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
            **_DELTA_CONF,
            **catalog_conf(catalog),
        }
        needs = {*needs_of(catalog), Needs.KAFKA, Needs.HUDI}
        spark = make_session(SparkSettings("local[2]", conf), "headrace-bench", needs)
        stack.callback(spark.stop)
        say(f"writing {arguments.rows:,} rows to read")
        stage = Stage(home, arguments.rows, SMALL_ROWS, catalog, broker)
        stage.make(spark)
        for name in names:
            say(name)
            result = measure(spark, stage, PEERS[name], arguments.epochs, arguments.runs)
            say(f"  {result.ratio:.2f} of Spark's own writer")
            yield result


def show(console: Console, results: list[Result]) -> None:
    table = Table(title=f"Append of {results[0].rows:,} rows")
    for heading in ("", "ours, rows/s", "decide and commit", "Spark's own, rows/s", "ratio", "goal", ""):
        table.add_column(heading, justify="right")
    for one in results:
        met = "[green]met[/]" if one.ratio >= GOAL else "[red]missed[/]"
        table.add_row(
            one.format,
            f"{one.rows / one.ours_seconds:,.0f}",
            f"{one.decide_seconds + one.commit_seconds:.2f} s of {one.ours_seconds:.1f}",
            f"{one.rows / one.peer_seconds:,.0f}",
            f"{one.ratio:.2f}",
            f"at least {GOAL:g}",
            met,
        )
    console.print(table)
    table = Table(title=f"An epoch of {SMALL_ROWS:,} rows, median, ms")
    for heading in ("", "prepare", "decide", "commit", "Spark's own", "two phases cost"):
        table.add_column(heading, justify="right")
    for one in results:
        ours = (one.small_prepare_ms, one.small_decide_ms, one.small_commit_ms)
        figures = (*ours, one.small_peer_ms, sum(ours) - one.small_peer_ms)
        table.add_row(one.format, *(f"{figure:,.0f}" for figure in figures))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, help="of the large epoch; 5,000,000")
    parser.add_argument("--epochs", type=int, default=7, help="of 1,000 rows")
    parser.add_argument("--runs", type=int, default=2, help="the best of so many is reported")
    parser.add_argument("--only", action="append", choices=list(PEERS))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, to see that it works")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    arguments = parser.parse_args()
    arguments.rows = arguments.rows or (QUICK_ROWS if arguments.quick else 5_000_000)
    progress = Console(stderr=True, highlight=False)
    began = time.perf_counter()

    def say(text: str) -> None:
        so_far = f"{time.perf_counter() - began:5.0f} s, load {os.getloadavg()[0]:4.1f}"
        progress.print(f"[dim]{so_far}[/]  {text}", soft_wrap=True)

    results = list(run(arguments, say))
    if arguments.json:
        figures: list[dict[str, Any]] = [{**vars(one), "ratio": one.ratio} for one in results]
        print(json.dumps(figures, indent=1))
    else:
        show(Console(), results)


if __name__ == "__main__":
    main()
