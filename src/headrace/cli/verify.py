"""`headrace verify`: audits that every epoch is in each sink exactly once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.config import Part, load_config
from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.pipeline.verification import Verdict
from headrace.pipeline.verification import verify as verify_materialization
from headrace.sinks.iceberg_audit import audit_foreign

EXAMPLES = """\b
Examples:
  headrace verify headrace.yaml
  headrace verify headrace.yaml sales --json
  headrace verify headrace.yaml --table raw.orders"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--table", metavar="TABLE", help="An Iceberg table of the catalog, whoever wrote it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(file: Path, names: tuple[str, ...], table: str | None, as_json: bool) -> None:
    """Audits what the materializations of FILE have committed, with readers other than the writer.

    Every epoch that the recovery log still knows is in each sink exactly once, no data file is in two
    snapshots, good and dead rows are what was read, and a connector's endpoint stands where the log does
    and owns its tables. With --table it looks at a table that need not be
    ours: for data files that were added twice, and for gaps. Exits with 1 if anything is wrong.
    """
    if table and names:
        raise ConfigError("give either names of materializations or --table")
    config = load_config(file, Part.PIPELINE)
    if table:
        problems = tuple(_audit(config.catalog_settings(), table))
        found = {table: [Verdict("Iceberg table", table, problems)]}
    else:
        settings = config.pipeline_settings(names=names)
        found = {one.name: list(verify_materialization(settings, one)) for one in settings.materializations}
    if as_json:
        verdicts = {name: [asdict(verdict) for verdict in some] for name, some in found.items()}
        click.echo(json.dumps(verdicts, indent=2))
    else:
        _show(Console(highlight=False), found)
    if any(verdict.problems for some in found.values() for verdict in some):
        sys.exit(1)


def _audit(catalog: CatalogSettings, name: str) -> Iterator[str]:
    try:
        table = load_catalog(catalog.name, **catalog.properties).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise ConfigError(f"the catalog {catalog.name!r} has no table {name!r}") from None
    return audit_foreign(table)


def _show(console: Console, found: dict[str, list[Verdict]]) -> None:
    for name, verdicts in found.items():
        table = Table(title=Text(name), title_justify="left", show_lines=True)
        for heading in ("what", "looked at", "result"):
            table.add_column(heading, overflow="fold")
        for verdict in verdicts:
            result = Text("\n".join(verdict.problems), "red") if verdict.problems else Text("right", "green")
            table.add_row(Text(verdict.what), Text(verdict.looked_at), result)
        console.print(table)
