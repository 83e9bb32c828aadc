"""Sends dead letters again to where they came from, each once.

    replays/00000000000000000001.json    what was to be sent, written before it was
    replays/00000000000000000001.end     it was, or was refused

A batch is a record that only one can create. Whoever replays first finishes what others have begun, under the
id that they began it with, by which the ingest server knows what it has. So a crash at any point, or two who
replay at once, send a letter once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from urllib.parse import quote
from uuid import uuid4

from headrace.errors import ConfigError, Terminal
from headrace.objects import ObjectExists, ObjectStore
from headrace.pipeline.dead_letter_store import DeadLetter
from headrace.pipeline.settings import KafkaSource, MaterializationSettings, PipelineSettings, Source

_MOST_ROWS = 1000
_MOST_BYTES = 1 << 20
_BATCH = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class Sent:
    """A letter, with the row as it is sent: that of the letter, or a corrected one."""

    id: str
    row: str
    source: str


@dataclass(frozen=True)
class Batch:
    """What is sent together, to one source."""

    id: str
    collection: str
    binding: int
    letters: tuple[Sent, ...]


Send = Callable[[Batch], None]


class ReplayLog:
    """What of a materialization was sent again."""

    def __init__(self, store: ObjectStore, materialization: str) -> None:
        self._store = store
        self._prefix = f"dead-letters/{quote(materialization, safe='')}/_replays"
        self._batches: dict[int, Batch] = {}
        self._ended: dict[int, bool] = {}  # whether it was sent

    @staticmethod
    def of(settings: PipelineSettings, materialization: str) -> ReplayLog:
        return ReplayLog(ObjectStore(settings.state_url, settings.state_options), materialization)

    def refresh(self) -> None:
        paths = self._store.list(self._prefix, "tell what was replayed")
        names = {path.removeprefix(f"{self._prefix}/") for path in paths}
        for name in sorted(names):
            found = _BATCH.fullmatch(name)
            if not found:
                continue
            number = int(found[1])
            if number not in self._batches:
                raw = json.loads(self._store.get(f"{self._prefix}/{name}", "tell what was replayed"))
                letters = tuple(Sent(**letter) for letter in raw.pop("letters"))
                self._batches[number] = Batch(**raw, letters=letters)
            if number not in self._ended and f"{number:020}.end" in names:
                end = self._store.get(f"{self._prefix}/{number:020}.end", "tell what was replayed")
                self._ended[number] = json.loads(end)["sent"]

    @property
    def ids(self) -> set[str]:
        """Of all letters that were sent, or that will be before anything else is."""
        batches = [batch for number, batch in self._batches.items() if self._ended.get(number, True)]
        return {letter.id for batch in batches for letter in batch.letters}

    @property
    def unfinished(self) -> dict[int, Batch]:
        return {number: batch for number, batch in self._batches.items() if number not in self._ended}

    def add(self, batch: Batch) -> int | None:
        """None if another one was quicker: look again at what is left to do."""
        number = max(self._batches, default=0) + 1
        data = json.dumps(asdict(batch)).encode()
        try:
            self._store.create(f"{self._prefix}/{number:020}.json", data, "note what is replayed")
        except ObjectExists:
            return None
        self._batches[number] = batch
        return number

    def end(self, number: int, *, sent: bool) -> None:
        data = json.dumps({"sent": sent}).encode()
        with suppress(ObjectExists):  # by another one, who finished it too
            self._store.create(f"{self._prefix}/{number:020}.end", data, "note what was replayed")
        self._ended[number] = sent


def replay(
    log: ReplayLog,
    letters: Sequence[DeadLetter],
    send: Send,
    *,
    corrected: dict[str, str] | None = None,
    again: bool = False,
) -> int:
    """Sends the letters that nobody has sent, or all of them `again`; returns how many.

    `corrected` has rows, by their letters' ids, that are sent instead.
    """
    log.refresh()
    for number, batch in log.unfinished.items():
        _send(log, number, batch, send)
    count = 0
    left = _each_once(letters) if again else pending(log, letters)
    while left:
        batch, rest = _first_batch(left, corrected or {})
        found = log.add(batch)
        if found is None:
            log.refresh()
            left = left if again else pending(log, left)
            continue
        _send(log, found, batch, send)
        count += len(batch.letters)
        left = rest
    return count


def _send(log: ReplayLog, number: int, batch: Batch, send: Send) -> None:
    try:
        send(batch)
    except Terminal:
        # Nothing of it was taken, and it would stand in the way of all that come after it.
        log.end(number, sent=False)
        raise
    log.end(number, sent=True)


def pending(log: ReplayLog, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Those that nobody has sent, each once, in the order in which their rows were written."""
    known = log.ids
    return _each_once(letter for letter in letters if letter.id not in known)


def _each_once(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    first: dict[str, DeadLetter] = {}
    for letter in sorted(letters, key=lambda letter: letter.order):
        first.setdefault(letter.id, letter)
    return list(first.values())


def _first_batch(left: list[DeadLetter], corrected: dict[str, str]) -> tuple[Batch, list[DeadLetter]]:
    def where(letter: DeadLetter) -> tuple[str, int, str]:
        return letter.collection, letter.binding, topic_of(letter.source)

    (collection, binding, _), group = next(groupby(left, key=where))
    taken = list(_up_to_limits(Sent(one.id, corrected.get(one.id, one.row), one.source) for one in group))
    return Batch(uuid4().hex, collection, binding, tuple(taken)), left[len(taken) :]


def _up_to_limits(letters: Iterator[Sent]) -> Iterator[Sent]:
    size = 0
    for count, letter in enumerate(letters):
        size += len(letter.row)
        if count == _MOST_ROWS or (count and size > _MOST_BYTES):
            return
        yield letter


def source_of(settings: MaterializationSettings, batch: Batch) -> Source:
    """Where a batch's rows came from. Bindings may have moved since."""
    bindings = list(settings.bindings)
    if batch.binding < len(bindings):
        bindings.insert(0, bindings[batch.binding])
    topic = topic_of(batch.letters[0].source)
    for binding in bindings:
        is_read = not topic or (isinstance(binding.source, KafkaSource) and binding.source.topic == topic)
        if binding.collection.name == batch.collection and is_read:
            return binding.source
    of_topic = f" from topic {topic!r}" if topic else ""
    raise ConfigError(
        f"materialization {settings.name!r} has no binding of collection {batch.collection!r}{of_topic} any "
        "more: its dead letters cannot be sent to where they came from"
    )


def topic_of(source: str) -> str:
    """Of a letter's source; empty if that is no topic."""
    return str(json.loads(source).get("topic", "")) if source.startswith("{") else ""
