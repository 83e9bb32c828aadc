"""Talks to the ingest server in tests of its formats: plain Arrow Flight, independent of our client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tests.ingest.flight_client import Stream
from tests.waiting import DEADLINE_SECONDS

Row = dict[str, Any]
"""A row without nulls, whose values can be represented in JSON."""
Write = dict[str, Any]
"""A write: its collection, producer, seq, lsn and rows."""


def act(url: str, action: str, /, **body: Any) -> dict[str, Any]:
    with flight.connect(url) as client:
        [answer] = client.do_action(flight.Action(action, json.dumps(body).encode()))
        result: dict[str, Any] = json.loads(answer.body.to_pybytes())
        return result


def flush(url: str, level: str) -> None:
    act(url, "flush", level=level, timeout=DEADLINE_SECONDS)


def tiers(url: str, writes: Iterable[Write]) -> dict[int, str]:
    """Returns the tier of each write, by LSN."""
    found: dict[int, str] = {}
    by_collection: dict[str, list[int]] = {}
    for write in writes:
        by_collection.setdefault(write["collection"], []).append(write["lsn"])
    for collection, lsns in by_collection.items():
        reported = act(url, "watermarks", collection=collection, lsns=lsns)["lsns"]
        found |= {int(lsn): tier for lsn, tier in reported.items()}
    return found


def send(
    url: str,
    collection: str,
    messages: Sequence[tuple[pa.RecordBatch, list[int]]],
    producer: str,
    seq: int,
    **options: Any,
) -> list[Write]:
    """Sends messages, each with the row counts of its writes; returns once all writes are acknowledged.

    A write that was sent before, and whose LSN the server has forgotten since it was committed, has LSN 0.
    """
    writes: list[Write] = []
    with Stream(url, collection) as stream:
        for number, (batch, sizes) in enumerate(messages):
            metadata: dict[str, Any] = {"producer": producer, **options} if producer and not number else {}
            metadata |= {"seq": seq + len(writes)} if producer else {}
            stream.send(batch, **metadata, **({"rows": sizes} if len(sizes) > 1 else {}))
            rows = plain(batch)
            for size in sizes:
                at = {"seq": seq + len(writes)} if producer else {}
                writes.append({"collection": collection, "producer": producer, **at, "rows": rows[:size]})
                del rows[:size]
        if producer:
            assigned = stream.await_assigned(range(seq, seq + len(writes)))
            lsns = [assigned[write["seq"]] for write in writes]
        else:
            lsns = stream.await_count("MEMORY", len(writes))
    return [{**write, "lsn": lsn} for write, lsn in zip(writes, lsns, strict=True)]


def last_seq(url: str, collection: str, producer: str) -> int:
    """Returns the last seq that the server reports to a producer that reconnects."""
    with Stream(url, collection).options(producer=producer) as stream:
        return int(stream.said("session")["last_seq"])


def read(url: str, collection: str) -> list[tuple[int, int, Row]]:
    """Returns everything that a reader sees, ordered by LSN and position in the write."""
    with flight.connect(url) as client:
        table = client.do_get(flight.Ticket(json.dumps({"collection": collection}).encode())).read_all()
    return in_order((row.pop("_lsn"), row.pop("_row"), row) for row in plain(table))


def expected(writes: Iterable[Write], collection: str) -> list[tuple[int, int, Row]]:
    """Returns what `read` should return for these writes."""
    return in_order(
        (write["lsn"], place, row)
        for write in writes
        if write["collection"] == collection
        for place, row in enumerate(write["rows"])
    )


def in_order(rows: Iterable[tuple[int, int, Row]]) -> list[tuple[int, int, Row]]:
    return sorted(rows, key=lambda row: row[:2])


def plain(rows: pa.RecordBatch | pa.Table) -> list[Row]:
    return [
        {name: _plain(value) for name, value in row.items() if value is not None} for row in rows.to_pylist()
    ]


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return value
