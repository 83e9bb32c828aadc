"""`headrace demo ingest`: every order is in the Iceberg table once, though the server is killed twice."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import time
from bisect import bisect_left
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace.client import connect
from headrace.client.receipts import Receipt
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess

ORDERS = 20_000
CUSTOMERS = 400
# After so many orders the server is killed, with some of them in its memory, some on its disk, some further.
KILLS = (7_000, 14_000)
_POLL_SECONDS = 0.05


@click.command()
@click.option("--keep", is_flag=True, help="Leave the data folder behind and say where it is.")
def ingest(keep: bool) -> None:
    """Writes made-up orders to a server that is killed on the way, and compares the Iceberg table."""
    logging.getLogger("headrace.client").setLevel(logging.ERROR)  # that it reconnects is no surprise here
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        orders = made_up_orders()
        table = run(console, folder / "data", orders)
        exact = report(console, orders, table)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        console.print(f"The data folder is {folder / 'data'}")
    if not exact:
        raise SystemExit(1)


def made_up_orders() -> list[pa.RecordBatch]:
    draw = random.Random(2026)  # noqa: S311 - the same orders each time
    return [
        pa.record_batch(
            {"id": [number], "customer": [draw.randrange(CUSTOMERS)], "cents": [draw.randrange(1, 100_000)]}
        )
        for number in range(ORDERS)
    ]


def run(console: Console, data: Path, orders: list[pa.RecordBatch]) -> pa.Table:
    """Sends each order as a separate write; returns the final contents of the table."""
    console.print(f"[bold]{len(orders):,} orders, each a write of its own, into an Iceberg table[/]")
    bars = (TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn())
    with IngestProcess(data) as server, Progress(*bars, console=console) as progress:
        progress.console.print(f"  the server listens on {server.url}")
        followed = _Followed(progress, len(orders))
        with connect(server.url) as client, client.writer("orders") as writer:
            for number, order in enumerate(orders):
                if number in KILLS:
                    followed.receipts[number // 2].wait(Tier.LOCAL_DISK)
                    server.kill()
                    progress.console.print(f"  [red]killed with kill -9 after order {number:,}[/]")
                    server.start()
                followed.receipts.append(writer.write(order))
                if number % 500 == 0:
                    followed.show()
            while followed.show() < len(orders):
                time.sleep(_POLL_SECONDS)
    return committed_rows(data)


class _Followed:
    """Shows as bars how many writes have reached each tier."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.receipts: list[Receipt] = []
        self._progress = progress
        self._bars = {tier: progress.add_task(tier.name, total=total) for tier in Tier}

    def show(self) -> int:
        """Updates the bars, and returns how many writes are committed."""
        count = 0
        for tier, bar in self._bars.items():
            count = bisect_left(self.receipts, True, key=lambda receipt: _is_below(receipt, tier))
            self._progress.update(bar, completed=count)
        return count


def _is_below(receipt: Receipt, tier: Tier) -> bool:
    if receipt.error is not None:
        raise receipt.error
    return receipt.level is None or receipt.level < tier


def committed_rows(data: Path) -> pa.Table:
    """Returns what any reader of the table sees, without using the code under demonstration."""
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{data}/catalog.db", warehouse=f"file://{data}/warehouse")
    return catalog.load_table("headrace.orders").scan().to_arrow()


def report(console: Console, orders: list[pa.RecordBatch], rows: pa.Table) -> bool:
    sent = pa.Table.from_batches(orders)
    table = Table("", "sent", "in the table", "", title="What was sent, and what the Iceberg table holds")
    exact = True
    for name, was_sent, is_there in [
        ("orders", len(sent), len(rows)),
        ("different ids", len(pc.unique(sent["id"])), len(pc.unique(rows["id"]))),
        ("cents", pc.sum(sent["cents"]).as_py(), pc.sum(rows["cents"]).as_py() or 0),
    ]:
        same = was_sent == is_there
        exact = exact and same
        table.add_row(name, f"{was_sent:,}", f"{is_there:,}", "[green]=[/]" if same else "[red]differs[/]")
    console.print(table)
    if exact:
        console.print("[green bold]Every order is there once: nothing lost, nothing written twice.[/]")
    return exact
