"""`headrace demo`: the whole product, from writes to a view, though server and pipeline are killed."""

from __future__ import annotations

import logging
import shutil
import signal
import sqlite3
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headrace.cli.demo.comparison import bad_count, report
from headrace.cli.demo.needed import check_installed
from headrace.cli.demo.pipeline_process import PipelineProcess
from headrace.cli.demo.sales import COLLECTION, VIEW, Places, made_up_orders
from headrace.client import connect
from headrace.client.receipts import Receipt
from headrace.client.writer import Writer
from headrace.config import load_config
from headrace.errors import UnexpectedFailure
from headrace.model.tiers import Tier
from headrace.pipeline.runtime_checkpoint import read_checkpoint
from headrace.pipeline.sources.lag import lag_of
from headrace.pipeline.state_paths import open_recovery_log
from headrace.testing.ingest_process import IngestProcess

# Slow enough to watch, and so that there is something to write while Spark starts for the second time.
ORDERS_A_SECOND = 500
# The share of the orders after which the server is killed.
SERVER_KILLED_AT = 0.3
# Up to this share they are written before the first epoch, however long Spark takes to start.
FIRST_SHARE = 0.4
# After this share they come slowly until the pipeline was killed, so that there is an epoch to kill it in.
SECOND_SHARE, SLOWLY = 0.65, 50
# Epochs that are in the view when the pipeline is killed.
EPOCHS_BEFORE = 2
_TICK_SECONDS = 0.02
_LOOK_SECONDS = 0.4
# Several times what a busy machine takes.
_GIVE_UP_SECONDS = 600.0


@click.command()
@click.option("--keep", is_flag=True, help="Leave the folder behind and say what is in it.")
def pipeline(keep: bool) -> None:
    """Writes made-up orders, some of them bad, and keeps a view of the good ones in SQLite.

    The server is killed on the way, and the pipeline in the middle of an epoch. In the end the view is
    compared, row for row, with what DuckDB makes of the orders that were sent.
    """
    check_installed()
    logging.getLogger("headrace.client").setLevel(logging.ERROR)  # that it reconnects is no surprise here
    console = Console(highlight=False)
    began = time.monotonic()
    exact = False
    with _unwound_by_signals():
        places = Places(Path(tempfile.mkdtemp(prefix="headrace-demo-")))
        try:
            places.write_file()
            orders = made_up_orders()
            Demo(console, places, orders).run()
            exact = report(console, places, orders)
            console.print(f"This took {time.monotonic() - began:.0f} s.")
        finally:
            if keep:
                _say_what_is_kept(console, places)
            else:
                shutil.rmtree(places.folder, ignore_errors=True)
    if not exact:
        raise SystemExit(1)


