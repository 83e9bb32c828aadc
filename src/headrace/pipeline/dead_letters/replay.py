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
from headrace.pipeline.dead_letters.store import DeadLetter, read_dead_letters
from headrace.pipeline.settings import (
    CollectionSource,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    Source,
)

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
    """Dead letters that are sent together, to one source."""

    id: str
    collection: str
    binding: int
    letters: tuple[Sent, ...]


Send = Callable[[Batch], None]


class ReplayLog:
    """Remembers which dead letters of a materialization were sent again."""

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
        """Returns the ids of all letters that were sent, or that will be before anything else is."""
        return {letter.id for letter in self._sent()}

    def without_sent(self, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """Returns those that neither were sent, nor will be."""
        known = self.ids | {letter.source for letter in self._sent() if topic_of(letter.source)}
        return (letter for letter in letters if known.isdisjoint((letter.id, origin_of(letter))))

    def _sent(self) -> Iterator[Sent]:
        for number, batch in self._batches.items():
            if self._ended.get(number, True):
                yield from batch.letters

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
    """Returns those that nobody has sent, each once, in the order in which their rows were written."""
    return _each_once(log.without_sent(letters))


def _each_once(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    first: dict[str, DeadLetter] = {}
    for letter in sorted(letters, key=lambda letter: letter.order):
        first.setdefault(origin_of(letter), letter)
    return list(first.values())


def origin_of(letter: DeadLetter) -> str:
    """Identifies a row that several bindings have read: by its place in the topic, or by the letter's id."""
    return letter.source if topic_of(letter.source) else letter.id


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


def refuse_taken(
    settings: PipelineSettings,
    one: MaterializationSettings,
    letters: Iterable[DeadLetter],
    readers: Sequence[MaterializationSettings],
) -> None:
    """Refuses letters whose row another binding has taken: through their common source, it would come again.

    `readers` are all materializations that may read it. One that has dropped the row itself has not taken it,
    unless it was sent again since, for whichever of them.
    """
    dropped: dict[str, set[tuple[int, str]]] = {}
    for letter in letters:
        source = source_of(one, Batch("", letter.collection, letter.binding, (Sent("", "", letter.source),)))
        for reader in readers:
            for index, binding in enumerate(reader.bindings):
                is_own = (reader.name, index) == (one.name, letter.binding)
                if is_own or not _is_same(binding.source, source):
                    continue
                if reader.name not in dropped:
                    dropped[reader.name] = _dropped_by(settings, reader)
                if (index, letter.source) not in dropped[reader.name]:
                    raise ConfigError(
                        f"binding {index + 1} of materialization {reader.name!r} reads what dead letter "
                        f"{letter.id!r} came from, and has taken its row: sent again, it would be there "
                        "twice. Write it, from `dead-letter list --json`, to a source that only the binding "
                        "reads which has dropped it"
                    )


def _dropped_by(settings: PipelineSettings, reader: MaterializationSettings) -> set[tuple[int, str]]:
    if reader.dead_letters is None:
        return set()
    log = ReplayLog.of(settings, reader.name)
    log.refresh()
    found = read_dead_letters(reader.dead_letters, reader.name, settings.catalog)
    return {(letter.binding, letter.source) for letter in log.without_sent(found)}


def _is_same(left: Source, right: Source) -> bool:
    match left, right:
        case CollectionSource(collection=one), CollectionSource(collection=other):
            return one == other
        case KafkaSource(topic=one), KafkaSource(topic=other):
            return one == other
    return False


def topic_of(source: str) -> str:
    """Returns the topic of a letter's source; empty if that is no topic."""
    return str(json.loads(source).get("topic", "")) if source.startswith("{") else ""
