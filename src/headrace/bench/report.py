"""Results as tables for a terminal. What was not measured has no line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table

from headrace.bench.figures import Contender, Crowd, Latency, Results, Run
from headrace.bench.plots import bars
from headrace.bench.scenarios import OURS
from headrace.bench.settings import Settings
from headrace.bench.verdicts import ratios, verdicts

HOW = (
    "Latencies count from the moment at which a write was due by a fixed schedule, not from when it was "
    "sent: a delay shows in every write that it held up."
)


def show(console: Console, results: Results, settings: Settings) -> None:
    for part in _parts(results, settings):
        console.print(part)
    for left_out in results.left_out:
        console.print(f"Left out: {left_out}")


def _parts(results: Results, settings: Settings) -> Iterator[RenderableType]:
    if results.single:
        yield _offered(results.single, settings)
        yield HOW
        yield Group(*bars(results.single))
        ours = results.single[OURS].offered
        if ours is not None and any(at.notice for at in ours.tiers.values()):
            yield _notices(ours)
        yield _top(results.single, settings)
    if results.crowd is not None:
        yield _crowd(results.crowd)
    if results.lag:
        yield _lag(results.lag)
    if compared := ratios(results):
        table = _table("", "ours", "theirs", "ratio", "peer", title="Next to the peers")
        for ratio in compared:
            both = (_figure(value, ratio.unit) for value in (ratio.ours, ratio.theirs))
            table.add_row(ratio.what, *both, f"{ratio.ratio:.2f}", ratio.peer)
        yield table
    table = Table(title="Goals")
    for heading in ("", "", "measured", "goal", ""):
        table.add_column(heading, no_wrap=heading == "measured")
    for verdict in verdicts(results):
        met = "[green]met[/]" if verdict.met else "[red]missed[/]"
        measured = _figure(verdict.measured, verdict.unit)
        table.add_row(str(verdict.scenario), verdict.what, measured, verdict.goal, met)
    yield table


def _offered(single: dict[str, Contender], settings: Settings) -> Table:
    title = (
        f"Scenario 1: one client, {settings.writes_of(1):,} writes of {settings.payload} bytes, "
        f"{settings.rate:,.0f}/s offered"
    )
    table = _table("", "/s", "p50 ms", "p90", "p99", "max", title=title)
    for name, contender in single.items():
        if contender.offered is None:
            continue
        for tier, at in contender.offered.tiers.items():
            reached = f"{contender.offered.per_second(tier):,.0f}"
            table.add_row(f"{name}, {tier}", reached, *_latencies(at.latency))
        if contender.offered.late is not None:
            table.add_row("[dim]of this the client was late by[/]", "", *_latencies(contender.offered.late))
    return table


def _notices(offered: Run) -> Table:
    table = _table("", "p50 ms", "p90", "p99", "max", title="From the tier to its notice's arrival")
    for tier, at in offered.tiers.items():
        if at.notice is not None and tier != "MEMORY":
            table.add_row(tier, *_latencies(at.notice))
    return table


def _top(single: dict[str, Contender], settings: Settings) -> Table:
    title = f"Scenario 1: as fast as it goes, {settings.writes_of(1):,} writes"
    table = _table("", "/s", "server CPU µs", "client CPU µs", title=title)
    for name, contender in single.items():
        if contender.top is None:
            continue
        costs = _costs(contender.top)
        for tier in contender.top.tiers:
            table.add_row(f"{name}, {tier}", f"{contender.top.per_second(tier):,.0f}", *costs)
            costs = ["", ""]
    return table


def _crowd(crowd: Crowd) -> Table:
    title = (
        f"Scenario 2: {crowd.clients} coalescing clients in {crowd.processes} "
        f"{'process' if crowd.processes == 1 else 'processes'}, {crowd.writes:,} writes"
    )
    table = Table("", "", title=title, show_header=False)
    for tier in crowd.tiers:
        table.add_row(f"writes/s to {tier}", f"{crowd.per_second(tier):,.0f}")
    fairness = crowd.fairness
    table.add_row("slowest client, writes/s", f"{fairness.slowest:,.0f}")
    table.add_row("fastest client, writes/s", f"{fairness.fastest:,.0f}")
    table.add_row("slowest / fastest", f"{fairness.slowest / fairness.fastest:.2f}")
    table.add_row("Jain's index", f"{fairness.jain:.3f}")
    for whose, cost in zip(("server", "client"), _costs(crowd), strict=True):
        if cost:
            table.add_row(f"{whose} CPU µs/write", cost)
    return table


def _lag(lag: dict[str, Run | Crowd]) -> Table:
    writes = next(iter(lag.values())).writes
    tiers = list(dict.fromkeys(tier for run in lag.values() for tier in run.tiers))
    title = f"Scenario 3: seconds until all of {writes:,} writes are at the tier"
    table = _table("", *tiers, title=title)
    for client, run in lag.items():
        seconds = [f"{run.tiers[tier].seconds:.2f}" if tier in run.tiers else "" for tier in tiers]
        table.add_row(client, *seconds)
    return table


def _table(*headings: str, title: str) -> Table:
    """Texts on the left, figures on the right, which are never cut short."""
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    return table


def _latencies(latency: Latency | None) -> list[str]:
    if latency is None:
        return [""] * 4
    return [f"{value:.2f}" for value in (latency.p50, latency.p90, latency.p99, latency.max)]


def _costs(run: Run | Crowd) -> list[str]:
    return ["" if cost is None else f"{cost:.1f}" for cost in (run.server_cpu_us, run.client_cpu_us)]


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f}/s" if unit == "/s" else f"{value:.2f} {unit}"
