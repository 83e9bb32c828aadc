"""The state of the log besides its writes, folded from its records.

Recovery folds the records that it reads, and the native writer does the same with those that it writes. So a
segment's first record contains what reading all previous segments would yield.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

import orjson

from headrace.wal.position import LogPosition
from headrace.wal.records import Writes

Range = tuple[int, int]
"""First and last, both included."""


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

    def wrote(self, collection: str, writes: Writes) -> None:
        self.last_lsn = writes.last_lsn
        if writes.producer:
            last_seq = writes.first_seq + writes.count - 1
            latest = ProducerState(last_seq, writes.last_lsn, self.uptime_us)
            self.producers[collection, writes.producer] = latest

    def declared(self, collection: CollectionState) -> None:
        self.collections[collection.name] = collection

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
        )

    def lose(self, first: int, last: int) -> None:
        """Records that the writes of a range are gone."""
        self.lost = sorted({*self.lost, (first, last)})

    def is_lost(self, lsn: int) -> bool:
        return any(first <= lsn <= last for first, last in self.lost)
