"""`headrace bench`: puts load on a server, and compares the results with its peers."""

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

from headrace.bench.ratios import ratios
from headrace.bench.report import show
from headrace.bench.scenarios import Bench
from headrace.bench.settings import WORDS, Settings
from headrace.client.connection import parse_url
from headrace.errors import ConfigError

EXAMPLES = """\b
Examples:
  headrace bench ingest
  headrace bench ingest single crowd --clients 1 --clients 100 --seconds 30
  headrace bench ingest crowd --kafka 127.0.0.1:9092
  headrace bench ingest crowd --no-committer
  headrace bench ingest lag --url grpc://127.0.0.1:8815 --json"""

_COUNT = click.IntRange(min=1)
_SECONDS = click.FloatRange(min=0, min_open=True)
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


@click.group()
def bench() -> None:
    """Measures Headrace on this machine."""


@bench.command(epilog=EXAMPLES)
@click.argument("words", nargs=-1, type=click.Choice(WORDS), metavar="[single|crowd|lag|python]...")
@click.option("--rate", type=_COUNT, default=10_000, show_default=True, help="Offered in all, per second.")
@click.option(
    "--clients", type=_COUNT, multiple=True, default=(20, 100), show_default=True, help="Of the crowd."
)
@click.option("--seconds", type=_SECONDS, default=10.0, show_default=True, help="Of each measurement.")
@click.option("--warm-up", type=_SECONDS, default=2.0, show_default=True, help="Before it, in seconds.")
@click.option("--writes", type=_COUNT, default=1_000_000, show_default=True, help="Of the lag.")
@click.option("--payload", type=_COUNT, default=100, show_default=True, help="Bytes of each write.")
@click.option(
    "--coalesce",
    type=click.IntRange(min=2),
    default=500,
    show_default=True,
    help="Writes of a large message.",
)
@click.option(
    "--window",
    type=_COUNT,
    default=1_000,
    show_default=True,
    help="Writes in flight of a client without a rate.",
)
@click.option(
    "--url", help="A server to write to; collections bench_... stay there.  [default: one of its own]"
)
@click.option("--token", envvar="HEADRACE_TOKEN", help="For the server  [$HEADRACE_TOKEN]")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM of whom to trust, with TLS.",
)
@click.option("--kafka", metavar="HOST:PORT", help="A Kafka broker, as a peer.")
@click.option("--no-peers", is_flag=True, help="Leave out the bare tonic floor.")
@click.option(
    "--no-committer",
    is_flag=True,
    help="Commit nothing meanwhile; all that is written stays in the log until the end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print results as JSON, and nothing else.")
def ingest(
    words: tuple[str, ...],
    rate: int,
    clients: tuple[int, ...],
    seconds: float,
    warm_up: float,
    writes: int,
    payload: int,
    coalesce: int,
    window: int,
    url: str | None,
    token: str | None,
    ca: Path | None,
    kafka: str | None,
    no_peers: bool,
    no_committer: bool,
    as_json: bool,
) -> None:
    """Runs the load scenarios of the streaming write RFC, all or those that are named.

    \b
    single  one stock Flight client, at an offered rate and as fast as it goes
    crowd   many such clients at once
    lag     how long a million writes take to each tier
    python  one client in Python, at the offered rate

    All but python use native clients, one connection each. Beside them runs the floor, a server that
    acknowledges every write and keeps nothing, and Kafka where a broker is given.

    The server's committer, which writes to tables what has been acknowledged, shares the processors with all
    of these. Run once more with --no-committer to see what that costs.
    """
    settings = Settings(
        words=words or WORDS,
        rate=float(rate),
        clients=clients,
        seconds=seconds,
        warm_up=warm_up,
        writes=writes,
        payload=payload,
        coalesce=coalesce,
        window=window,
        url=None if url is None else parse_url(url),
        token=token if url is not None else None,
        ca=None if ca is None else ca.read_text(),
        kafka=kafka,
        peers=not no_peers,
        committer=not no_committer,
    )
    _check(settings)
    signal.signal(signal.SIGTERM, _leave)
    # To standard error: standard output is for results.
    with _progress(Console(stderr=True), quiet=as_json) as progress:
        results = Bench(settings, progress).run()
    if as_json:
        raw = results.to_json()
        raw["ratios"] = [asdict(ratio) | {"ratio": ratio.ratio} for ratio in ratios(results.measurements)]
        click.echo(json.dumps(raw, indent=2))
    else:
        show(Console(), results)


def _check(settings: Settings) -> None:
    if settings.kafka is not None and not _ADDRESS.fullmatch(settings.kafka):
        raise ConfigError(f"--kafka {settings.kafka}: expected HOST:PORT, such as 127.0.0.1:9092")
    if settings.kafka is not None and not settings.peers:
        raise ConfigError("--kafka names a peer and --no-peers leaves them out: give one of them")
    if settings.url is not None and not settings.committer:
        raise ConfigError("--no-committer is for a server of the bench's own: leave out --url")
    if settings.ca is not None and (settings.url is None or not settings.url.startswith("grpc+tls")):
        raise ConfigError("--ca is of use only with a --url that begins with grpc+tls://")


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)  # so that blocks end, and with them children and folders


class _Bars:
    """Shows a progress bar for each step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, total: int | None, done: int) -> None:
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total)
        self._progress.update(self._tasks[step], total=total, completed=done)


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[_Bars]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Few refreshes: each one takes time from what is measured.
    with Progress(*columns, console=console, refresh_per_second=2, disable=quiet) as progress:
        yield _Bars(progress)
