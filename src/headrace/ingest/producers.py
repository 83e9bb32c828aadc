"""Which sequence numbers of which producers are already in the log, and under which LSNs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from headrace.wal.records import Writes
from headrace.wal.state import PRODUCER_SILENCE_US, LogState

# Runs beyond this are forgotten, oldest first: a resent write older than that is still recognised, but is
# answered without its LSN. It takes that many gaps in the LSNs of one producer before anything is committed.
_MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive sequence numbers with consecutive LSNs. LSN 0: no longer remembered."""

    seq: int
    lsn: int
    count: int

    def to_json(self) -> list[int]:
        return [self.seq, self.lsn, self.count]


@dataclass(slots=True)
class Producer:
    """One producer in one collection."""

    last_seq: int = 0
    seen_us: int = 0
    """When it was last heard of, in the log's own time."""
    runs: list[Run] = field(default_factory=list)
    holder: object = None
    """The session that may write; a newer one takes its place."""
    lock: Lock = field(default_factory=Lock)
    """Of the numbers, which the intake alone moves on; and held from the look at the holder until its message
    is on the way there."""

    @property
    def last_lsn(self) -> int:
        """Of its last write, or 0 if it has none."""
        return self.runs[-1].lsn + self.runs[-1].count - 1 if self.runs else 0

    def wrote(self, seq: int, lsn: int, count: int, now_us: int) -> None:
        if seq <= self.last_seq:  # it was forgotten, and began anew
            self.runs.clear()
        self.last_seq = seq + count - 1
        self.seen_us = now_us
        if self.runs:
            last = self.runs[-1]
            if last.seq + last.count == seq and last.lsn + last.count == lsn:
                self.runs[-1] = Run(last.seq, last.lsn, last.count + count)
                return
        self.runs.append(Run(seq, lsn, count))
        if len(self.runs) > _MOST_RUNS:
            del self.runs[: _MOST_RUNS // 2]

    def find(self, seq: int, count: int) -> list[Run]:
        """Where `count` writes from `seq` on were put, all of which were written before."""
        found: list[Run] = []
        position = max(bisect_right(self.runs, seq, key=lambda run: run.seq) - 1, 0)
        end = seq + count
        while seq < end:
            run = self.runs[position] if position < len(self.runs) else Run(end, 0, 0)
            if run.seq > seq:  # forgotten, or a number that the producer left out
                known = min(run.seq, end)
                found.append(Run(seq, 0, known - seq))
                seq = known
                continue
            offset = seq - run.seq
            if offset < run.count:
                taken = min(run.count - offset, end - seq)
                found.append(Run(seq, run.lsn + offset, taken))
                seq += taken
            position += 1
        return found

    def left_out(self, seq: int, count: int) -> int | None:
        """The first of these numbers that was never written, though a later one was; None if none is known to
        be: those before the first run are forgotten, since they are committed."""
        for run in self.find(seq, count):
            if not run.lsn and self.runs and run.seq + run.count - 1 >= self.runs[0].seq:
                return max(run.seq, self.runs[0].seq)
        return None

    def after(self, lsn: int) -> list[Run]:
        """What is remembered of LSNs above this one."""
        kept = []
        for run in self.runs:
            skipped = min(max(lsn - run.lsn + 1, 0), run.count)
            if skipped < run.count:
                kept.append(Run(run.seq + skipped, run.lsn + skipped, run.count - skipped))
        return kept

    def forget_until(self, lsn: int) -> None:
        """Drops runs that are committed, except for the last."""
        done = 0
        while done < len(self.runs) - 1 and self.runs[done].lsn + self.runs[done].count - 1 <= lsn:
            done += 1
        del self.runs[:done]


class Producers:
    """All producers, by collection and id."""

    def __init__(self, state: LogState) -> None:
        self._lock = Lock()  # so that nobody takes a producer over that is just being forgotten
        self._known: dict[tuple[str, str], Producer] = {}
        self.forgotten_lsn = state.forgotten_lsn
        """No producer was ever forgotten whose last write has a higher LSN than this."""
        for name, producer in state.producers.items():
            runs = [Run(producer.last_seq, producer.last_lsn, 1)]
            self._known[name] = Producer(producer.last_seq, producer.seen_us, runs)

    def recovered(self, collection: str, producer: str, runs: list[Run]) -> None:
        """The runs that the log still holds, in order."""
        known = self._known.setdefault((collection, producer), Producer())
        known.runs.clear()
        for run in runs:
            known.wrote(run.seq, run.lsn, run.count, known.seen_us)

    def take_over(self, collection: str, producer: str, holder: object) -> Producer:
        """The producer, which from now on only this holder may write as."""
        with self._lock:
            known = self._known.setdefault((collection, producer), Producer())
            with known.lock:
                known.holder = holder
            return known

    def committed(self, collection: str, lsn: int) -> None:
        for (of, _), producer in list(self._known.items()):
            if of == collection:
                with producer.lock:
                    producer.forget_until(lsn)

    def forget_silent(self, now_us: int, is_in_log: Callable[[tuple[str, str]], bool]) -> None:
        """Forgets as the log's state does, and after it: or a restart would bring a producer back."""
        with self._lock:
            for name, producer in list(self._known.items()):
                is_silent = producer.holder is None and now_us - producer.seen_us > PRODUCER_SILENCE_US
                if is_silent and not is_in_log(name):
                    self.forgotten_lsn = max(self.forgotten_lsn, producer.last_lsn)
                    del self._known[name]

    def __len__(self) -> int:
        return len(self._known)


def collect_into(runs: dict[tuple[str, str], list[Run]]) -> Callable[[str, Writes], None]:
    """Returns what notes down the runs of producers as a log is read."""

    def collect(collection: str, writes: Writes) -> None:
        if writes.producer:
            runs[collection, writes.producer].append(Run(writes.first_seq, writes.first_lsn, writes.count))

    return collect
