"""`headrace dead-letter`: shows rows that a rule dropped, and sends them again."""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import orjson

from headrace.config import Part, load_config
from headrace.errors import ConfigError
from headrace.pipeline.dead_letters.replay import ReplayLog, Send, pending, refuse_taken, replay
from headrace.pipeline.dead_letters.store import DeadLetter, read_dead_letters
from headrace.pipeline.dead_letters.targets import Targets
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings

LIST_EXAMPLES = """\b
Examples:
  headrace dead-letter list headrace.yaml
  headrace dead-letter list headrace.yaml sales --rule positive --since 2h
  headrace dead-letter list headrace.yaml sales --limit 0 --json > dead.jsonl"""

REPLAY_EXAMPLES = """\b
Examples:
  headrace dead-letter replay headrace.yaml sales --rule positive --dry-run
  headrace dead-letter replay headrace.yaml sales --epoch 12
  headrace dead-letter replay headrace.yaml sales --from-file corrected.jsonl"""

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_AGO = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SHOWN = 160


@click.group("dead-letter")
def dead_letter() -> None:
    """Shows rows that a rule of quality dropped, and sends them again."""


@dead_letter.command("list", epilog=LIST_EXAMPLES)
@click.argument("file", type=FILE)
@click.argument("name", required=False)
@click.option("--rule", default="", help="Only those that failed this rule.")
@click.option("--since", metavar="WHEN", help="Only later ones: 2026-11-16, 2026-11-16T08:00:00Z, or 2h ago.")
@click.option("--limit", default=20, show_default=True, help="At most so many, the latest; 0 for all.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each, which replay takes back.")
def list_command(
    file: Path, name: str | None, rule: str, since: str | None, limit: int, as_json: bool
) -> None:
    """Shows the dead letters of FILE's materializations, or of NAME, the latest first.

    Only those of epochs that are committed: others do not count yet.
    """
    moment = parse_since(since, datetime.now(UTC)) if since else None
    settings = load_config(file, Part.PIPELINE).pipeline_settings(names=[name] if name else [])
    for text in listing(settings, rule=rule, since=moment, limit=limit, as_json=as_json):
        click.echo(text)


@dead_letter.command("replay", epilog=REPLAY_EXAMPLES)
@click.argument("file", type=FILE)
@click.argument("name")
@click.option("--rule", default="", help="Only those that failed this rule.")
@click.option("--epoch", type=int, help="Only those of this epoch.")
@click.option("--from-file", type=FILE, metavar="JSONL", help="Corrected rows, as list --json printed them.")
@click.option("--server", default="grpc://127.0.0.1:8815", show_default=True, help="Where collections are.")
@click.option("--token", envvar="HEADRACE_TOKEN", help="For the server  [$HEADRACE_TOKEN]")
@click.option("--again", is_flag=True, help="Also those that were sent before.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent.")
def replay_command(
    file: Path,
    name: str,
    rule: str,
    epoch: int | None,
    from_file: Path | None,
    server: str,
    token: str | None,
    again: bool,
    dry_run: bool,
) -> None:
    """Sends dead letters of the materialization NAME to where they came from, each once.

    That is the collection, through the ingest server, or the Kafka topic. A row is judged like any other, so
    change the rule first, or correct the rows.
    """
    config = load_config(file, Part.PIPELINE)
    settings = config.pipeline_settings(names=[name])
    readers = config.pipeline_settings().materializations
    corrected = read_corrected(from_file) if from_file else None
    targets = Targets(settings.materializations[0], server, token)
    try:
        said = send_again(
            settings,
            targets,
            readers=readers,
            rule=rule,
            epoch=epoch,
            corrected=corrected,
            again=again,
            dry_run=dry_run,
        )
    finally:
        targets.close()
    click.echo(said)


def parse_since(text: str, now: datetime) -> datetime:
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--since {text!r} is no time: write 2026-11-16, 2026-11-16T08:00:00Z, or 30m, 2h or 7d"
        ) from None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def listing(
    settings: PipelineSettings, *, rule: str, since: datetime | None, limit: int, as_json: bool
) -> Iterator[str]:
    with_letters = [one for one in settings.materializations if one.dead_letters is not None]
    if not with_letters and not as_json:
        yield "no rule of these materializations drops rows, so there are no dead letters"
    for one in with_letters:
        yield from _listing(settings, one, rule, since, limit, as_json)


