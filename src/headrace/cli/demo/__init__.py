"""`headrace demo`: what the product promises, shown with kill -9."""

from __future__ import annotations

import click

from headrace.cli.demo.ingest import ingest
from headrace.cli.demo.materialize import materialize


@click.group(invoke_without_command=True)
@click.pass_context
def demo(context: click.Context) -> None:
    """Kills servers in the middle of their work and compares the totals; alone it runs all parts."""
    if context.invoked_subcommand is None:
        context.invoke(ingest)
        context.invoke(materialize)


demo.add_command(ingest)
demo.add_command(materialize)
