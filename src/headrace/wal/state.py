"""What the log says besides its writes, folded from its records.

The same fold runs in the writer, as records are written, and in recovery, as they are read; so what a
segment's first record says is what reading all segments before it would have said.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from headrace.wal.position import LogPosition
from headrace.wal.records import Writes

Range = tuple[int, int]
"""First and last, both included."""

# A producer that has been silent for this long, while servers of the log ran, is forgotten when the log's
# state is next written down. Without an end to it, clients that make up a new id at each start would fill it.
PRODUCER_SILENCE_US = 7 * 24 * 3600 * 1_000_000

_EMPTY_BYTES, _ENTRY_BYTES = 150, 48  # of a state


@dataclass(frozen=True, slots=True)
class CollectionState:
    """A collection as its last change left it."""

    name: str
    schema: bytes
    """As an Arrow IPC message."""
    key: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        schema = b64encode(self.schema).decode()
        return {"name": self.name, "schema": schema, "key": list(self.key), "json_schema": self.json_schema}

    def encode(self) -> bytes:
        """As it stands in the log."""
        return orjson.dumps(self.to_json())

    @staticmethod
    def from_json(raw: dict[str, Any]) -> CollectionState:
        return CollectionState(raw["name"], b64decode(raw["schema"]), tuple(raw["key"]), raw["json_schema"])


@dataclass(slots=True)
class ProducerState:
    """The last write of a producer in one collection."""

    last_seq: int
    last_lsn: int
    seen_us: int
    """When it was last heard of, in the log's own time: `LogState.uptime_us`."""


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a collection's table is: every write at or below the LSN is in it."""

    lsn: int
    snapshot_id: int | None = None
    position: LogPosition = field(default=LogPosition(), compare=False)
    """As the table records it, which is lower if the last writes had no rows. It is not part of the log's
    state: the table is asked for it."""


@dataclass
class LogState:
    last_lsn: int = 0
    reserved_until: int = 0
    uptime_us: int = 0
    """For how long servers of this log have run. Nobody sets it, as the clock on the wall is set: what is
    forgotten by it cannot be brought back. What came after the last state that was written is not in it."""
    collections: dict[str, CollectionState] = field(default_factory=dict)
    producers: dict[tuple[str, str], ProducerState] = field(default_factory=dict)
    lost: list[Range] = field(default_factory=list)
    """LSNs that were or may have been given away, and whose writes died with a process or a disk."""
    committed: dict[str, Committed] = field(default_factory=dict)
    """As last heard; a table may be ahead of it."""
    forgotten_lsn: int = 0
    """No producer was ever forgotten whose last write has a higher LSN than this."""
    collection_bytes: dict[str, int] = field(default_factory=dict)
    """Size of each collection in the log."""

    def wrote(self, collection: str, writes: Writes) -> None:
        self.last_lsn = writes.last_lsn
        if writes.producer:
            last_seq = writes.first_seq + writes.count - 1
            latest = ProducerState(last_seq, writes.last_lsn, self.uptime_us)
            self.producers[collection, writes.producer] = latest

    def declared(self, collection: CollectionState) -> None:
        self.collections[collection.name] = collection
        self.collection_bytes[collection.name] = len(collection.encode())

    def without_silent(self) -> LogState:
        """Leaves out producers that were silent for too long, and whose writes are all committed."""
        before = self.uptime_us - PRODUCER_SILENCE_US
        silent = {
            name: producer.last_lsn
            for name, producer in self.producers.items()
            if producer.seen_us < before and producer.last_lsn <= self._committed_lsn(name[0])
        }
        if not silent:
            return self
        kept = {name: producer for name, producer in self.producers.items() if name not in silent}
        return replace(self, producers=kept, forgotten_lsn=max(self.forgotten_lsn, *silent.values()))

    def forget_as(self, written: LogState) -> None:
        """Forgets whom a state leaves out, once that is on the disk: a crash must not bring them back after
        they were told that nobody knows them."""
        self.producers, self.forgotten_lsn = written.producers, written.forgotten_lsn

    def _committed_lsn(self, collection: str) -> int:
        return self.committed[collection].lsn if collection in self.committed else 0

    def encode(self) -> bytes:
        """As it stands in the log. Each collection is encoded for itself, as it was when it was declared: in
        the state it would be nested deeper, and what is taken once must be taken always."""
        return orjson.dumps(
            {
                "last_lsn": self.last_lsn,
                "reserved_until": self.reserved_until,
                "uptime_us": self.uptime_us,
                "collections": [orjson.Fragment(one.encode()) for one in self.collections.values()],
                "producers": [
                    [*name, producer.last_seq, producer.last_lsn, producer.seen_us]
                    for name, producer in self.producers.items()
                ],
                "forgotten_lsn": self.forgotten_lsn,
                "lost": self.lost,
                "committed": [[name, at.lsn, at.snapshot_id] for name, at in self.committed.items()],
            }
        )

    @staticmethod
    def from_json(raw: dict[str, Any]) -> LogState:
        """Before there was an uptime, producers had times of the clock on the wall; they count as of now.

        Before there was a `forgotten_lsn`, anybody may have been forgotten.
        """
        collections = [CollectionState.from_json(collection) for collection in raw["collections"]]
        has_uptime = "uptime_us" in raw
        return LogState(
            last_lsn=raw["last_lsn"],
            reserved_until=raw["reserved_until"],
            uptime_us=raw["uptime_us"] if has_uptime else 0,
            collections={collection.name: collection for collection in collections},
            producers={
                (collection, producer): ProducerState(last_seq, last_lsn, seen_us if has_uptime else 0)
                for collection, producer, last_seq, last_lsn, seen_us in raw["producers"]
            },
            forgotten_lsn=raw.get("forgotten_lsn", raw["last_lsn"]),
            lost=[(first, last) for first, last in raw["lost"]],
            committed={name: Committed(lsn, snapshot) for name, lsn, snapshot in raw["committed"]},
            collection_bytes={collection.name: len(collection.encode()) for collection in collections},
        )

    @property
    def about_bytes(self) -> int:
        """Estimates the length of `encode`, which takes long where there is much."""
        others = len(self.producers) + len(self.lost) + len(self.committed)
        return _EMPTY_BYTES + sum(self.collection_bytes.values()) + _ENTRY_BYTES * others

    def lose(self, first: int, last: int) -> None:
        """Records that the writes of a range are gone."""
        self.lost = sorted({*self.lost, (first, last)})

    def is_lost(self, lsn: int) -> bool:
        return any(first <= lsn <= last for first, last in self.lost)
