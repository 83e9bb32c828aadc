"""The PostgreSQL connector against the same COPY and upsert done by hand with the same client library.

    python -m benchmarks.postgres [--rows 500000] [--runs 3]

Both start from the same Arrow batches in memory, go over a loopback connection to the same server, a
fresh one for each run, and end with a durable commit. By hand there is no checkpoint, no fence, no check
and no connector.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from rich.console import Console
from rich.table import Table

from benchmarks.workload import ACCOUNTS, Batch, batches, load, opened, store
from devtools.postgres_server import PostgresServer
from headrace.connectors.postgres import PostgresConnector
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import materialization_of

CREATE = """CREATE TABLE by_hand (
  id BIGINT PRIMARY KEY, name TEXT, balance DOUBLE PRECISION, active BOOLEAN, _document JSON NOT NULL)"""
STAGE = "CREATE TEMPORARY TABLE stage (c0 BIGINT, c1 TEXT, c2 DOUBLE PRECISION, c3 BOOLEAN, c4 TEXT)"
UPSERT = """INSERT INTO by_hand SELECT c0, c1, c2, c3, c4::json FROM stage ON CONFLICT (id) DO UPDATE
  SET name = excluded.name, balance = excluded.balance, active = excluded.active,
    _document = excluded._document"""


def by_hand(url: str, rows: list[Batch]) -> float:
    """Seconds for COPY into a staging table, one upsert, and the commit."""
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(STAGE)
        connection.commit()
        start = time.perf_counter()
        for batch in rows:
            columns = [*batch.keys.columns, *batch.values.columns, batch.documents]
            cursor.adbc_ingest(
                "stage",
                pa.RecordBatch.from_arrays(columns, names=[f"c{number}" for number in range(5)]),
                mode="append",
                temporary=True,
            )
        cursor.execute(UPSERT)
        connection.commit()
        return time.perf_counter() - start


class Ours:
    """The connector, driven through the protocol in process."""

    def __init__(self, url: str) -> None:
        self._client = InProcess(PostgresConnector())
        binding = ValidateBinding(ACCOUNTS, {"table": "ours"})
        self._materialization = materialization_of(self._client, "bench", "postgres", {"url": url}, [binding])
        self._client.apply(Apply(self._materialization, "1"))

    def run(self, rows: list[Batch], exists: bool) -> tuple[float, float]:
        """Seconds to store and commit, and before that to load all the keys."""
        with opened(self._client, self._materialization) as stream:
            start = time.perf_counter()
            found = load(stream, (batch.keys for batch in rows))
            loaded = time.perf_counter()
            assert found == (sum(len(batch.keys) for batch in rows) if exists else 0)
            store(stream, iter(rows), exists)
            return time.perf_counter() - loaded, loaded - start


def measure(
    url: str, connection: dbapi.Connection, generations: list[list[Batch]], ours_first: bool
) -> Iterator[tuple[str, float]]:
    """Inserts the first generation and updates it with the second, ours and by hand."""
    ours = Ours(url)

    def run_ours(name: str, rows: list[Batch], exists: bool) -> Iterator[tuple[str, float]]:
        storing, loading = ours.run(rows, exists)
        yield f"ours {name}", storing
        if exists:
            yield "ours load", loading

    def run_by_hand(name: str, rows: list[Batch], exists: bool) -> Iterator[tuple[str, float]]:
        yield f"by hand {name}", by_hand(url, rows)

    contenders = [run_ours, run_by_hand] if ours_first else [run_by_hand, run_ours]
    for name, rows, exists in (("insert", generations[0], False), ("update", generations[1], True)):
        for contender in contenders:
            # What the last step left to be written out is not for the next one to pay.
            with connection.cursor() as cursor:
                cursor.execute("CHECKPOINT")
            yield from contender(name, rows, exists)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    count = arguments.rows
    generations = [list(batches(count, generation)) for generation in range(2)]
    console = Console()
    table = Table(
        "", "ours, s", "by hand, s", "ratio", "at most", "rows/s", title=f"{count:,} rows, PostgreSQL"
    )
    seconds: dict[str, list[float]] = {}
    for run in range(arguments.runs):
        # A server of its own for each run, so that none finds what another left; and taken in turns, so
        # that whoever comes second does not always find warm caches.
        with PostgresServer() as server, dbapi.connect(server.url, autocommit=True) as connection:
            with connection.cursor() as cursor:
                cursor.execute(CREATE)
            for name, result in measure(server.url, connection, generations, ours_first=run % 2 == 0):
                seconds.setdefault(name, []).append(result)
    for name in ("insert", "update"):
        ours, theirs = min(seconds[f"ours {name}"]), min(seconds[f"by hand {name}"])
        table.add_row(
            name, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}", "1.5", f"{count / ours:,.0f}"
        )
    loading = min(seconds["ours load"])
    table.add_row("load", f"{loading:.2f}", "", "", "", f"{count / loading:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
