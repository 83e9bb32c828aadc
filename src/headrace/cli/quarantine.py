"""`headrace quarantine`: shows collections that cannot be committed, and releases or drops one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.client import connect

LIST_EXAMPLES = """\b
Examples:
  headrace quarantine list
  headrace quarantine list --server grpc+tls://ingest:8815 --tls-roots ca.pem --json"""

RELEASE_EXAMPLES = """\b
Examples:
  headrace quarantine release orders
  headrace quarantine release orders --timeout 3600"""

DROP_EXAMPLES = """\b
Examples:
  headrace quarantine drop orders
  headrace quarantine drop orders --yes orders --json"""


def _to_server(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that every command has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs."),
        click.option(
            "--tls-roots",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Certificates to trust, in PEM.",
        ),
        click.option("--token", envvar="HEADRACE_TOKEN", help="For the server  [$HEADRACE_TOKEN]"),
        click.option(
            "--server", default="grpc://127.0.0.1:8815", show_default=True, help="Where it listens."
        ),
    ):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Shows collections that cannot be committed, and releases or drops one.

    A collection in quarantine takes no writes. What was acknowledged is kept apart until it is released or
    dropped, and everything else goes on.
    """


@quarantine.command("list", epilog=LIST_EXAMPLES)
@_to_server
def list_command(server: str, token: str | None, tls_roots: Path | None, as_json: bool) -> None:
    """Shows the collections in quarantine, with the reason of each."""
    with connect(server, token=token, tls_roots=tls_roots) as client:
        found = client.quarantine()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif not found:
        click.echo("no collection is in quarantine")
    else:
        Console().print(_table(found))


@quarantine.command("release", epilog=RELEASE_EXAMPLES)
@click.argument("name")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds to wait."
)
@_to_server
def release_command(
    name: str, timeout: float, server: str, token: str | None, tls_roots: Path | None, as_json: bool
) -> None:
    """Commits what the collection NAME has in quarantine, each row once, and takes writes to it again.

    If that fails it says why, and the collection stays where it is: mend the cause and say it again.
    """
    with connect(server, token=token, tls_roots=tls_roots) as client:
        released = client.release_quarantine(name, timeout)
    said = f"{name} is released, and committed up to LSN {released['committed_lsn']}"
    click.echo(json.dumps(released) if as_json else said)


@quarantine.command("drop", epilog=DROP_EXAMPLES)
@click.argument("name")
@click.option("--yes", metavar="NAME", help="The name once more, so that it is not asked for.")
@_to_server
def drop_command(
    name: str, yes: str | None, server: str, token: str | None, tls_roots: Path | None, as_json: bool
) -> None:
    """Gives up the writes that the collection NAME has in quarantine, and takes writes to it again.

    They were acknowledged, and are lost then: writers are told, and nothing brings them back. To see them
    first, read the collection.
    """
    if yes is None:
        yes = click.prompt(f"what {name} has in quarantine is lost then; type its name to go on", err=True)
    if yes != name:
        raise click.UsageError(f"{yes!r} is not {name!r}: nothing was dropped")
    with connect(server, token=token, tls_roots=tls_roots) as client:
        dropped = client.drop_quarantine(name, confirm=yes)
    first, last = dropped["lost"]
    click.echo(json.dumps(dropped) if as_json else f"LSNs {first} to {last} of {name} are lost")


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("collection", "since", "side log", "reason"):
        table.add_column(heading)
    for one in found:
        since = datetime.fromtimestamp(one["since_us"] / 1e6, UTC)
        size = f"{one['side_log_bytes']:,} bytes"
        reason = f"being released; {one['reason']}" if one["releasing"] else one["reason"]
        table.add_row(one["collection"], f"{since:%Y-%m-%d %H:%M:%S}Z", size, Text(reason))
    return table
