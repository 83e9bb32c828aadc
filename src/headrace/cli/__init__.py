"""The command line."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

import click

from headrace import __version__
from headrace.errors import HeadraceError

# Each is a module of this package with a command of the same name; a dash is an underscore there.
COMMANDS = (
    "apply",
    "bench",
    "certify",
    "connector",
    "dead-letter",
    "demo",
    "maintain",
    "quarantine",
    "run",
    "schema",
    "serve",
    "status",
    "token",
    "txn",
    "validate",
    "verify",
)


class Commands(click.Group):
    """Loads only the command that is called, because importing all of them takes seconds."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(import_module(f"headrace.cli.{module}"), module)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, to standard error.")
def cli(verbose: bool) -> None:
    """Carries a write from a client to a row in somebody's database, exactly once."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def main() -> None:
    """Runs a command; reports an error as one sentence on standard error and a non-zero exit code."""
    try:
        cli()
    except HeadraceError as error:
        click.echo(f"headrace: {error.message}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        click.echo("headrace: this needs Spark: pip install 'headrace[spark]'", err=True)
        sys.exit(1)
