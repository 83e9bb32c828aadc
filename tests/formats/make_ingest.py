"""Makes the fixtures of the ingest server: `headrace serve` writes them and is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import yaml

from headrace.faults import Action, Faults
from headrace.testing.ingest_process import IngestProcess
from headrace.wal.segments import number_of, segment_files
from tests.formats import far_clock
from tests.formats.archives import held, pack, place_of
from tests.formats.flights import Write, act, flush, send, tiers
from tests.formats.making import environment, refuse_private, revision
from tests.waiting import wait_until

# Only `flush` seals, uploads and commits.
_BY_HAND = {"commit_interval": "1h", "segment_seconds": "1h"}
_CUSTOMERS = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
_PRODUCERS = 2000
_COLLECTIONS = 40
_TORN_BYTES = 20


def make_ingest(version: str, target: Path, scratch: Path) -> None:
    """Makes all of them in the folder of a version."""
    makers: dict[str, Callable[[Path, Faults], dict[str, Any]]] = {
        "ingest-whole": _whole,
        "ingest-torn": _torn,
        "ingest-large-state": _large_state,
        "ingest-lost-disk": _lost_disk,
    }
    for name, make in makers.items():
        faults = Faults(scratch / name)
        far_clock.set_ahead(faults)
        with held(place_of(version, name)) as place:
            description = make(place, faults)
            (place / "fixture.json").write_text(json.dumps({"revision": revision(), **description}, indent=1))
            refuse_private(place)
            pack(place, target / f"{name}.tar.xz")


def _whole(place: Path, faults: Faults) -> dict[str, Any]:
    """Leaves some writes in tables, some in object storage, and some only on the disk."""
    with _serving(place, faults) as server:
        writes = _three_tiers(server)
        return _describe(server.url, writes)


def _lost_disk(place: Path, faults: Faults) -> dict[str, Any]:
    """Keeps tables and objects outside of the data folder, and removes the data folder."""
    lake = place / "lake"
    properties = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": lake.as_uri()}
    more = {
        "store": {"url": (place / "bucket").as_uri()},
        "catalog": {"properties": properties},
    }
    lake.mkdir()
    with _serving(place, faults, more) as server:
        writes = _three_tiers(server)
        description = _describe(server.url, writes)
    shutil.rmtree(place / "data")
    return description


def _torn(place: Path, faults: Faults) -> dict[str, Any]:
    """Tears the last group, as if the machine had stopped while writing it, before it was acknowledged."""
    with _serving(place, faults) as server:
        url = server.url
        writes = send(url, "orders", _orders(range(6)), "till", 1)
        flush(url, "OBJECT_STORAGE")
        writes += send(url, "orders", _orders(range(6, 12)), "till", 7)
        flush(url, "LOCAL_DISK")
        description = _describe(url, writes)
        faults.arm("wal syncing", Action.PARK)
        torn = send(url, "orders", _orders(range(12, 15)), "till", 13)
        wait_until(lambda: "wal syncing" in faults.parked, "a group that is written and not synced")
    last = segment_files(place / "data/wal")[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - _TORN_BYTES)
    return {**description, "torn": torn}


def _large_state(place: Path, faults: Faults) -> dict[str, Any]:
    """Removes the segments of all producers and collections, so that only the state record knows them."""
    with _serving(place, faults) as server:
        url = server.url
        writes: list[Write] = []
        for number in range(_COLLECTIONS):
            columns = {"id": pa.array([number]), f"column_{number}": pa.array([f"value {number}"])}
            writes += send(url, f"collection_{number}", [(pa.record_batch(columns), [1])], "", 0)
        for number in range(_PRODUCERS):
            seq = number + 1
            writes += send(url, "orders", _orders([number]), f"producer {number}", seq, first_seq=seq)
        flush(url, "COMMITTED")
        last = number_of(segment_files(place / "data/wal")[-1])
        # A large state is written only when the log has grown by a multiple of its size.
        filler = pa.record_batch({"text": ["x" * 1000] * 2000})
        send(url, "filler", [(filler, [filler.num_rows])], "", 0)
        flush(url, "COMMITTED")

        def is_removed() -> bool:
            writes.extend(send(url, "customers", _customers(url, 1), "", 0))
            flush(url, "COMMITTED")
            return number_of(segment_files(place / "data/wal")[0]) > last

        wait_until(is_removed, "the removal of all segments with producers")
        return _describe(url, writes)


def _three_tiers(server: IngestProcess) -> list[Write]:
    """Kills the server once in between, so that LSNs are lost that were reserved but never assigned."""
    url = server.url
    writes = send(url, "orders", _orders(range(8)), "till", 1)
    writes += send(url, "customers", _customers(url, 3), "", 0)
    writes += send(url, "events", [(_events(0, 4), [1, 2, 1]), (_events(4, 2), [2])], "sensor", 1)
    flush(url, "COMMITTED")
    server.kill()
    server.start()
    writes += send(url, "orders", _orders(range(8, 12)), "till", 9)
    flush(url, "OBJECT_STORAGE")
    writes += send(url, "orders", _orders(range(12, 15), note="made wider"), "shop", 1)
    writes += send(url, "events", [(_events(6, 6), [3, 3])], "sensor", 5)
    flush(url, "OBJECT_STORAGE")
    writes += send(url, "orders", _orders(range(15, 18)), "till", 13)
    writes += send(url, "customers", _customers(url, 2), "", 0)
    flush(url, "LOCAL_DISK")
    return writes


@contextmanager
def _serving(place: Path, faults: Faults, more: dict[str, Any] | None = None) -> Iterator[IngestProcess]:
    """Kills the server at the end, as kill -9 does."""
    config = place / "headrace.yaml"
    config.write_text(yaml.safe_dump({"data": "data", "ingest": _BY_HAND, **(more or {})}))
    options = ("--config", str(config))
    children: list[psutil.Process] = []
    with IngestProcess(
        place / "data", *options, environment={**environment(), **faults.environment}
    ) as server:
        yield server
        children = psutil.Process(server.pid).children(recursive=True)
    psutil.wait_procs(children)  # the committer ends when it notices that its server has died


def _describe(url: str, writes: list[Write]) -> dict[str, Any]:
    """Describes the fixture for its tests: all writes, and the tier that each had reached."""
    found = tiers(url, writes)
    lost = act(url, "watermarks")["lost"]
    return {"writes": [{**write, "tier": found[write["lsn"]]} for write in writes], "lost": lost}


def _orders(ids: range | list[int], **more: str) -> list[tuple[pa.RecordBatch, list[int]]]:
    """Returns messages with one write each."""
    found = []
    for number in ids:
        columns = {"id": number, "customer": f"customer {number % 5}", "amount": number / 4, **more}
        found.append((pa.RecordBatch.from_pylist([columns]), [1]))
    return found


def _customers(url: str, count: int) -> list[tuple[pa.RecordBatch, list[int]]]:
    act(url, "create_collection", name="customers", key=["/id"], schema=_CUSTOMERS)
    columns = {"id": pa.array(range(count)), "name": pa.array([f"name {n}" for n in range(count)])}
    return [(pa.record_batch(columns), [count])]


def _events(first: int, count: int) -> pa.RecordBatch:
    """Returns a batch with a column of each type."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "at": pa.array(
                [datetime(2026, 11, 1, 12, 0, n, tzinfo=UTC) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "day": pa.array([date(2026, 11, 1 + n) for n in numbers], pa.date32()),
            "price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "raw": pa.array([bytes([n, 255]) for n in numbers], pa.binary()),
            "is_even": pa.array([n % 2 == 0 for n in numbers]),
            "parts": pa.array([list(range(n)) for n in numbers], pa.list_(pa.int64())),
            "place": pa.array([{"x": n, "name": f"at {n}"} for n in numbers]),
        }
    )