class Demo:
    """One loop that writes, observes, kills and reports."""

    def __init__(self, console: Console, places: Places, orders: pa.Table) -> None:
        self._console, self._places = console, places
        self._writes = [orders.slice(number, 1).to_batches()[0] for number in range(len(orders))]
        self._bad = bad_count(orders)
        self._receipts: list[Receipt] = []
        self._epochs = 0
        self._server_killed = False
        self._epoch_killed: int | None = None
        self._next_write = self._next_look = 0.0
        self._progress = Progress(
            TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn(), console=console
        )

    def run(self) -> None:
        """Returns once everything that was sent has arrived."""
        self._console.print(
            f"[bold]{len(self._writes):,} orders, {self._bad:,} of them bad, each a write of its own, into "
            "an Iceberg table, and the good ones into a view in SQLite[/]"
        )
        with PipelineProcess(self._places) as pipeline:
            pipeline.start()  # before the server, since it takes longer
            with IngestProcess(self._places.data, "--config", str(self._places.file)) as server:
                self._follow(server, pipeline)
            self._tell(pipeline)

    def _follow(self, server: IngestProcess, pipeline: PipelineProcess) -> None:
        with connect(server.url) as client, client.writer(COLLECTION) as writer, self._progress:
            self._say(f"the server listens on {server.url}; Spark starts")
            self._bars()
            self._carry(server, pipeline, writer)
        pipeline.stop()

    def _carry(self, server: IngestProcess, pipeline: PipelineProcess, writer: Writer) -> None:
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        self._next_write = time.monotonic()
        while not self._has_arrived():
            if time.monotonic() > give_up:
                raise UnexpectedFailure(f"not everything has arrived in {_GIVE_UP_SECONDS:.0f} s")
            self._write(writer)
            self._kill_server(server)
            self._kill_pipeline(pipeline)
            pipeline.check()
            self._tell(pipeline)
            time.sleep(_TICK_SECONDS)

    def _write(self, writer: Writer) -> None:
        """Writes the orders that are due by now."""
        most = len(self._writes) if self._epochs else int(len(self._writes) * FIRST_SHARE)
        now = time.monotonic()
        while self._next_write <= now and len(self._receipts) < most:
            self._receipts.append(writer.write(self._writes[len(self._receipts)]))
            is_slow = self._epoch_killed is None and len(self._receipts) > len(self._writes) * SECOND_SHARE
            self._next_write += 1 / (SLOWLY if is_slow else ORDERS_A_SECOND)
        if len(self._receipts) == most:
            self._next_write = now

    def _kill_server(self, server: IngestProcess) -> None:
        if self._server_killed:
            if not server.is_running:
                raise UnexpectedFailure("the server has ended by itself")
            return
        sent = len(self._receipts)
        if sent < len(self._writes) * SERVER_KILLED_AT:
            return
        self._server_killed = True
        at = ", ".join(f"{self._reached(tier):,} at {tier.name}" for tier in Tier)
        server.kill()
        self._say(f"[red]the server is killed with kill -9 after {sent:,} orders: {at}[/]")
        server.begin()  # the writer finds it again, and resends what was not durable

    def _kill_pipeline(self, pipeline: PipelineProcess) -> None:
        if self._epoch_killed is not None or not self._server_killed:
            return
        self._epoch_killed = pipeline.kill_in_an_epoch(after=EPOCHS_BEFORE - 1)
        if self._epoch_killed is not None:
            self._say(
                f"[red]the pipeline is killed with kill -9 in the middle of epoch {self._epoch_killed}: it "
                "is planned, its dead letters are staged, and it is not decided[/]"
            )
            pipeline.start()

    def _tell(self, pipeline: PipelineProcess) -> None:
        for news in pipeline.news():
            match news["event"]:
                case "planned":
                    self._say(f"the pipeline has started: {news['guarantee']}")
                case "epoch":
                    self._epochs += 1
                    again = news["epoch"] == self._epoch_killed
                    self._say(_epoch_line(news) + (" (the epoch of the kill, run again)" if again else ""))

    def _has_arrived(self) -> bool:
        """Shows how far everything is, and returns whether the pipeline has nothing left to read."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._show()
        everything = self._epoch_killed is not None and self._reached(Tier.COMMITTED) == len(self._writes)
        arrived = everything and is_read(self._places)
        self._next_look = time.monotonic() + _LOOK_SECONDS
        return arrived

    def _reached(self, tier: Tier) -> int:
        return bisect_left(self._receipts, True, key=lambda receipt: _is_below(receipt, tier))

    def _bars(self) -> None:
        total = len(self._writes)
        for tier in Tier:
            self._progress.add_task(tier.name, total=total)
        self._progress.add_task("VIEW", total=total - self._bad)
        self._progress.add_task("dead letters", total=self._bad)

    def _show(self) -> None:
        counts = [self._reached(tier) for tier in Tier]
        counts += [orders_in_view(self._places), dead_letter_count(self._places)]
        for task, count in zip(self._progress.tasks, counts, strict=True):
            self._progress.update(task.id, completed=count)

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}")


def orders_in_view(places: Places) -> int:
    """Returns how many orders the rows of the view represent."""
    if not places.database.exists():
        return 0
    with closing(sqlite3.connect(f"{places.database.as_uri()}?mode=ro", uri=True)) as database:
        try:
            ((count,),) = database.execute(f'SELECT sum(orders) FROM "{VIEW}"')  # noqa: S608 - a constant
        except sqlite3.OperationalError:  # there is no table yet
            return 0
    return count or 0


def dead_letter_count(places: Places) -> int:
    return sum(pq.read_metadata(file).num_rows for file in places.dead_letters.glob("epoch=*/*.parquet"))


def is_read(places: Places) -> bool:
    """Returns whether the pipeline has decided everything that is committed to the collection's table."""
    settings = load_config(places.file).pipeline_settings()
    (one,) = settings.materializations
    recovered = open_recovery_log(settings, VIEW).read()
    checkpoint = read_checkpoint(recovered.runtime_checkpoint, VIEW, "recovery log")
    return lag_of(0, one.bindings[0], checkpoint, settings.catalog).rows == 0


def _is_below(receipt: Receipt, tier: Tier) -> bool:
    if receipt.error is not None:
        raise receipt.error
    return receipt.level is None or receipt.level < tier


def _epoch_line(epoch: dict[str, Any]) -> str:
    counts = f"{epoch['read']:,} read, {epoch['good']:,} good, {epoch['dead']:,} dead"
    return f"epoch {epoch['epoch']} is decided: {counts}, {epoch['keys']:,} rows of the view"


def _say_what_is_kept(console: Console, places: Places) -> None:
    lines = [
        f"Everything is in {places.folder}:",
        f"  sqlite3 {places.database} 'SELECT * FROM {VIEW}'",  # noqa: S608 - for people
        f"  headrace status {places.file}",
        f"  headrace dead-letter list {places.file}",
        f"  headrace serve --config {places.file}",
        f"  headrace run {places.file}",
    ]
    console.print("\n".join(lines), soft_wrap=True, markup=False)


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """Lets a demo that is told to stop clean up first, as it does on Ctrl-C."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
