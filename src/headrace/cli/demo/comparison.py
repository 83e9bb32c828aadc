"""Compares the view and the dead letters with DuckDB's result for the orders that were sent.

The code under demonstration takes no part: DuckDB checks and sums the generated orders, and the view is read
with SQLite's own library.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headrace.cli.demo.sales import MISSING_CUSTOMER, NOT_POSITIVE, UNKNOWN_CHANNEL, VIEW, Places

# When an order is bad, by the rule that has to find it.
_IS_BAD = {
    MISSING_CUSTOMER: "customer IS NULL",
    NOT_POSITIVE: "amount <= 0",
    UNKNOWN_CHANNEL: "channel NOT IN ('web', 'shop', 'phone')",
}
_ANY = " OR ".join(_IS_BAD.values())
_SUMS = f"""
    SELECT customer, count(*), sum(amount), max(amount), max(last_order)
    FROM sent WHERE NOT ({_ANY}) GROUP BY customer ORDER BY customer
"""  # noqa: S608 - constants
_LETTERS = "SELECT rules, row FROM read_parquet(?, hive_partitioning = true)"


@dataclass(frozen=True)
class Row:
    """A customer's row of the view."""

    orders: int
    amount: Decimal
    largest: Decimal
    last_order: int

    def __str__(self) -> str:
        """Most rows have the same width, so that their columns align, two in 80 columns of a terminal."""
        return f"{self.orders} {self.amount:>9} {self.largest:>6} {self.last_order:>5}"


_NONE = "nothing"


def bad_count(orders: pa.Table) -> int:
    ((count,),) = _ask(orders, f"SELECT count(*) FROM sent WHERE {_ANY}")  # noqa: S608 - constants
    return int(count)


def report(console: Console, places: Places, orders: pa.Table) -> bool:
    """Shows both comparisons, and returns whether everything is as expected."""
    wrong_rows = _compare_view(console, expected_view(orders), stored_view(places))
    wrong_letters = _compare_letters(console, orders, dead_letters(places))
    if wrong_rows:
        console.print(f"[red bold]{wrong_rows} rows of the view differ.[/]")
    if wrong_letters:
        console.print(f"[red bold]{wrong_letters} orders are not in the dead letters as they should be.[/]")
    if wrong_rows or wrong_letters:
        return False
    console.print(
        "[green bold]Every row of the view is exact, and every bad order is in the dead letters once: "
        "nothing lost, nothing counted twice.[/]"
    )
    return True


def expected_view(orders: pa.Table) -> dict[str, Row]:
    return {customer: Row(*rest) for customer, *rest in _ask(orders, _SUMS)}


def stored_view(places: Places) -> dict[str, Row]:
    columns = "customer, orders, amount, largest, last_order"
    with closing(sqlite3.connect(places.database)) as database:
        rows = database.execute(f'SELECT {columns} FROM "{VIEW}"').fetchall()  # noqa: S608 - constants
    return {
        customer: Row(orders, Decimal(amount), Decimal(largest), last_order)
        for customer, orders, amount, largest, last_order in rows
    }


def dead_letters(places: Places) -> list[tuple[int, frozenset[str]]]:
    """Returns the numbers of the dropped orders, each with the rules that it broke."""
    files = f"{places.dead_letters}/epoch=*/*.parquet"
    if not any(places.dead_letters.glob("epoch=*/*.parquet")):
        return []
    return [(json.loads(row)["last_order"], frozenset(rules)) for rules, row in _ask(None, _LETTERS, [files])]


def _compare_view(console: Console, expected: dict[str, Row], stored: dict[str, Row]) -> int:
    """Returns how many rows differ."""
    table = Table(
        *("customer", "DuckDB over what was sent", "the view", ""),
        title="The view, row for row: orders, their amount, the largest, the last one's number",
        title_justify="left",
    )
    for column in table.columns[1:3]:
        column.justify = "right"
    wrong = 0
    for customer in sorted(expected.keys() | stored.keys()):
        wrong += _add(table, customer, expected.get(customer, _NONE), stored.get(customer, _NONE))
    table.add_section()
    _add(table, "rows", len(expected), len(stored))
    _add(table, "orders", *(sum(row.orders for row in view.values()) for view in (expected, stored)))
    _add(table, "amount", *(sum(row.amount for row in view.values()) for view in (expected, stored)))
    console.print(table)
    return wrong


def _compare_letters(console: Console, orders: pa.Table, letters: list[tuple[int, frozenset[str]]]) -> int:
    """Returns how many orders differ: missing, duplicated, dropped for another rule, or good."""
    sent = expected_letters(orders)
    table = Table(
        *("rule", "bad orders that were sent", "dead letters", ""),
        title="The dead letters, by rule",
        title_justify="left",
    )
    counts = [_by_rule(sent.items()), _by_rule(letters)]
    for rule in sorted(counts[0].keys() | counts[1].keys()):
        _add(table, rule, counts[0][rule], counts[1][rule])
    table.add_section()
    _add(table, "orders", len(sent), len(letters))
    console.print(table)
    found = Counter(letters)
    return sum((found - Counter(sent.items())).values()) + sum((Counter(sent.items()) - found).values())


def expected_letters(orders: pa.Table) -> dict[int, frozenset[str]]:
    """Returns the numbers of the bad orders, each with the rules that it breaks."""
    breaks = ", ".join(f"coalesce({condition}, false)" for condition in _IS_BAD.values())
    rows = _ask(orders, f"SELECT last_order, {breaks} FROM sent WHERE {_ANY}")  # noqa: S608 - constants
    return {
        number: frozenset(rule for rule, is_broken in zip(_IS_BAD, broken, strict=True) if is_broken)
        for number, *broken in rows
    }


def _by_rule(letters: Iterable[tuple[int, frozenset[str]]]) -> Counter[str]:
    return Counter(rule for _, rules in letters for rule in rules)


def _add(table: Table, name: str, sent: Any, stored: Any) -> bool:
    """Adds a row to the table, and returns whether the sides differ."""
    same = sent == stored
    shown = [f"{value:,}" if isinstance(value, int | Decimal) else str(value) for value in (sent, stored)]
    table.add_row(name, *shown, "[green]=[/]" if same else "[red]differs[/]")
    return not same


def _ask(orders: pa.Table | None, question: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    # An extra; without it the command reports that before it begins.
    import duckdb

    with closing(duckdb.connect()) as database:
        if orders is not None:
            database.register("sent", orders)
        rows: list[tuple[Any, ...]] = database.execute(question, values).fetchall()
        return rows
