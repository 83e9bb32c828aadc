"""`headrace status`: how far the materializations of a file are, without disturbing who runs them."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.config import Part, load_config
from headrace.errors import HeadraceError
from headrace.pipeline.guarantee import compile_guarantee
from headrace.pipeline.plan import plan
from headrace.pipeline.recovery_log import LoggedDecision
from headrace.pipeline.runtime_checkpoint import read_checkpoint
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings
from headrace.pipeline.sources.lag import Lag, lag_of
from headrace.pipeline.state_paths import open_recovery_log_for_reading

EXAMPLES = """\b
Examples:
  headrace status headrace.yaml
  headrace status headrace.yaml sales --epochs 30
  headrace status headrace.yaml sales --json"""

_COUNTS = ("read", "good", "dead", "keys", "stored")


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--epochs",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    metavar="N",
    help="How many of the last epochs.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(file: Path, names: tuple[str, ...], epochs: int, as_json: bool) -> None:
    """Shows the last epochs of each materialization, how far it is behind, its fence and its guarantee.

    It reads the recovery log and looks at sources and endpoints; nothing is changed, and Spark is not needed.
    """
    settings = load_config(file, Part.PIPELINE).pipeline_settings(names=names)
    found = [_status(settings, one, epochs) for one in settings.materializations]
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    console = Console()
    for one in found:
        console.print(_shown(one))


def _status(settings: PipelineSettings, one: MaterializationSettings, epochs: int) -> dict[str, Any]:
    log = open_recovery_log_for_reading(settings, one.name)
    recovered, recent = log.read(), [_epoch(past) for past in log.recent(epochs)]
    checkpoint = read_checkpoint(recovered.runtime_checkpoint, one.name, f"materialization {one.name!r}")
    # A decided epoch is not in the endpoint before it is committed there.
    is_committed = not recent or recent[0]["committed"]
    arrived = checkpoint.epoch if is_committed else checkpoint.epoch - 1
    lags = [
        lag_of(index, binding, checkpoint, settings.catalog, arrived)
        for index, binding in enumerate(one.bindings)
    ]
    return {
        "materialization": one.name,
        "guarantee": _guarantee(settings, one),
        "fence": recovered.fence,
        "shards": recovered.plan.get("shards", one.shards),
        "epoch": recent[0]["epoch"] if recent else None,
        "committed": all(epoch["committed"] for epoch in recent[:1]),
        "stuck": log.stuck(),
        "failure": log.failure(),
        "epochs": recent,
        "lag": [asdict(lag) for lag in lags],
    }


def _guarantee(settings: PipelineSettings, one: MaterializationSettings) -> str:
    try:
        planned = plan(one, settings.catalog)
        planned.close()
        compiled = compile_guarantee(settings, one, planned.validated)
    except HeadraceError as error:
        return f"not known: {error.message}"
    return str(compiled.guarantee)


def _epoch(past: LoggedDecision) -> dict[str, Any]:
    return {
        **past.decision.summary,
        "epoch": past.decision.epoch,
        "decided_at": past.at,
        "fence": past.fence,
        "committed": past.is_committed,
    }


def _shown(one: dict[str, Any]) -> RenderableType:
    table = Table(show_header=False, title=Text(one["materialization"]), title_justify="left")
    rows = [("guarantee", one["guarantee"]), ("shards, fence", f"{one['shards']}, {one['fence']}")]
    rows += [(f"behind {lag['source']}", _lag(Lag(**lag))) for lag in one["lag"]]
    rows += [(f"stuck: {sink}", why) for sink, why in sorted(one["stuck"].items())]
    if one["failure"]:
        rows.append(("failed, and no epoch since", one["failure"]))
    if not one["epochs"]:
        rows.append(("epochs", "none yet"))
    for name, value in rows:
        table.add_row(Text(name), Text(value))  # an error in it may have brackets, which are no markup
    return Group(table, _epochs(one["epochs"])) if one["epochs"] else table


def _epochs(epochs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("epoch", "decided at", *_COUNTS, "ms"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for epoch in epochs:
        at = datetime.fromisoformat(epoch["decided_at"]).astimezone(UTC)
        counts = [f"{epoch[name]:,}" if name in epoch else "" for name in (*_COUNTS, "total_ms")]
        state = "committed" if epoch["committed"] else "decided"
        state = f"moved: {epoch['moved']}" if "moved" in epoch else state
        table.add_row(str(epoch["epoch"]), f"{at:%Y-%m-%d %H:%M:%S}Z", *counts, Text(state))
    return table


def _lag(lag: Lag) -> str:
    if lag.rows is None:
        return lag.why
    seconds = "" if lag.seconds is None else f", {lag.seconds:,.0f} s"
    return f"{lag.rows:,} rows{seconds}"
