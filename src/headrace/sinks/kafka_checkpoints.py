"""The compacted topic in which each transaction of ours says what it is.

    headrace/sales/lake.orders/0  {"epoch": 12, "fence": 2, "runtime_checkpoint": {...}, ...}
    headrace/sales/lake.orders/   {"fence": 2}

The first is written in the transaction itself, before its rows: it is committed with them, and who reads what
is not committed yet learns from it whose an open transaction is. The second is written at each start. Beside
them are records of whose a topic is (`kafka_ownership`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import EndpointError, EndpointUnavailable
from headrace.kafka.admin import end_offsets, make_topic, send_record
from headrace.kafka.config import ClientOptions
from headrace.kafka.reading import read_topic
from headrace.kafka.transactions import Identity
from headrace.model.checkpoints import JsonObject
from headrace.sinks.columns import Columns
from headrace.spark.checkpoint import OffsetEntry

_TOPIC_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_OTHERS_SECONDS = 60.0
"""How long an open transaction of somebody else is waited for."""
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Record:
    """What a transaction says of itself."""

    shards: int
    """How many the epoch has: each has a transaction of its own."""
    epoch: int
    fence: int
    attempt: str
    """Tells what was prepared from what was prepared for the same epoch before."""
    columns: Columns
    """Those that values have, in this epoch or in one before it."""
    runtime_checkpoint: JsonObject
    producer_id: int = -1
    producer_epoch: int = -1

    def by(self, identity: Identity) -> Record:
        return replace(self, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)

    def is_of(self, identity: Identity) -> bool:
        return (self.producer_id, self.producer_epoch) == (identity.producer_id, identity.producer_epoch)

    def to_json(self) -> JsonObject:
        return dict(vars(self))

    @staticmethod
    def of(raw: JsonObject) -> Record:
        return Record(**{name: raw[name] for name in Record.__dataclass_fields__})


def source_offsets(record: Record) -> dict[str, dict[int, int]]:
    """Where the epoch ends in the topics that it was read from, by topic and partition.

    The runtime checkpoint has Spark's entry of the epoch. Its line of a topic is an object of topics, each of
    which is one of partitions.
    """
    entry = str(record.runtime_checkpoint.get("offsets", {}).get(str(record.epoch), ""))
    found: dict[str, dict[int, int]] = {}
    for line in OffsetEntry(entry).sources:
        raw = json.loads(line) if line.startswith("{") else {}
        for topic, partitions in raw.items():
            if isinstance(partitions, dict) and all(number.isdigit() for number in partitions):
                found[topic] = {int(number): int(offset) for number, offset in partitions.items()}
    return found


@dataclass(frozen=True)
class _Entry:
    partition: int
    offset: int
    key: str
    record: Record

    @property
    def identity(self) -> Identity:
        return Identity(self.key, self.record.producer_id, self.record.producer_epoch)


@dataclass(frozen=True)
class Known:
    """What the topic says of one sink."""

    entries: Sequence[_Entry]
    fence: int
    """Of who started last; -1 if nobody did."""

    @property
    def records(self) -> dict[str, Record]:
        """The last one of each transactional id."""
        return {entry.key: entry.record for entry in self.entries}


class Checkpoints:
    """Of the sink whose transactional ids begin with `prefix`."""

    def __init__(self, client: ClientOptions, topic: str, prefix: str) -> None:
        self._client, self._topic, self._prefix = client, topic, prefix

    def make(self) -> None:
        make_topic(self._client, self._topic, _TOPIC_CONFIG, partitions=1)

    def read_all(self) -> Known:
        """Also what is not committed, and never will be."""
        return self._read(committed=False)[0]

    def read_committed(
        self,
        still_open: Collection[Identity],
        ids: Collection[str] | None = None,
        ended: Mapping[Identity, bool] | None = None,
    ) -> dict[str, Record]:
        """The last record that is committed of each id, or of these; none that comes while this reads.

        Readers see nothing that comes after the beginning of an open transaction, whosever it is. So this
        waits for those of others that hide something of ours. `still_open` are our own, and `ended` says of
        those that brokers told of whether they were committed: nobody has to read to know that. Before a
        start that is what matters, since then a transaction that hides others may be one that we shall end.
        """
        ended = ended or {}
        entries = [entry for entry in self.read_all().entries if ids is None or entry.key in ids]
        told = {entry.key: entry for entry in entries if ended.get(entry.identity)}
        wanted = [
            entry
            for entry in entries
            if entry.identity not in {*still_open, *ended}
            and (entry.key not in told or entry.offset > told[entry.key].offset)
        ]
        until = time.monotonic() + _OTHERS_SECONDS
        while True:
            known, reached = self._read(committed=True)
            if all(entry.offset < reached.get(entry.partition, 0) for entry in wanted):
                found = sorted([*known.entries, *told.values()], key=lambda entry: entry.offset)
                return {entry.key: entry.record for entry in found if ids is None or entry.key in ids}
            if time.monotonic() > until:
                raise EndpointUnavailable(
                    f"topic {self._topic!r} of {self._client.bootstrap} has a transaction that has been "
                    f"open for {_OTHERS_SECONDS:.0f} s, and hides what comes after it: `headrace txn list` "
                    "shows whose"
                )
            time.sleep(_PAUSE_SECONDS)

    def _read(self, *, committed: bool) -> tuple[Known, dict[int, int]]:
        """And how far it came in each partition."""
        entries: list[_Entry] = []
        fence = -1
        reached = dict.fromkeys(end_offsets(self._client, self._topic), 0)
        for message in read_topic(self._client, self._topic, committed=committed, reached=reached):
            key = (message.key() or b"").decode(errors="replace")
            if not key.startswith(self._prefix):
                continue
            raw = self._parsed(message.value())
            if "epoch" in raw:
                entries.append(_Entry(message.partition() or 0, message.offset() or 0, key, Record.of(raw)))
            elif key == self._prefix:
                fence = int(raw["fence"])
        return Known(entries, fence), reached

    def write_fence(self, fence: int) -> None:
        what = f"topic {self._topic!r} of {self._client.bootstrap} does not take the fence"
        send_record(self._client, self._topic, self._prefix, {"fence": fence}, what)

    def _parsed(self, value: bytes | None) -> Any:
        try:
            return json.loads(value or b"")
        except ValueError:
            raise EndpointError(
                f"topic {self._topic!r} has a record of {self._prefix!r} that is none of ours: name another "
                "topic in the option checkpoints"
            ) from None
