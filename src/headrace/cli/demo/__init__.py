"""`headrace demo`: shows with kill -9 what the product promises."""

from __future__ import annotations

import click

from headrace.cli.demo.ingest import ingest
from headrace.cli.demo.materialize import materialize
from headrace.cli.demo.pipeline import pipeline


@click.group(invoke_without_command=True)
@click.option("--keep", is_flag=True, help="Leave the folder behind and say what is in it.")
@click.pass_context
def demo(context: click.Context, keep: bool) -> None:
    """Kills what it shows in the middle of its work, and compares the totals.

    Alone it shows the whole product, as `pipeline` does; `ingest` and `materialize` show one part of it, and
    need no Java.
    """
    if context.invoked_subcommand is None:
        context.invoke(pipeline, keep=keep)


demo.add_command(ingest)
demo.add_command(materialize)
demo.add_command(pipeline)
