"""What tests of the ingest server's formats say to it: plain Arrow Flight, whatever the server is made of."""

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
"""Without nulls, and of values that JSON has."""
Write = dict[str, Any]
"""Its collection, producer, seq, lsn and rows."""


def act(url: str, action: str, /, **body: Any) -> dict[str, Any]:
    with flight.connect(url) as client:
        [answer] = client.do_action(flight.Action(action, json.dumps(body).encode()))
        said: dict[str, Any] = json.loads(answer.body.to_pybytes())
        return said


def flush(url: str, level: str) -> None:
    act(url, "flush", level=level, timeout=DEADLINE_SECONDS)


def tiers(url: str, writes: Iterable[Write]) -> dict[int, str]:
    """Of each write, by its LSN."""
    found: dict[int, str] = {}
    by_collection: dict[str, list[int]] = {}
    for write in writes:
        by_collection.setdefault(write["collection"], []).append(write["lsn"])
    for collection, lsns in by_collection.items():
        told = act(url, "watermarks", collection=collection, lsns=lsns)["lsns"]
        found |= {int(lsn): tier for lsn, tier in told.items()}
    return found


def send(
    url: str, collection: str, messages: Sequence[tuple[pa.RecordBatch, list[int]]], producer: str, seq: int
) -> list[Write]:
    """Each message with the number of rows of each write in it; returns once all have an LSN."""
    writes: list[Write] = []
    with Stream(url, collection) as stream:
        for number, (batch, sizes) in enumerate(messages):
            metadata: dict[str, Any] = {"producer": producer} if producer and not number else {}
            metadata |= {"seq": seq + len(writes)} if producer else {}
            stream.send(batch, **metadata, **({"rows": sizes} if len(sizes) > 1 else {}))
            rows = plain(batch)
            for size in sizes:
                at = {"seq": seq + len(writes)} if producer else {}
                writes.append({"collection": collection, "producer": producer, **at, "rows": rows[:size]})
                del rows[:size]
        lsns = stream.await_count("MEMORY", len(writes))
    return [{**write, "lsn": lsn} for write, lsn in zip(writes, lsns, strict=True)]


def last_seq(url: str, collection: str, producer: str) -> int:
    """What the server tells a producer that comes back."""
    with Stream(url, collection).options(producer=producer) as stream:
        return int(stream.said("session")["last_seq"])


def read(url: str, collection: str) -> list[tuple[int, int, Row]]:
    """All that a reader sees, by LSN and place in its write."""
    with flight.connect(url) as client:
        table = client.do_get(flight.Ticket(json.dumps({"collection": collection}).encode())).read_all()
    return in_order((row.pop("_lsn"), row.pop("_row"), row) for row in plain(table))


def expected(writes: Iterable[Write], collection: str) -> list[tuple[int, int, Row]]:
    """The same, as it was written."""
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
