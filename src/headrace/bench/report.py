"""Results as tables for a terminal. What was not measured has no line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from headrace.bench.figures import Measurement, Results
from headrace.bench.ratios import ratios
from headrace.bench.settings import LAG

HOW = (
    "At an offered rate latencies count from the moment at which a write was due by a fixed schedule, not "
    "from when it was sent: a delay shows in every write that it held up."
)


def show(console: Console, results: Results) -> None:
    console.print(f"Load of the machine when the run began: {results.machine['load_average']:.1f}")
    for table in _tables(results.measurements):
        console.print(table)
    console.print(HOW)
    for left_out in results.left_out:
        console.print(f"Left out: {left_out}")


def _tables(measurements: list[Measurement]) -> Iterator[Table]:
    timed = [one for one in measurements if one.word != LAG]
    if offered := [one for one in timed if one.rate is not None]:
        yield _offered(offered)
    if top := [one for one in timed if one.rate is None]:
        yield _top(top)
    if lag := [one for one in measurements if one.word == LAG]:
        yield _lag(lag)
    if compared := ratios(measurements):
        table = _table("", "ours", "theirs", "ratio", "peer", title="Ours over the peers' in this run")
        for ratio in compared:
            both = (_figure(value, ratio.unit) for value in (ratio.ours, ratio.theirs))
            table.add_row(f"{ratio.load}: {ratio.what}", *both, f"{ratio.ratio:.2f}", ratio.peer)
        yield table


def _offered(measurements: list[Measurement]) -> Table:
    table = _table("", "/s", "p50 ms", "p90", "p99", "max", title="At an offered rate")
    for one in measurements:
        for name, tier in one.run.tiers.items():
            latency = tier.latency
            figures = (latency.p50, latency.p90, latency.p99, latency.max)
            label = f"{one.load}, {one.contender}, {name}"
            table.add_row(label, f"{tier.per_second:,.0f}", *(f"{value:.2f}" for value in figures))
        if one.run.late is not None:
            late = f"{one.run.late.p50:.2f}", f"{one.run.late.p90:.2f}", f"{one.run.late.p99:.2f}"
            table.add_row("[dim]of this the client was late by[/]", "", *late, f"{one.run.late.max:.2f}")
    return table


def _top(measurements: list[Measurement]) -> Table:
    table = _table("", "/s", "slowest to fastest client", "server CPU µs", title="As fast as it goes")
    for one in measurements:
        fairness = f"{one.run.fairness:.2f}" if one.run.clients > 1 else ""
        cost = "" if one.server_cpu_us is None else f"{one.server_cpu_us:.1f}"
        for name, tier in one.run.tiers.items():
            label = f"{one.load}, {one.contender}, {name}"
            table.add_row(label, f"{tier.per_second:,.0f}", fairness, cost)
            fairness = cost = ""
    return table


def _lag(measurements: list[Measurement]) -> Table:
    tiers = list(measurements[0].run.tiers)
    table = _table("", *tiers, title="Seconds until all writes are at the tier")
    for one in measurements:
        seconds = (f"{one.run.tiers[tier].seconds:.2f}" for tier in tiers)
        table.add_row(f"{one.run.sent:,} writes, {one.coalesce} a message", *seconds)
    return table


def _table(*headings: str, title: str) -> Table:
    """Texts on the left, figures on the right, which are never cut short."""
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    return table


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f}/s" if unit == "/s" else f"{value:.2f} {unit}"
