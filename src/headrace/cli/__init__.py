"""The command line."""

from __future__ import annotations

import logging
import sys

import click

from headrace import __version__
from headrace.cli.connector import connector
from headrace.cli.demo import demo
from headrace.errors import HeadraceError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, to standard error.")
def cli(verbose: bool) -> None:
    """Carries a write from a client to a row in somebody's database, exactly once."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


cli.add_command(connector)
cli.add_command(demo)


def main() -> None:
    """Runs a command; what is wrong is one sentence on standard error and a non-zero exit."""
    try:
        cli()
    except HeadraceError as error:
        click.echo(f"headrace: {error.message}", err=True)
        sys.exit(1)
