"""Reads of a collection: the rows of its table, then those that are still on their way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import ConfigError
from headrace.ingest.engine import Engine
from headrace.ingest.iceberg.scanner import Scan, Scanner
from headrace.ingest.schemas import Adapter, with_place
from headrace.model.tiers import Tier
from headrace.wal.batches import batches_of
from headrace.wal.segments import HeldSegment

_SYNC_SECONDS = 10.0
_LAST_LSN = 2**63 - 1


@dataclass(frozen=True)
class Ticket:
    collection: str
    from_lsn: int = 1
    to_lsn: int = _LAST_LSN
    committed_only: bool = False

    @staticmethod
    def parse(data: bytes) -> Ticket:
        try:
            raw: Any = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ConfigError('a ticket is a JSON object such as {"collection": "orders"}') from None
        if not isinstance(raw, dict) or not isinstance(raw.get("collection"), str):
            raise ConfigError('a ticket is a JSON object such as {"collection": "orders"}')
        for key, value in raw.items():
            known = {"collection": str, "from_lsn": int, "to_lsn": int, "committed_only": bool}
            if key not in known:
                raise ConfigError(f"a ticket has no key {key!r}; the keys are {', '.join(known)}")
            if type(value) is not known[key]:
                raise ConfigError(
                    f"a ticket's {key} is {value!r}, which is not of type {known[key].__name__}"
                )
        return Ticket(**raw)

    def encode(self) -> bytes:
        return orjson.dumps({"collection": self.collection})


class Reads:
    def __init__(self, engine: Engine, scanner: Scanner) -> None:
        self._engine, self._scanner = engine, scanner

    def open(self, ticket: Ticket) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The schema and the rows; everything that was acknowledged before the call is among them."""
        schema = with_place(self._engine.collections.schema(ticket.collection))
        segments: list[HeldSegment] = []
        side: list[HeldSegment] = []
        in_side_log = 0
        # Up to where nothing of the log is to be read: what is missing in the table there was given up.
        after = self._engine.quarantine.dropped_lsn(ticket.collection)
        if not ticket.committed_only:
            self._engine.flush(Tier.LOCAL_DISK, _SYNC_SECONDS)
            # Before the scan: what is committed and removed in between is in the scan.
            segments = list(_held(self._engine.log_parts()))
            # After the log: what is copied and removed in between is in the side log.
            parts = self._engine.quarantine.segments(ticket.collection)
            side = list(_held([(part.path, part.length) for part in parts]))
            in_side_log = max((part.last_lsn for part in parts), default=0)
        # Not begun yet: a client that has gone never asks for the first row, and nobody would end it.
        scan = partial(self._scanner.scan, ticket.collection, ticket.from_lsn, ticket.to_lsn)
        return schema, _rows(ticket, schema, scan, after, side, in_side_log, segments)

    def close(self) -> None:
        self._scanner.close()


def _held(parts: list[tuple[Path, int]]) -> Iterator[HeldSegment]:
    """The segments, which stay when their files are removed; those already removed are committed."""
    for path, length in sorted(parts):
        with suppress(FileNotFoundError):
            yield HeldSegment(path, length)


def _rows(
    ticket: Ticket,
    schema: pa.Schema,
    begin: Callable[[], Scan],
    after: int,
    side: list[HeldSegment],
    in_side_log: int,
    segments: list[HeldSegment],
) -> Iterator[pa.RecordBatch]:
    name = ticket.collection
    with begin() as scan:
        committed = scan.committed.lsn
        to_schema = Adapter(name, scan.schema, schema)
        for batch in scan:
            yield to_schema(batch)
    after = max(after, committed, ticket.from_lsn - 1)
    for parts, before in ((side, after), (segments, max(after, in_side_log))):
        for segment in parts:
            for batch in batches_of(segment.load(), name, before, ticket.to_lsn):
                yield Adapter(name, batch.schema, schema)(batch)
