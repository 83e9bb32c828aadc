"""`headrace demo materialize`: exact totals in SQLite, though the connector is killed twice on the way."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace.errors import Transient
from headrace.model.collections import Collection
from headrace.model.materializations import Materialization
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing.processes import ConnectorProcess
from headrace.testing.recovery_log import FileLog
from headrace.testing.runtime import Runtime, materialization_of

ORDERS = 20_000
TRANSACTIONS = 10
CUSTOMERS = 400

SALES = Collection(
    "sales",
    ("/customer",),
    {
        "type": "object",
        "required": ["customer"],
        "reduce": {"strategy": "merge"},
        "properties": {
            "customer": {"type": "string"},
            "orders": {"type": "integer", "reduce": {"strategy": "sum"}},
            "amount": {"type": "string", "format": "decimal(18,2)", "reduce": {"strategy": "sum"}},
            "largest": {"type": "string", "format": "decimal(18,2)", "reduce": {"strategy": "maximize"}},
            "last_order": {"type": "integer"},
        },
    },
)

# In the fourth transaction while rows are being stored, and in the seventh when its commit was asked
# for and nobody knows whether it happened: only the database's own checkpoint can tell.
KILLS = {4: "sent Store", 7: "sent StartCommit"}


@click.command()
@click.option("--keep", is_flag=True, help="Leave the database behind and say where it is.")
def materialize(keep: bool) -> None:
    """Materializes made-up orders into SQLite, kills the connector on the way, and compares the totals."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        orders = made_up_orders()
        run(console, folder, orders)
        exact = report(console, folder / "sales.db", orders)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        console.print(f"The database is {folder / 'sales.db'}")
    if not exact:
        raise SystemExit(1)


def made_up_orders() -> list[dict[str, Any]]:
    draw = random.Random(2026)  # noqa: S311 - the same orders each time
    orders = []
    for number in range(ORDERS):
        amount = f"{draw.randrange(1, 50_000) / 100:.2f}"
        customer = f"customer {draw.randrange(CUSTOMERS):03}"
        orders.append(
            {"customer": customer, "orders": 1, "amount": amount, "largest": amount, "last_order": number}
        )
    return orders


def run(console: Console, folder: Path, orders: list[dict[str, Any]]) -> None:
    """Runs transactions until all orders are in, with as many connector processes as that takes."""
    console.print(
        f"[bold]{ORDERS:,} orders of {CUSTOMERS} customers, in {TRANSACTIONS} transactions, "
        "into an SQLite database[/]"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("orders"))
    kills = dict(KILLS)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("materialized", total=ORDERS)
        materialization: Materialization | None = None
        while progress.tasks[bar].completed < ORDERS:
            with ConnectorProcess("sqlite") as connector:
                materialization = materialization or _applied(connector, folder)
                _materialize(connector, materialization, folder, orders, kills, progress)


def _applied(connector: ConnectorProcess, folder: Path) -> Materialization:
    binding = ValidateBinding(SALES, {"table": "sales"})
    endpoint = {"path": str(folder / "sales.db")}
    materialization = materialization_of(connector.client, "sales", "sqlite", endpoint, [binding])
    connector.client.apply(Apply(materialization, "1"))
    return materialization


def _materialize(
    connector: ConnectorProcess,
    materialization: Materialization,
    folder: Path,
    orders: list[dict[str, Any]],
    kills: dict[int, str],
    progress: Progress,
) -> None:
    size = ORDERS // TRANSACTIONS
    say = progress.console.print
    observer = _Killer(connector)
    log = FileLog(folder / "recovery.json")
    try:
        runtime = Runtime(connector.client, materialization, log, rows_per_message=100, observer=observer)
        with runtime:
            done = runtime.checkpoint.get("orders", 0)
            say(f"  connector on {connector.address}: the database has orders up to {done:,}")
            progress.update(progress.tasks[0].id, completed=done)
            while done < ORDERS:
                number = done // size + 1
                observer.step = kills.pop(number, None)
                runtime.transact([orders[done : done + size]], {"orders": done + size})
                done += size
                progress.update(progress.tasks[0].id, completed=done)
    except Transient:
        if not observer.killed_at:
            raise
        say(f"  [red]killed with kill -9 in transaction {number}: the runtime had {observer.killed_at}[/]")


class _Killer:
    """Kills a connector at a step of the runtime."""

    def __init__(self, connector: ConnectorProcess) -> None:
        self._connector = connector
        self.step: str | None = None
        self.killed_at = ""

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.step, self.killed_at = None, step
            self._connector.kill()


def report(console: Console, database: Path, orders: list[dict[str, Any]]) -> bool:
    """Compares the view with sums over the sent orders, computed without the code under demonstration."""
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute('SELECT customer, orders, amount FROM "sales"').fetchall()
    finally:
        connection.close()
    view = {customer: (count, Decimal(amount)) for customer, count, amount in rows}
    sent: dict[str, tuple[int, Decimal]] = {}
    for order in orders:
        count, amount = sent.get(order["customer"], (0, Decimal(0)))
        sent[order["customer"]] = (count + 1, amount + Decimal(order["amount"]))
    table = Table("", "sent", "in the view", "", title="What was sent, and what the database holds")
    names = sorted(sent)
    for name in (*names[:3], names[-1]):
        _row(
            table, name, sent[name], view.get(name, (0, Decimal(0))), lambda row: f"{row[0]} orders, {row[1]}"
        )
    table.add_section()
    _row(table, "customers", len(sent), len(view), lambda number: f"{number:,}")
    _row(table, "orders", _total(sent, 0), _total(view, 0), lambda number: f"{number:,}")
    _row(table, "amount", _total(sent, 1), _total(view, 1), lambda number: f"{number:,}")
    console.print(table)
    wrong = [name for name in sent.keys() | view.keys() if view.get(name) != sent.get(name)]
    exact = not wrong
    if exact:
        console.print("[green bold]Every customer's row is exact: nothing lost, nothing counted twice.[/]")
    else:
        console.print(f"[red bold]{len(wrong)} rows differ.[/]")
    return exact


def _total(rows: dict[str, tuple[int, Decimal]], position: int) -> int | Decimal:
    return sum((row[position] for row in rows.values()), start=Decimal(0))


def _row(table: Table, name: str, sent: Any, view: Any, show: Callable[[Any], str]) -> None:
    table.add_row(name, show(sent), show(view), "[green]=[/]" if sent == view else "[red]differs[/]")
