"""`headrace validate`: what the materializations of a headrace.yaml would store, and what they guarantee."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.checked import Checked, check_materializations
from headrace.errors import EndpointUnavailable
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.pipeline.settings import BindingSettings
from headrace.protocol.messages import ValidatedBinding

EXAMPLES = """\b
Examples:
  headrace validate headrace.yaml
  headrace validate headrace.yaml sales
  headrace validate headrace.yaml --json | jq '.materializations[].guarantee'"""


class FieldVerdict(NamedTuple):
    """Whether a field is stored, and why."""

    name: str
    type: str
    constraint: str
    stored: bool
    asked: str
    """`included` or `excluded` by the user, or empty."""
    reason: str


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def validate(file: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Asks everything that FILE names whether it can work, and changes nothing.

    Shows for each field of each binding whether it is stored, and why; and what each materialization
    guarantees, link by link. Fails if a source, a sink or the state does not answer. NAME is a
    materialization; without one, all of them.
    """
    console = Console(highlight=False)
    checked, shown, problems = [], [], []
    for one in check_materializations(file, names):
        checked.append(one)
        unreachable = one.unreachable()
        problems += [f"materialization {one.settings.name!r}: {said}" for said in unreachable]
        shown.append(_as_json(one) | {"unreachable": unreachable})
        if not as_json:
            _show(console, one)
    if as_json:
        click.echo(json.dumps({"materializations": shown}, indent=2))
    for one in checked:
        one.refuse_above()
    if problems:
        raise EndpointUnavailable("\nheadrace: ".join(problems))


def _show(console: Console, checked: Checked) -> None:
    console.print(Text(f"{checked.settings.name} ({checked.settings.connector or 'sinks'})", style="bold"))
    for binding, fields in _bindings(checked):
        title = f"{binding}{', delta updates' if binding.delta_updates else ''}"
        table = Table(title=Text(title if checked.settings.connector else binding.collection.name))
        for heading in ("field", "type", "constraint", "stored", "reason"):
            table.add_column(heading, overflow="fold")
        for field in fields:
            stored = Text("yes", style="green") if field.stored else Text("no", style="yellow")
            if field.asked:
                stored.append(f", {field.asked}")
            # Plain texts, since a name may look like rich's markup.
            table.add_row(*map(Text, (field.name, field.type, field.constraint)), stored, Text(field.reason))
        console.print(table)
    for sink in checked.planned.sinks:
        console.print(Text(f"sink {sink.name}: {sink}"), soft_wrap=True)
    console.print(Text(f"guarantee: {checked.compiled.guarantee}", style="bold"))
    for reason in checked.compiled.reasons:
        console.print(Text(f"  {reason}"))
    console.print()


def _bindings(checked: Checked) -> Iterator[tuple[Binding, list[FieldVerdict]]]:
    told, planned = checked.settings.bindings, checked.planned
    answered = planned.validated.bindings
    for index, binding in enumerate(planned.materialization.bindings):
        yield binding, _fields(told[index], binding, answered[index])


def _fields(told: BindingSettings, binding: Binding, answered: ValidatedBinding) -> list[FieldVerdict]:
    stored = {field.name for field in (*binding.keys, *binding.values)} | {binding.document}
    asked = dict.fromkeys(told.include, "included") | dict.fromkeys(told.exclude, "excluded")
    types = {field.name: str(field.type) for field in binding.collection.fields}
    return [
        FieldVerdict(name, kind, str(constraint.kind), name in stored, asked.get(name, ""), constraint.reason)
        for name, kind in {**types, DOCUMENT_FIELD: "document"}.items()
        if (constraint := answered.constraints[name])
    ]


def _as_json(checked: Checked) -> dict[str, Any]:
    compiled = checked.compiled
    return {
        "name": checked.settings.name,
        "connector": checked.settings.connector,
        "sinks": {sink.name: str(sink) for sink in checked.planned.sinks},
        "guarantee": compiled.guarantee,
        "reasons": [
            {"link": reason.link, "guarantee": reason.guarantee, "why": reason.why}
            for reason in compiled.reasons
        ],
        "bindings": [
            {
                "collection": binding.collection.name,
                "resource_path": binding.resource_path,
                "delta_updates": binding.delta_updates,
                "fields": [field._asdict() for field in fields],
            }
            for binding, fields in _bindings(checked)
        ],
    }
