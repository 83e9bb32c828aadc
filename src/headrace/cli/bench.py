"""`headrace bench`: puts load on a server, and says how it fared next to its peers."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headrace.bench.plots import svg
from headrace.bench.report import show
from headrace.bench.scenarios import Bench
from headrace.bench.settings import SCENARIOS, Settings
from headrace.bench.verdicts import ratios, verdicts
from headrace.client.connection import parse_url
from headrace.errors import ConfigError

EXAMPLES = """\b
Examples:
  headrace bench ingest
  headrace bench ingest --scenario 1 --writes 20000 --no-peers
  headrace bench ingest --kafka 127.0.0.1:9092 --plot latency.svg
  headrace bench ingest --url grpc://127.0.0.1:8815 --json"""

_COUNT = click.IntRange(min=1)
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


@click.group()
def bench() -> None:
    """Measures Headrace on this machine."""


@bench.command(epilog=EXAMPLES)
@click.option(
    "--scenario", type=click.Choice([*map(str, SCENARIOS), "all"]), default="all", show_default=True
)
@click.option("--writes", type=_COUNT, help="Of each client.  [default: 100,000, 10,000 and 1,000,000]")
@click.option(
    "--rate", type=_COUNT, default=10_000, show_default=True, help="Offered in scenario 1, per second."
)
@click.option("--clients", type=_COUNT, default=100, show_default=True, help="In scenario 2.")
@click.option("--processes", type=_COUNT, default=2, show_default=True, help="Of scenario 2's clients.")
@click.option("--payload", type=_COUNT, default=100, show_default=True, help="Bytes of each write.")
@click.option(
    "--linger",
    type=click.FloatRange(min=0),
    help="Of coalescing clients, in ms.  [default: 100 in scenario 2, else 2]",
)
@click.option(
    "--runs", type=_COUNT, default=1, show_default=True, help="Of scenario 1; the middle one counts."
)
@click.option(
    "--url", help="A server to write to; collections bench_... stay there.  [default: one of its own]"
)
@click.option("--kafka", metavar="HOST:PORT", help="A Kafka broker, as a peer.")
@click.option("--no-peers", is_flag=True, help="Leave out the raw Flight ceiling, and Kafka.")
@click.option("--json", "as_json", is_flag=True, help="Print results as JSON, and nothing else.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw latencies into this SVG file."
)
def ingest(
    scenario: str,
    writes: int | None,
    rate: int,
    clients: int,
    processes: int,
    payload: int,
    linger: float | None,
    runs: int,
    url: str | None,
    kafka: str | None,
    no_peers: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Runs the three load scenarios of the streaming write RFC.

    1: one stock Flight client, at an offered rate and as fast as it goes, next to a server that only counts
    and to Kafka. 2: many coalescing clients at once. 3: how long a million writes take to object storage.
    """
    settings = Settings(
        scenarios=SCENARIOS if scenario == "all" else (int(scenario),),
        writes=writes,
        rate=float(rate),
        clients=clients,
        processes=processes,
        payload=payload,
        linger=None if linger is None else linger / 1000,
        runs=runs,
        url=None if url is None else parse_url(url),
        kafka=kafka,
        peers=not no_peers,
    )
    _check(settings, plot)
    signal.signal(signal.SIGTERM, _leave)
    # To standard error: standard output is for results.
    with _progress(Console(stderr=True), quiet=as_json) as progress:
        measuring = Bench(settings, progress)
        results = measuring.run()
    if plot is not None:
        title = f"Latency by percentile, {settings.rate:,.0f} writes/s offered"
        plot.write_text(svg(results.single, title))
    if as_json:
        raw = results.to_json()
        raw["verdicts"] = [asdict(verdict) for verdict in verdicts(results)]
        raw["ratios"] = [asdict(ratio) | {"ratio": ratio.ratio} for ratio in ratios(results)]
        click.echo(json.dumps(raw, indent=2))
    else:
        show(Console(), results, settings)


def _check(settings: Settings, plot: Path | None) -> None:
    if settings.kafka is not None and not _ADDRESS.fullmatch(settings.kafka):
        raise ConfigError(f"--kafka {settings.kafka}: expected HOST:PORT, such as 127.0.0.1:9092")
    if settings.kafka is not None and not settings.peers:
        raise ConfigError("--kafka names a peer and --no-peers leaves them out: give one of them")
    if plot is None:
        return
    if plot.suffix != ".svg":
        raise ConfigError(f"--plot {plot}: only SVG is drawn, so the name has to end in .svg")
    if not plot.absolute().parent.is_dir():
        raise ConfigError(f"--plot {plot}: there is no folder {plot.absolute().parent}")
    if 1 not in settings.scenarios:
        raise ConfigError("--plot draws the latencies of scenario 1, which is not asked for")


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)  # so that blocks end, and with them children and folders


class _Bars:
    """A line for each step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, total: int, done: int) -> None:
        if step not in self._tasks or done == 0:
            self._tasks[step] = self._progress.add_task(step, total=total)
        self._progress.update(self._tasks[step], completed=done)


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[_Bars]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Few refreshes: each one takes time from what is measured.
    with Progress(*columns, console=console, refresh_per_second=2, disable=quiet) as progress:
        yield _Bars(progress)
