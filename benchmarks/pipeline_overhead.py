"""What an epoch costs that has next to nothing to do: ours, next to a bare foreachBatch that counts."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.pipeline_contenders import Ours, Place, run_batches
from benchmarks.pipeline_input import Orders
from devtools.postgres_server import PostgresServer
from headrace.pipeline.progress import EpochProgress

ROWS = (1, 1_000)
_WARM_UP = 5
_KEYS = 10_000


@dataclass(frozen=True)
class Overhead:
    """Milliseconds from the end of one epoch to the end of the next, in the middle of all."""

    rows: int
    ours_ms: float
    bare_ms: float
    phases_ms: dict[str, float]
    """Of ours, from the moment at which Spark hands over the rows; and the rest, which is Spark's."""

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.bare_ms


def measure(spark: SparkSession, server: PostgresServer, folder: Path, epochs: int) -> Iterator[Overhead]:
    for rows in ROWS:
        orders = Orders(folder / f"{rows}-rows", rows, _KEYS)
        orders.add_commits(_WARM_UP + epochs + 1, rows)
        url = server.create_database(f"overhead of {rows}")

        ours = _Stopwatch(Place(spark, orders, url, folder / f"{rows}-ours", 1))
        ours.run(range(0))
        bare_ends: list[float] = []

        def count(batch: DataFrame, _: int, ends: list[float] = bare_ends) -> None:
            batch.count()
            ends.append(time.perf_counter())

        run_batches(Place(spark, orders, url, folder / f"{rows}-bare", 1), count)
        total = _between(ours.ends)
        phases = {
            name: statistics.median(getattr(one, f"{name}_ms") for one in ours.epochs[_WARM_UP:])
            for name in ("quality", "combine", "load", "store", "commit", "total")
        }
        phases["between epochs"] = total - phases.pop("total")
        yield Overhead(rows, total, _between(bare_ends), phases)


class _Stopwatch(Ours):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.ends: list[float] = []

    def epoch(self, name: str, progress: EpochProgress) -> None:
        super().epoch(name, progress)
        self.ends.append(time.perf_counter())


def _between(ends: list[float]) -> float:
    return 1000 * statistics.median(after - before for before, after in itertools.pairwise(ends[_WARM_UP:]))
