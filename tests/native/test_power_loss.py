"""A log on a disk that drops and reorders what was not synced: power may be lost at every point.

The log lives by a random schedule in Rust. The reader in Python recovers what each point leaves, and compares
it with what was promised by then; from one of the points the log lives on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from headrace.ingest.producers import Run, collect_into
from headrace.wal.records import Writes
from headrace.wal.recovery import Recovered, recover
from tests.chance import SOAK_SEED
from tests.native.native_log import NativeLog, native_log

pytestmark = pytest.mark.processes

_LIVES = 3
_SCHEDULES = int(os.environ.get("HEADRACE_SOAK_SCHEDULES", "10000"))


@pytest.fixture
def native() -> Iterator[NativeLog]:
    with native_log() as log:
        yield log


@dataclass
class Write:
    """A message: its first LSN, how many writes it is, and what is in it."""

    lsn: int
    count: int
    payload: bytes
    producer: str
    seq: int


@dataclass
class Found:
    recovered: Recovered
    writes: list[Writes] = field(default_factory=list)
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))


def find(folder: Path) -> Found:
    found = Found(Recovered())
    collect = collect_into(found.runs)

    def on_writes(collection: str, writes: Writes) -> None:
        found.writes.append(writes)
        collect(collection, writes)

    found.recovered = recover(folder, on_writes)
    return found


class History:
    """What was written in all lives, and what of it has to be there for ever."""

    def __init__(self, native: NativeLog, folder: Path, seed: int) -> None:
        self._native, self._folder, self._random = native, folder, Random(seed)
        self._written: dict[int, Write] = {}
        self._durable: set[int] = set()
        self._given = 0
        self._sealed: dict[int, dict[str, Any]] = {}
        self.images = 0

    def live(self, life: int, defect: str | None = None) -> None:
        """One life, and what is left at each point at which it may have ended."""
        home, images = self._folder / f"{life}", self._folder / f"images-{life}"
        home.mkdir(exist_ok=True)
        images.mkdir()
        found = find(home)
        found.recovered.start_term(0)
        state, segments = found.recovered.state, found.recovered.segments
        told = self._native.live(
            folder=str(home),
            images=str(images),
            seed=self._random.randrange(2**63),
            term=0,
            number=found.recovered.next_number,
            previous_length=segments[-1].length if segments else 0,
            state=orjson.loads(state.encode()),
            runs=[
                [*name, [[run.seq, run.lsn, run.count] for run in runs]]
                for name, runs in found.runs.items()
                if name in state.producers
            ],
            defect=defect,
        )
        assert told["used_after_failure"] is None, "a file is left alone once a sync of it has failed"
        for lsn, count, token, length, producer, seq, _ in told["writes"]:
            assert lsn not in self._written, "an LSN is given away once"
            self._written[lsn] = Write(lsn, count, token.to_bytes(8, "little") * (length // 8), producer, seq)
        for image in told["images"]:
            assert image["error"] is None
            self._check(images / image["name"], image)
        self.images += len(told["images"])
        self._go_on_from(self._random.choice(told["images"]), images, self._folder / f"{life + 1}")
        shutil.rmtree(home)

    def _go_on_from(self, image: dict[str, Any], images: Path, next_home: Path) -> None:
        (images / image["name"]).rename(next_home)
        shutil.rmtree(images)
        self._durable |= {lsn for lsn in self._written if lsn <= image["durable"]}
        self._given = max(self._given, image["given"])
        self._sealed |= {one["number"]: one for one in image["sealed"]}
        # What is there now stays, promised or not, and what is not does not come back.
        there = {write.lsn for one in find(next_home).writes for write in self._messages_of(one)}
        assert self._durable <= there
        self._durable = there
        self._written = {lsn: write for lsn, write in self._written.items() if lsn in there}

    def _check(self, folder: Path, image: dict[str, Any]) -> None:
        found = find(folder)
        written = [write for one in found.writes for write in self._messages_of(one)]
        lsns = [write.lsn for write in written]
        assert lsns == sorted(set(lsns))
        promised = self._durable | {lsn for lsn in self._written if lsn <= image["durable"]}
        assert promised <= set(lsns), "what was announced on the disk is there"
        found.recovered.start_term(0)
        state = found.recovered.state
        assert state.reserved_until > max(image["given"], self._given), "no LSN can be given away again"
        by_number = {segment.header.number: segment for segment in found.recovered.segments}
        for sealed in [*self._sealed.values(), *image["sealed"]]:
            segment = by_number[sealed["number"]]
            told = {key: sealed[key] for key in ("last_lsn", "last_lsns", "has_state", "first_accepted_us")}
            assert {key: getattr(segment, key) for key in told} == told
            assert (segment.length, segment.header.nonce) == (sealed["length"], sealed["nonce"])
        last_seqs = {write.producer: write.seq + write.count - 1 for write in written if write.producer}
        assert {name: one.last_seq for (_, name), one in state.producers.items()} == last_seqs

    def _messages_of(self, record: Writes) -> Iterator[Write]:
        """The messages of a record, each of which somebody has written so."""
        lsn, at, payload = record.first_lsn, 0, bytes(record.payload)
        while lsn <= record.last_lsn:
            write = self._written[lsn]
            assert payload[at : at + len(write.payload)] == write.payload
            assert (record.producer, record.first_seq + lsn - record.first_lsn if record.producer else 0) == (
                write.producer,
                write.seq,
            )
            yield write
            lsn, at = lsn + write.count, at + len(write.payload)
        assert (lsn - 1, at) == (record.last_lsn, len(payload))


def live_and_die(native: NativeLog, folder: Path, seed: int, defect: str | None = None) -> int:
    folder.mkdir()
    history = History(native, folder, seed)
    for life in range(_LIVES):
        history.live(life, defect)
    shutil.rmtree(folder)
    return history.images


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder for thousands of small files, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of recoveries: the real disk would be most of the time."""
    monkeypatch.setattr("headrace.wal.recovery._sync", lambda _: None)


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_whenever_power_is_lost_what_was_promised_is_there(
    native: NativeLog, memory: Path, first: int
) -> None:
    images = sum(live_and_die(native, memory / str(seed), seed) for seed in range(first, first + 20))
    assert images > 20 * _LIVES * 5, "there are many points at which power is lost"


@pytest.mark.soak
@pytest.mark.timeout(12 * 3600)
@pytest.mark.usefixtures("unsynced")
def test_power_is_lost_in_many_schedules(native: NativeLog, memory: Path) -> None:
    chance = Random(SOAK_SEED)
    for _ in range(_SCHEDULES):
        seed = chance.randrange(2**48)
        live_and_die(native, memory / str(seed), seed)


@pytest.mark.usefixtures("unsynced")
def test_a_promise_that_is_made_before_the_sync_is_noticed(native: NativeLog, memory: Path) -> None:
    with pytest.raises(AssertionError, match="what was announced on the disk is there"):
        live_and_die(native, memory / "log", 1, "told_before_sync")
