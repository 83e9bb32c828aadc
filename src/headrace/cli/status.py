"""`headrace status`: how far the materializations of a file are, without disturbing who runs them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headrace.config import load_config
from headrace.errors import HeadraceError
from headrace.pipeline.guarantee import compile_guarantee
from headrace.pipeline.lag import Lag, lag_of
from headrace.pipeline.places import open_recovery_log
from headrace.pipeline.planning import plan
from headrace.pipeline.runtime_checkpoint import read_checkpoint
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings

EXAMPLES = """\b
Examples:
  headrace status headrace.yaml
  headrace status headrace.yaml sales --json"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(file: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Shows the last epoch of each materialization, how far it is behind, its fence and its guarantee.

    It reads the recovery log and looks at sources and endpoints; nothing is changed, and Spark is not needed.
    """
    settings = load_config(file).pipeline_settings(names=names)
    found = [_status(settings, one) for one in settings.materializations]
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    console = Console()
    for one in found:
        console.print(_table(one))


def _status(settings: PipelineSettings, one: MaterializationSettings) -> dict[str, Any]:
    recovered = open_recovery_log(settings, one.name).read()
    decision = recovered.decision
    checkpoint = read_checkpoint(recovered.runtime_checkpoint, one.name, f"materialization {one.name!r}")
    lags = [
        lag_of(index, binding, checkpoint, settings.catalog) for index, binding in enumerate(one.bindings)
    ]
    return {
        "materialization": one.name,
        "guarantee": _guarantee(settings, one),
        "fence": recovered.fence,
        "shards": recovered.plan.get("shards", one.shards),
        "epoch": decision.epoch if decision else None,
        "committed": recovered.is_settled or decision is None,
        "last": dict(decision.summary) if decision else {},
        "lag": [asdict(lag) for lag in lags],
    }


def _guarantee(settings: PipelineSettings, one: MaterializationSettings) -> str:
    try:
        compiled = compile_guarantee(settings, one, plan(one).validated)
    except HeadraceError as error:
        return f"not known: {error.message}"
    return str(compiled.guarantee)


def _table(one: dict[str, Any]) -> Table:
    table = Table(show_header=False, title=one["materialization"], title_justify="left")
    table.add_row("guarantee", one["guarantee"])
    if one["epoch"] is None:
        table.add_row("epoch", "none yet")
    else:
        last = one["last"]
        state = "committed" if one["committed"] else "decided"
        table.add_row("epoch", f"{one['epoch']}, planned at {last.get('at', '?')}, {state}")
        counts = [f"{last.get(name, 0):,} {name}" for name in ("read", "good", "dead", "keys", "stored")]
        table.add_row("last epoch", ", ".join(counts) + f", {last.get('total_ms', 0):,} ms")
    table.add_row("shards, fence", f"{one['shards']}, {one['fence']}")
    for lag in one["lag"]:
        table.add_row(f"behind {lag['source']}", _shown(Lag(**lag)))
    return table


def _shown(lag: Lag) -> str:
    if lag.rows is None:
        return lag.why
    seconds = "" if lag.seconds is None else f", {lag.seconds:,.0f} s"
    return f"{lag.rows:,} rows{seconds}"
