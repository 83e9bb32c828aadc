"""`headrace txn`: shows Kafka transactions that are open, and aborts one that is stuck."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.config import Part, load_config
from headrace.errors import ConfigError
from headrace.kafka.config import ClientOptions
from headrace.kafka.transactions import Identity
from headrace.pipeline.settings import DeadLetterSettings, PipelineSettings, SinkSettings
from headrace.pipeline.state_paths import open_recovery_log
from headrace.sinks.kafka_options import CHECKPOINTS, FORMAT
from headrace.sinks.kafka_stuck import OpenTransaction, abort_transaction, open_transactions

LIST_EXAMPLES = """\b
Examples:
  headrace txn list headrace.yaml
  headrace txn list --bootstrap broker:9092 --json
  headrace txn list --bootstrap broker:9093 --option security.protocol=SSL"""

ABORT_EXAMPLES = """\b
Examples:
  headrace txn abort headrace/sales/lake.orders/0 headrace.yaml
  headrace txn abort headrace/sales/lake.orders/0 headrace.yaml --yes"""

Decided = Callable[[str], Sequence[Identity] | None]
"""Returns the transactions of a materialization that were decided and are not known to be committed; None if
that is unknown."""

_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
_bootstrap = click.option(
    "--bootstrap", metavar="HOST:PORT", help="A broker, in place of those of the file's sinks."
)
_options = click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="With --bootstrap: of the sink's."
)


@click.group()
def txn() -> None:
    """Shows Kafka transactions that are open, and aborts one that is stuck."""


@txn.command("list", epilog=LIST_EXAMPLES)
@_file
@_bootstrap
@_options
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_command(file: Path | None, bootstrap: str | None, options: tuple[str, ...], as_json: bool) -> None:
    """Shows the open transactions in the clusters of FILE's sinks, or in one, the oldest first.

    Readers of what is committed wait at the oldest one of a topic. Of the materializations of FILE it is also
    said whether the epoch was decided.
    """
    settings = load_config(file, Part.PIPELINE).pipeline_settings() if file else None
    decided = decided_by(settings)
    found = [
        _described(one, decided)
        for cluster in clusters(settings, bootstrap, options)
        for one in open_transactions(cluster.client, cluster.checkpoints)
    ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif not found:
        click.echo("no transaction is open")
    else:
        Console().print(_table(found))


@txn.command("abort", epilog=ABORT_EXAMPLES)
@click.argument("transactional_id", metavar="ID")
@_file
@_bootstrap
@_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--even-if-decided", is_flag=True, help="Also one whose epoch was decided, or may have been.")
def abort_command(
    transactional_id: str,
    file: Path | None,
    bootstrap: str | None,
    options: tuple[str, ...],
    yes: bool,
    even_if_decided: bool,
) -> None:
    """Aborts the open transaction with the transactional id ID, and fences its producer off.

    FILE is needed to see that its epoch was not decided. One that was decided is committed by the pipeline's
    next start; if it is aborted all the same, the next start has to send its rows again.
    """
    settings = load_config(file, Part.PIPELINE).pipeline_settings() if file else None
    cluster, one = _find(clusters(settings, bootstrap, options), transactional_id)
    if not even_if_decided:
        refuse_decided(one, decided_by(settings))
    if not yes:
        click.confirm(f"abort {transactional_id}, open for {_age(one)}?", abort=True)
    abort_transaction(cluster.client, transactional_id)
    click.echo(f"{transactional_id} is aborted")


@dataclass(frozen=True)
class Cluster:
    client: ClientOptions
    checkpoints: str


def clusters(
    settings: PipelineSettings | None, bootstrap: str | None, options: Sequence[str]
) -> list[Cluster]:
    """Returns the named cluster, or those of all sinks."""
    if bootstrap is not None:
        return [_cluster({**dict(map(_pair, options)), "bootstrap": bootstrap})]
    if settings is None:
        raise ConfigError("say where to look: name a file, or a broker with --bootstrap")
    found: list[Cluster] = []
    for one in settings.materializations:
        places: list[SinkSettings | DeadLetterSettings] = [*one.sinks]
        places += [one.dead_letters] if one.dead_letters else []
        for place in places:
            if place.format == FORMAT and (cluster := _cluster(place.options)) not in found:
                found.append(cluster)
    if not found:
        raise ConfigError("no sink of the file has the format kafka: name a broker with --bootstrap")
    return found


def _cluster(options: Mapping[str, str]) -> Cluster:
    """Identifies a cluster by its connection settings: sinks with different producer settings share a
    cluster."""
    return Cluster(ClientOptions.of(options).connection_only(), options.get("checkpoints", CHECKPOINTS))


def _pair(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise ConfigError(f"--option {option!r} has no value: write NAME=VALUE")
    return name, value


def decided_by(settings: PipelineSettings | None) -> Decided:
    """Looks decided transactions up in the recovery logs of the materializations."""
    if settings is None:
        return lambda _: None
    names = {one.name for one in settings.materializations}

    def decided(materialization: str) -> list[Identity] | None:
        if materialization not in names:
            return None
        recovered = open_recovery_log(settings, materialization).read()
        if recovered.decision is None or recovered.is_settled:
            return []
        return [
            Identity(raw["transactional_id"], raw["producer_id"], raw["producer_epoch"])
            for handle in recovered.decision.handles.values()
            for raw in handle.get("transactions", ())
        ]

    return decided


def refuse_decided(one: OpenTransaction, decided: Decided) -> None:
    name, known = one.identity.transactional_id, decided(one.materialization)
    if known is None:
        raise ConfigError(
            f"whether {name} was decided is in the recovery log of {one.materialization!r}: name the file "
            "that has it, or say --even-if-decided"
        )
    if one.identity in known:
        raise ConfigError(
            f"{name} was decided, and the next start of {one.materialization!r} commits it: start that, or "
            "say --even-if-decided"
        )


def _find(found: Iterable[Cluster], transactional_id: str) -> tuple[Cluster, OpenTransaction]:
    for cluster in found:
        for one in open_transactions(cluster.client, cluster.checkpoints):
            if one.identity.transactional_id == transactional_id:
                return cluster, one
    raise ConfigError(f"{transactional_id!r} has no open transaction: `headrace txn list` shows those")


def _described(one: OpenTransaction, decided: Decided) -> dict[str, Any]:
    known = decided(one.materialization)
    return {
        "transactional_id": one.identity.transactional_id,
        "state": one.description.state,
        "materialization": one.materialization,
        "epoch": one.record.epoch if one.record else None,
        "fence": one.record.fence if one.record else None,
        "decided": None if known is None else one.identity in known,
        "began": one.began.isoformat(timespec="seconds"),
        "age": _age(one),
        "timeout_ms": one.description.timeout_ms,
        "producer_id": one.identity.producer_id,
        "producer_epoch": one.identity.producer_epoch,
        "topics": {name: list(partitions) for name, partitions in one.description.topics.items()},
    }


def _age(one: OpenTransaction) -> str:
    seconds = max((datetime.now(UTC) - one.began).total_seconds(), 0)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_SHOWN = ("transactional_id", "state", "age", "materialization", "epoch", "fence", "decided", "producer")


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in _SHOWN:
        table.add_column(name.replace("_", " "))
    for one in found:
        shown = {**one, "producer": f"{one['producer_id']}/{one['producer_epoch']}"}
        shown["decided"] = {None: None, True: "yes", False: "no"}[one["decided"]]
        table.add_row(*(Text("?" if shown[name] is None else str(shown[name])) for name in _SHOWN))
    return table
