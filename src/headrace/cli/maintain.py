"""`headrace maintain`: compacts and cleans up the tables that pipelines write."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import click

from headrace.config import Part, load_config
from headrace.config.values import seconds
from headrace.errors import ConfigError
from headrace.pipeline.maintenance import maintain as maintain_sinks

EXAMPLES = """\b
Examples:
  headrace maintain headrace.yaml
  headrace maintain headrace.yaml sales --older-than 3d
  headrace maintain headrace.yaml --json"""

# Files that a task is still writing are recorded nowhere; only their age distinguishes them from leftovers.
_LEAST = timedelta(hours=24)


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    metavar="TIME",
    help="What is younger is not expired or removed: 12h, 7d. At least 24h.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each thing done.")
def maintain(file: Path, names: tuple[str, ...], older_than: str, as_json: bool) -> None:
    """Compacts small files of Iceberg and Delta, expires old snapshots, removes files nothing refers to.

    In the tables that the materializations of FILE write, and safely while they run. NAME is one of them;
    without one, all.
    """
    try:
        age = timedelta(seconds=seconds(older_than))
    except ValueError as error:
        raise ConfigError(f"--older-than {older_than}: {error}") from None
    if age < _LEAST:
        raise ConfigError(
            f"--older-than {older_than}: write at least 24h, so that what is being written is left alone"
        )
    settings = load_config(file, Part.PIPELINE).pipeline_settings(names=names)
    done = 0
    for name, sentence in maintain_sinks(settings, age):
        done += 1
        click.echo(json.dumps({"sink": name, "done": sentence}) if as_json else f"{name}: {sentence}")
    if not done and not as_json:
        click.echo("nothing to do")
