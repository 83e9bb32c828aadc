"""`headrace certify`: which delivery guarantees hold, shown by runs with deliberate faults."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from headrace.certify.comparison import worse_than
from headrace.certify.report_html import to_html
from headrace.certify.report_markdown import to_markdown
from headrace.certify.report_text import show
from headrace.certify.results import Report
from headrace.config import load_config
from headrace.errors import ConfigError

EXAMPLES = """\b
Examples:
  headrace certify --quick
  headrace certify --json evidence.json --html evidence.html
  headrace certify headrace.yaml
  headrace certify --endpoint postgres=postgresql://me@db/test --endpoint kafka=broker:9092
  headrace certify --scenario "woken task" --scenario "killed in commit"
  headrace certify --endpoint 'connector={"name": "mine", "grpc": "127.0.0.1:9000",
                               "config": {"path": "x"}, "resource": {"table": "t_{lane}"}}'
  headrace certify --soak 30 --seed 7"""

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="KIND=VALUE",
    help="postgres, redis, kafka, s3 or connector: an address, a JSON object, or @FILE with one.",
)
@click.option("--no-embedded", is_flag=True, help="Only what is named, not what needs no server.")
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option("--list", "is_list", is_flag=True, help="List the scenarios, and end.")
@click.option("--quick", is_flag=True, help="A few scenarios of a few endpoints, in minutes.")
@click.option(
    "--soak", type=click.FloatRange(min=0), default=0.0, metavar="MINUTES", help="Faults by chance."
)
@click.option("--seed", type=int, help="Of what is drawn by chance.  [default: another one each time]")
@click.option("--json", "json_file", type=_FILE, help="Write the evidence here, for programs.")
@click.option("--html", "html_file", type=_FILE, help="Write the matrix and the evidence here, as one page.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Write the matrix here.")
@click.option(
    "--add",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The JSON of an earlier run: what it has shown is in this report too; what held is not tried again.",
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The JSON of an earlier run: fail if a cell is worse.",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Work in this folder, and keep it."
)
def certify(
    file: Path | None,
    endpoints: tuple[str, ...],
    no_embedded: bool,
    scenarios: tuple[str, ...],
    is_list: bool,
    quick: bool,
    soak: float,
    seed: int | None,
    json_file: Path | None,
    html_file: Path | None,
    markdown_file: Path | None,
    add: Path | None,
    compare: Path | None,
    keep: Path | None,
) -> None:
    """Runs pipelines with real processes, kills and freezes them at named points, and prints what holds.

    Without anything it certifies what needs no server: the ingest server, SQLite, webhooks, files, Parquet,
    Iceberg, Delta and Hudi. FILE, or --endpoint, names databases, brokers and buckets: in them it makes
    tables, topics and prefixes of its own, with headrace and certify in their names, and removes them
    afterwards. Exits with 1 if a cell does not hold what it claims, or if a scenario does not notice the
    defect that is put in to try it.
    """
    try:
        from headrace.certify.certification import Certification, Options
        from headrace.certify.endpoints_given import endpoints_given
        from headrace.certify.endpoints_of_file import endpoints_of_file
        from headrace.certify.meanings import MEANINGS
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{missing.name} is not installed: pip install 'headrace[certify]'") from None
    if is_list:
        for name, meaning in MEANINGS.items():
            click.echo(f"{name}\n    {meaning}")
        return
    if file and (endpoints or no_embedded):
        raise ConfigError("give either FILE or --endpoint")
    for written in filter(None, (json_file, html_file, markdown_file)):
        if not written.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder {written.parent} for {written.name}: make it first")
    before = _read(compare) if compare else None
    earlier = _read(add) if add else None
    named = (
        endpoints_of_file(load_config(file)) if file else endpoints_given(endpoints, embedded=not no_embedded)
    )
    chosen = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    tried = tuple(one.scenario for one in earlier.seeded) if earlier else ()
    options = Options(named, quick, scenarios, soak, chosen, not (file or no_embedded), tried)
    if earlier:
        options = replace(options, versions=earlier.versions)
        if earlier.mode == options.mode and not soak:
            options = replace(options, held=earlier.held)
    console = Console(highlight=False)
    if soak:
        console.print(f"seed {chosen}")
    with _ended_by_signals(), _folder(keep) as folder, _progress() as told:
        report = Certification(folder, options, told).run()
    if earlier:
        report = report.added_to(earlier)
    show(console, report)
    if json_file:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if html_file:
        html_file.write_text(to_html(report, MEANINGS))
    if markdown_file:
        markdown_file.write_text(to_markdown(report, MEANINGS))
    worse = worse_than(report, before) if before else []
    for sentence in worse:
        console.print(f"worse than before: {sentence}", style="red")
    if worse or not report.is_good:
        sys.exit(1)


def _read(file: Path) -> Report:
    try:
        return Report.of(json.loads(file.read_text()))
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{file} is not the evidence of a certification") from None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turns signals into exceptions, so that processes are killed and targets removed, as after Ctrl-C."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="headrace-certify-") as folder:
            yield Path(folder)
        return
    if keep.exists() and any(keep.iterdir()):
        raise ConfigError(f"{keep} is not empty: name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """Prints progress to standard error, so that standard output contains only the report."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda text, share: console.print(f"{share:4.0%}  {text}", soft_wrap=True)
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda text, share: progress.update(task, description=text, completed=share)
