"""`headrace apply`: makes the endpoints of a headrace.yaml ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.checked import check_materializations
from headrace.pipeline.plan import apply as apply_planned

EXAMPLES = """\b
Examples:
  headrace apply headrace.yaml --dry-run
  headrace apply headrace.yaml
  headrace apply headrace.yaml sales --json"""

_HEADING = "-- "


class Action(NamedTuple):
    action: str
    statement: str = ""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def apply(file: Path, names: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Makes the endpoints of FILE ready: creates tables, adds columns; nothing where all is there.

    All materializations are validated before the first is applied. NAME is one of them; without one, all.
    """
    console = Console(highlight=False)
    checked = list(check_materializations(file, names))
    for one in checked:
        one.refuse_above()
    done = []
    for one in checked:
        actions = actions_of(apply_planned(one.planned, dry_run))
        done.append({"name": one.settings.name, "actions": [action._asdict() for action in actions]})
        if not as_json:
            _show(console, one.settings.name, actions, dry_run)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, "materializations": done}, indent=2))


def actions_of(description: str) -> list[Action]:
    """Parses a connector's text: a line is an action, or with leading dashes the heading of a statement."""
    lines = description.splitlines()
    if not any(line.startswith(_HEADING) for line in lines):
        return [Action(line) for line in lines if line.strip()]
    actions: list[Action] = []
    for line in lines:
        if line.startswith(_HEADING):
            actions.append(Action(line.removeprefix(_HEADING)))
        elif actions:
            action, statement = actions.pop()
            actions.append(Action(action, f"{statement}\n{line}".lstrip("\n")))
        else:
            actions.append(Action(line))
    return actions


def _show(console: Console, name: str, actions: list[Action], dry_run: bool) -> None:
    if not actions:
        console.print(Text(f"{name}: nothing to do"))
        return
    table = Table(title=Text(f"{name}: {'would be done' if dry_run else 'done'}"), show_lines=True)
    table.add_column("action", overflow="fold")
    has_statements = any(action.statement for action in actions)
    if has_statements:
        table.add_column("statement", overflow="fold")
    for action in actions:
        table.add_row(*(Text(part) for part in action[: 1 + has_statements]))
    console.print(table)
