"""Tells the client of one session how far its writes have come, on a thread of its own."""

from __future__ import annotations

import logging
import time
from collections import deque
from threading import Event, Lock, Thread
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import flight

from headrace.ingest.acks import MOST_ROWS, Notice, ack_batch
from headrace.ingest.ledger import Ledger
from headrace.ingest.options import Options
from headrace.ingest.producers import Run
from headrace.ingest.progress import Progress, Reached, now_us
from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier

log = logging.getLogger(__name__)

# A message for each acknowledgement starves everything else (p99 of 100 ms where this has 5), so news of a
# tier gathers for a moment, or until there is something to go with. A write's first one does not: writes have
# gathered before they got their LSNs.
_UPDATE_LINGER = 0.002
# Who asks for watermarks writes in bulk, and a hundred such clients are worth one message less each.
_WATERMARK_LINGER = 0.004
_EVERYTHING = 2**64 - 1


class Announcer:
    """A listener of `Progress` that turns watermarks into the notices of one session."""

    def __init__(
        self, collection: str, options: Options, writer: Any, progress: Progress, statistics: Statistics
    ) -> None:
        self.collection = collection
        self._options, self._writer, self._progress, self._statistics = options, writer, progress, statistics
        self._ledger = Ledger(options.levels)
        self._assigned: list[Run] = []
        self._statuses: deque[dict[str, Any]] = deque()
        self._lock = Lock()  # guards the ledger and the assigned runs
        self._news = Event()
        self._hurry = Event()  # there is something that does not wait for more news of tiers
        self._finishing = self._stopping = False
        self._unannounced_since: float | None = None
        self.is_broken = False
        self._thread = Thread(target=self._run, name=f"acks {collection}", daemon=True)

    def start(self) -> None:
        self._progress.listen(self)
        self._thread.start()

    # What the session calls.

    def wrote(self, first: int, count: int, seq: int) -> None:
        with self._lock:
            self._ledger.add(first, count)
            if seq:
                self._assigned.append(Run(seq, first, count))
            if self._unannounced_since is None:
                self._unannounced_since = time.perf_counter()
        self._wake_now()

    def wrote_before(self, runs: list[Run]) -> None:
        """Duplicates: told again under the LSNs that they got the first time."""
        with self._lock:
            for run in runs:
                if run.lsn:
                    self._ledger.add(run.lsn, run.count)
            self._assigned += runs
        self._wake_now()

    def resume(self, runs: list[Run]) -> None:
        """Tells of every tier but the first what an earlier session of the producer wrote."""
        with self._lock:
            for run in runs:
                self._ledger.add(run.lsn, run.count)
            self._ledger.skip(Tier.MEMORY)
        self._wake_now()

    def say(self, status: dict[str, Any]) -> None:
        """A message without a batch, to a client that sent options; others may not expect one."""
        if self._options.given:
            self._statuses.append(status)
            self._wake_now()

    def finish(self) -> None:
        """Ends by itself when everything is announced."""
        self._finishing = True
        self._wake_now()

    def stop(self) -> None:
        """Announces what there is to announce, and ends."""
        self._stopping = True
        self._wake_now()

    def join(self, timeout: float | None = None) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def forget(self) -> None:
        self._progress.forget(self)

    @property
    def ranges(self) -> int:
        """How much waits to be told; a client that does not read makes either grow."""
        return max(self._ledger.ranges, len(self._assigned))

    def pending(self, tier: Tier) -> int:
        return self._ledger.pending(tier)

    # What `Progress` calls.

    def waits_for(self, tier: Tier) -> bool:
        return self._ledger.pending(tier) > 0

    def wake(self) -> None:
        if not self._news.is_set():
            self._news.set()

    # The thread.

    def _wake_now(self) -> None:
        if not self._hurry.is_set():
            self._hurry.set()
        self.wake()

    def _run(self) -> None:
        try:
            while True:
                self._news.wait()
                if self._options.by_watermark and not self._stopping:
                    time.sleep(_WATERMARK_LINGER)
                else:
                    self._hurry.wait(_UPDATE_LINGER)
                self._news.clear()
                self._hurry.clear()
                stopping = self._stopping
                while self._announce():
                    pass
                if stopping or (self._finishing and self._ledger.is_done):
                    return
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            # The client is gone or the call was cancelled; the reading side learns of it by itself.
            self.is_broken = True
            log.debug("acknowledgements of %s ended: %s", self.collection, error)
        except Exception:
            self.is_broken = True
            log.exception("acknowledgements of %s", self.collection)

    def _announce(self) -> bool:
        """Sends what there is, and says whether there may be more."""
        while self._statuses:
            self._writer.write_metadata(orjson.dumps(self._statuses.popleft()))
        with self._lock:
            notices = [notice for tier in self._options.levels if (notice := self._notice(tier)).reached]
            assigned, self._assigned = self._assigned, []
            since, self._unannounced_since = self._unannounced_since, None
        plain = [notice for notice in notices if notice.tier is not Tier.COMMITTED]
        metadata = orjson.dumps({"assigned": [run.to_json() for run in assigned]}) if assigned else None
        if metadata and plain and plain[0].tier is Tier.MEMORY:
            self._writer.write_with_metadata(ack_batch(plain), metadata)
        else:
            if metadata:
                self._writer.write_metadata(metadata)
            if plain:
                self._writer.write_batch(ack_batch(plain))
        for notice in notices:
            if notice.tier is Tier.COMMITTED:
                self._announce_committed(notice)
        if since is not None:
            self._statistics.ack_seconds.append(time.perf_counter() - since)
        self._statistics.acks += sum(notice.rows for notice in notices)
        return any(notice.rows >= MOST_ROWS for notice in notices)

    def _announce_committed(self, notice: Notice) -> None:
        """One message for each snapshot."""
        by_snapshot: dict[int | None, list[Reached]] = {}
        for run in notice.reached:
            by_snapshot.setdefault(run.snapshot_id, []).append(run)
        for snapshot_id, runs in by_snapshot.items():
            batch = ack_batch([Notice(Tier.COMMITTED, runs)])
            self._writer.write_with_metadata(batch, orjson.dumps({"snapshot_id": snapshot_id}))

    def _notice(self, tier: Tier) -> Notice:
        reached = self._take(tier)
        if self._options.by_watermark:
            kept = reached
            while reached:
                kept = _highest_of_each_snapshot([*kept, *reached])
                reached = self._take(tier)
            return Notice(tier, kept)
        return Notice(tier, reached)

    def _take(self, tier: Tier) -> list[Reached]:
        """What can be announced now, at most as much as one message may have."""
        if tier is Tier.MEMORY:
            now = now_us()
            ranges = self._ledger.take(tier, _EVERYTHING, MOST_ROWS)
            return [Reached(first, last, now, None) for first, last in ranges]
        watermark = self._progress.of(tier, self.collection)
        ranges = self._ledger.take(tier, watermark.lsn, MOST_ROWS)
        return [run for first, last in ranges for run in watermark.when(first, last)]


def _highest_of_each_snapshot(reached: list[Reached]) -> list[Reached]:
    """Rows that stand for all below them. What a producer sent again comes late, and is low."""
    highest: dict[int | None, Reached] = {}
    for run in sorted(reached, key=lambda run: run.last):
        highest[run.snapshot_id] = Reached(run.last, run.last, run.at_us, run.snapshot_id)
    return list(highest.values())
