"""`headrace run`: keeps the materializations of a file up to date."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click

from headrace.cli.logs import LOG_FORMATS, setup_logging
from headrace.cli.run_output import JsonLines, Lines, LiveStatus
from headrace.config import Part, load_config
from headrace.errors import ConfigError
from headrace.pipeline.runner import ATTEMPTS, Runner
from headrace.pipeline.settings import PipelineSettings, Trigger

EXAMPLES = """\b
Examples:
  headrace run headrace.yaml
  headrace run headrace.yaml sales --once
  headrace run headrace.yaml --master spark://host:7077 --conf spark.executor.memory=4g"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--once", is_flag=True, help="Take what is there now, and end.")
@click.option(
    "--attempts",
    type=click.IntRange(1),
    default=ATTEMPTS,
    show_default=True,
    metavar="N",
    help="With --once: end after N failures in a row, with exit 1. Without it, it is tried for ever.",
)
@click.option(
    "--adopt",
    multiple=True,
    metavar="NAME",
    help="Take over tables that have rows, or that others have written, for the materialization NAME. Says "
    "what it has taken over. May be repeated.",
)
@click.option(
    "--accept-loss",
    multiple=True,
    metavar="NAME",
    help="Let the materialization NAME go on without rows that its source does not have any more. The "
    "recovery log keeps that it did. May be repeated.",
)
@click.option("--master", help="Spark's master, such as local[4] or spark://host:7077  [local[*]]")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each epoch, for programs.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default="text", show_default=True)
@click.option("--log-level", default="WARNING", show_default=True, metavar="LEVEL")
def run(
    file: Path,
    names: tuple[str, ...],
    once: bool,
    attempts: int,
    adopt: tuple[str, ...],
    accept_loss: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Runs the materializations of FILE, or those of these NAMEs, until it is interrupted.

    Each epoch prints a line: rows read, good and dead, keys, documents loaded and stored, and the time of
    each phase. After a crash of anything, the same command goes on where the endpoint is.
    """
    setup_logging(log_level, log_format)
    settings = _with_options(
        load_config(file, Part.PIPELINE).pipeline_settings(names=names), once, master, conf
    )
    reporter = _reporter(as_json)
    for option, chosen in (("--adopt", adopt), ("--accept-loss", accept_loss)):
        if unknown := set(chosen) - {one.name for one in settings.materializations}:
            raise ConfigError(f"{option}: there is no materialization {', '.join(sorted(unknown))} to run")
    runner = Runner(settings, reporter, attempts=attempts, adopts=adopt, accepts_loss=accept_loss)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runner.stop())
    with reporter:
        runner.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's process ends with ours; to wait for its shutdown would take seconds.
    os._exit(1 if runner.failures else 0)


def _with_options(
    settings: PipelineSettings, once: bool, master: str | None, conf: tuple[str, ...]
) -> PipelineSettings:
    """Applies the options of the command line, which take precedence over the file."""
    given = dict(settings.spark.conf)
    for pair in conf:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"--conf {pair!r} has no value: write it as KEY=VALUE")
        given[key] = value
    spark = replace(settings.spark, conf=given, master=master or settings.spark.master)
    chosen = settings.materializations
    if once:
        chosen = tuple(replace(one, trigger=Trigger(once=True)) for one in chosen)
    return replace(settings, spark=spark, materializations=chosen)


def _reporter(as_json: bool) -> JsonLines | Lines | LiveStatus:
    if as_json:
        return JsonLines()
    return LiveStatus() if sys.stdout.isatty() else Lines()
