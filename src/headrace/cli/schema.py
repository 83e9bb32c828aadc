"""`headrace schema`: the JSON Schema of a headrace.yaml."""

from __future__ import annotations

import json

import click

from headrace.config import config_schema

EXAMPLES = """\b
Examples:
  headrace schema > headrace.schema.json"""


@click.command(epilog=EXAMPLES)
def schema() -> None:
    """Prints the JSON Schema of headrace.yaml, for editors and for `headrace serve --config`."""
    click.echo(json.dumps(config_schema(), indent=2))
