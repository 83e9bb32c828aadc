"""The log of a server, which is written natively, as the rest of the server sees it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace import faults
from headrace._native import Log as NativeLog
from headrace._native import LogHealth, SealedSegment
from headrace.errors import HeadraceError, Terminal
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.producers import Run
from headrace.ingest.resends import Known, Resends
from headrace.ingest.statistics import Statistics, Stream
from headrace.model.lsn import RESERVED_AT_ONCE
from headrace.model.tiers import Tier
from headrace.wal.records import SegmentHeader
from headrace.wal.recovery import Recovered
from headrace.wal.segments import Segment, segment_name
from headrace.wal.state import CollectionState, Range

LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats there is one group to write and sync, or a segment to begin, with the log's state."""
# A state that is large (many producers) is written down only when the log has grown by this many times its
# size since the last one; a small one at the start of every segment.
_STATE_SHARE = 4
_DECLARE_SECONDS = 30.0


class Hooks(Protocol):
    """Callbacks on the log's own thread when it uses its files; they may make it fail or wait."""

    def reached(self, point: str) -> None:
        """Is called at each fault point; an OSError happens there."""

    def created(self, path: str) -> None: ...

    def synced(self, path: str, failed: bool) -> None: ...


class FaultPoints:
    """Does what `headrace.faults` says at the points of the log."""

    def reached(self, point: str) -> None:
        faults.reached(point)

    def created(self, path: str) -> None:
        pass

    def synced(self, path: str, failed: bool) -> None:
        pass


@dataclass
class Seeded:
    """The defects and hooks that a certification puts into the logs that this process opens."""

    defects: list[str] = field(default_factory=list)
    hooks: Hooks | None = None
    clock: Path | None = None
    """Says by how many seconds clocks are ahead: that on the wall, and that of the process."""


seeded = Seeded()


class Log:
    """Is written as soon as it is made. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        term: int,
        recovered: Recovered,
        runs: Mapping[tuple[str, str], Iterable[Run]],
        settings: EngineSettings,
        hooks: Hooks | None = None,
    ) -> None:
        segments, limits = recovered.segments, settings.log
        first_number = segments[0].header.number if segments else recovered.next_number
        watched = FaultPoints() if faults.VARIABLE in os.environ else None
        self._folder = folder
        try:
            self.native = NativeLog(
                {
                    "folder": folder,
                    "term": term,
                    "number": recovered.next_number,
                    "previous_length": segments[-1].length if segments else 0,
                    "uploaded_segment": first_number - 1,
                    "uploaded_lsn": segments[0].header.first_lsn - 1 if segments else 0,
                    "state": recovered.state.encode(),
                    "runs": [
                        (*name, [(run.seq, run.lsn, run.count) for run in of]) for name, of in runs.items()
                    ],
                    "segment_bytes": limits.segment_bytes,
                    "segment_seconds": limits.segment_seconds,
                    "group_bytes": limits.group_bytes,
                    "gather_seconds": limits.gather_seconds,
                    "waiting_bytes": limits.waiting_bytes,
                    "unsynced_bytes": settings.session.unsynced_bytes,
                    "ranges": settings.session.ranges,
                    "state_share": _STATE_SHARE,
                    "reserved_at_once": RESERVED_AT_ONCE,
                    "hooks": hooks or seeded.hooks or watched,
                    "defects": seeded.defects,
                    "clock_file": seeded.clock,
                }
            )
        except OSError as error:
            raise Terminal(str(error)) from error

    def close(self, timeout: float) -> bool:
        """Writes what waits, and says whether all of it is synced."""
        return self.native.close(timeout)

    def declare(self, collection: CollectionState, timeout: float = _DECLARE_SECONDS) -> None:
        """Returns when the collection is in the log, synced."""
        error = self.native.declare(collection.name, collection.encode(), timeout)
        if error is not None:
            raise HeadraceError.from_json(error)

    def seal(self) -> None:
        """Ends the current segment as soon as what waits is written, if there are writes in it."""
        self.native.seal()

    def sealed(self, sealed: SealedSegment) -> Segment:
        header = SegmentHeader(
            sealed.term,
            sealed.number,
            sealed.first_lsn,
            sealed.reserved_until,
            sealed.previous_length,
            sealed.nonce,
        )
        return Segment(
            self._folder / segment_name(sealed.number),
            header,
            sealed.length,
            sealed.last_lsn,
            sealed.last_lsns,
            sealed.first_accepted_us,
            sealed.has_state,
        )

    def parts(self) -> dict[Path, int]:
        """Returns what is synced of the open segment, and of those that were sealed and not taken over."""
        return {self._folder / segment_name(number): length for number, length in self.native.log_parts()}

    def refusal(self) -> HeadraceError | None:
        """Returns why nothing is accepted now."""
        error = self.native.refusal()
        return None if error is None else HeadraceError.from_json(error)

    @property
    def last_lsn(self) -> int:
        """The last LSN that a write has; later ones may have been given away by an earlier process."""
        return self.native.last_lsn

    @property
    def health(self) -> LogHealth:
        return self.native.health()

    def pulse(self) -> tuple[bool, float]:
        """Returns whether the log's thread runs, and how long ago it showed a sign of life."""
        health = self.health
        return health.is_alive, health.beat_age

    @property
    def waiting_bytes(self) -> int:
        return self.health.waiting_bytes

    @property
    def unsynced_since_us(self) -> int | None:
        """When the oldest message was accepted that is not yet synced."""
        return self.health.unsynced_since_us

    @property
    def unsealed_since_us(self) -> int | None:
        """When the oldest message was accepted that is in no sealed segment."""
        return self.health.unsealed_since_us

    def streams(self) -> list[Stream]:
        """Returns the streams that are open."""
        return [
            Stream(
                one.id,
                one.peer,
                one.collection,
                one.producer,
                Statistics.of(one.statistics),
                one.throttled,
                dict(zip(Tier, one.pending, strict=True)),
            )
            for one in self.native.streams()
        ]

    def statistics(self) -> Statistics:
        """Returns the counts of all streams, those included that have ended."""
        return Statistics.of(self.native.statistics(), self.native.write_seconds(), self.native.ack_seconds())

    def known(self, collection: str, ranges: Sequence[Range]) -> list[Known]:
        """Returns what is remembered of the writes of a collection with these LSNs, by producer."""
        return [
            Known(producer, last_seq, crowded_out, tuple(Run(*run) for run in runs))
            for producer, last_seq, crowded_out, runs in self.native.known_numbers(collection, list(ranges))
        ]

    def set_given_up(self, collection: str, lost: list[Range], resends: Resends) -> None:
        """Says which writes of a collection are gone, and what those hear who send them again."""
        self.native.set_given_up(collection, lost, resends.to_native(), resends.all_unsure)

    def break_off(self, collection: str) -> None:
        """Ends the streams of a collection, which may wait for writes that are gone."""
        self.native.break_off(
            collection,
            f"writes to collection {collection!r} were given up by who runs the server: connect again, "
            "and hear which of this stream's are lost",
        )