def _listing(
    settings: PipelineSettings,
    one: MaterializationSettings,
    rule: str,
    since: datetime | None,
    limit: int,
    as_json: bool,
) -> Iterator[str]:
    log = ReplayLog.of(settings, one.name)
    log.refresh()
    sent = log.ids
    rules: Counter[str] = Counter()
    epochs: Counter[int] = Counter()

    def counted() -> Iterator[DeadLetter]:
        for letter in _letters(settings, one, rule=rule, since=since):
            rules.update(letter.rules)
            epochs[letter.epoch] += 1
            yield letter

    def latest(letter: DeadLetter) -> tuple[Any, ...]:
        return (letter.failed_at, *letter.order)

    letters = counted()
    shown = heapq.nlargest(limit, letters, latest) if limit else sorted(letters, key=latest, reverse=True)
    total = epochs.total()
    if as_json:
        yield from (letter.to_json(replayed=letter.id in sent) for letter in shown)
        return
    yield f"{one.name}: {_counted(total, 'dead letter')} in {_counted(len(epochs), 'epoch')}"
    width = max(map(len, rules), default=0)
    yield from (f"  {name:{width}}  {count}" for name, count in rules.most_common())
    for letter in shown:
        replayed = "  (sent again)" if letter.id in sent else ""
        when = letter.failed_at.isoformat(timespec="seconds").replace("+00:00", "Z")
        row = letter.row if len(letter.row) <= _SHOWN else f"{letter.row[: _SHOWN - 3]}..."
        failed = ", ".join(letter.rules)
        yield f"\nepoch {letter.epoch}  {when}  {letter.collection}: {failed}{replayed}\n  {row}"
    if total > len(shown):
        yield f"\n{total - len(shown)} more: --limit 0 shows all"


def send_again(
    settings: PipelineSettings,
    send: Send,
    *,
    readers: Sequence[MaterializationSettings] = (),
    rule: str = "",
    epoch: int | None = None,
    corrected: dict[str, str] | None = None,
    again: bool = False,
    dry_run: bool = False,
) -> str:
    """Does what `replay` describes, and returns its report. `readers` are all that may read the same
    sources."""
    (one,) = settings.materializations
    if one.dead_letters is None:
        raise ConfigError(f"materialization {one.name!r} has no dead letters: none of its rules drops rows")
    letters = list(_letters(settings, one, rule=rule, epoch=epoch))
    if corrected is not None:
        letters = [letter for letter in letters if letter.id in corrected]
        missing = corrected.keys() - {letter.id for letter in letters}
        if missing:
            raise ConfigError(
                f"{sorted(missing)[0]!r} is the id of no dead letter of {one.name!r} that was asked for: "
                "take ids from `dead-letter list --json`"
            )
    log = ReplayLog.of(settings, one.name)
    log.refresh()
    chosen = letters if again else pending(log, letters)
    undecoded = [
        letter
        for letter in chosen
        if "encoding" in letter.rules and (corrected or {}).get(letter.id, letter.row) == letter.row
    ]
    if undecoded:
        raise ConfigError(
            f"dead letter {undecoded[0].id!r} is no text in UTF-8, and would be dropped again: correct such "
            "rows with --from-file, and send others with --rule or --epoch"
        )
    refuse_taken(settings, one, chosen, readers or settings.materializations)
    if dry_run:
        count = len({letter.id for letter in chosen})
        return f"{_counted(count, 'dead letter')} of {len({letter.id for letter in letters})} would be sent"
    sent = replay(log, letters, send, corrected=corrected, again=again)
    skipped = len({letter.id for letter in letters}) - sent
    note = f"; {skipped} were sent before (--again sends them once more)" if skipped else ""
    return f"{_counted(sent, 'dead letter')} sent{note}"


def _letters(settings: PipelineSettings, one: MaterializationSettings, **which: Any) -> Iterator[DeadLetter]:
    assert one.dead_letters is not None
    return read_dead_letters(one.dead_letters, one.name, settings.catalog, **which)


def read_corrected(path: Path) -> dict[str, str]:
    """Returns rows by the ids of their letters, from lines in the format of `list --json`."""
    corrected: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line, parse_float=Decimal)
            name, row = raw["id"], raw["row"]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{path}:{number}: this is no line of `dead-letter list --json`") from None
        if name in corrected:
            raise ConfigError(f"{path}:{number}: dead letter {name!r} is there twice: remove one")
        corrected[name] = row if isinstance(row, str) else orjson.dumps(row, default=_exact).decode()
    return corrected


def _exact(value: Any) -> orjson.Fragment:
    return orjson.Fragment(str(value))  # a decimal, with the digits that it has


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
