"""A full disk: nothing is accepted that cannot be kept, nothing is lost, and it heals without a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import flight

import headrace
from headrace.client import Reconnect, Tier
from tests.ingest_process.disks import FOR_THE_LOG, FOR_THE_STORE, IS_ROOT, Disk, SmallDisk
from tests.ingest_process.serving import Serving, error_of, exchange, hang_up, read_back, rows, write_all
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

# So large that it does not fit into what is left of a page.
TEXT = "x" * 200_000
PATIENT = Reconnect(
    first_pause=0.01,
    longest_pause=0.1,
    give_up_after=2 * DEADLINE_SECONDS,
    open_timeout=DEADLINE_SECONDS,
    ack_timeout=DEADLINE_SECONDS,
)


def elsewhere(folder: Path) -> dict[str, Any]:
    """A store and a catalog that are not in the data folder."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return {"store": {"url": f"file://{folder}/objects"}, "catalog": {"properties": properties}}


@pytest.fixture(
    params=[FOR_THE_LOG[0], *(pytest.param(kind, marks=pytest.mark.full) for kind in FOR_THE_LOG[1:])],
    ids=lambda kind: kind.__name__,
)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = request.param(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def store_disk(tmp_path: Path) -> Iterator[Disk]:
    made: Disk = FOR_THE_STORE(tmp_path / "disk")
    yield made
    made.close()


def readiness(server: Serving) -> tuple[int, dict[str, Any]]:
    status, text = server.page("/readyz")
    return status, json.loads(text)


def refused_write(client: flight.FlightClient) -> dict[str, Any]:
    """Writes until that is refused, and tells what the server said.

    It reads beside that: a write that is just being accepted when the disk fills up waits for room, and its
    client is told of the disk only when it sends another one.
    """
    writer, reader = exchange(client, "stock")
    with ThreadPoolExecutor(1) as beside:
        told = beside.submit(read_until_refused, reader)
        with suppress(flight.FlightError, pa.ArrowException, OSError):  # the reader says why
            writer.begin(rows(0).schema)
            while not told.done():
                writer.write_batch(rows(-1, 1, TEXT))
        try:
            return told.result()
        finally:
            hang_up(writer, reader)


def read_until_refused(reader: Any) -> dict[str, Any]:
    try:
        while True:
            reader.read_chunk()
    except flight.FlightUnavailableError as error:
        return error_of(error)


def test_the_disk_of_the_log_is_full_for_a_while(disk: Disk, tmp_path: Path) -> None:
    away = tmp_path / "elsewhere"
    away.mkdir()
    config = {**elsewhere(away), "ingest": {"commit_interval": "200ms"}}
    with (
        Serving(disk.folder / "data", config={**config}) as server,
        server.client() as stock,
        headrace.connect(server.url) as client,
        client.writer("own", reconnect=PATIENT) as writer,
    ):
        before = write_all(stock, "stock", [rows(number) for number in range(5)])
        for number in range(5):
            writer.write_durable(rows(number), Tier.LOCAL_DISK, timeout=DEADLINE_SECONDS)

        disk.fill(server)
        told = refused_write(stock)
        assert (told["error"], told["transient"]) == ("StorageFull", True)
        # That there is little room is seen before there is none, unless it is a limit of the process.
        assert "free space" in told["message"]
        receipts = [writer.write(rows(number, 1, TEXT)) for number in range(5, 10)]
        writer.send_now()
        status, page = readiness(server)
        assert (status, page["status"], page["accepts_writes"]) == (503, "refusing", False)
        # A limit of the process also stops the store, if a segment is just being put.
        assert "free space" in page["problems"][0]
        assert server.page("/healthz")[0] == 200
        wait_until(lambda: writer.trouble is not None, "the writer's trouble")
        again = refused_write(stock)
        assert again["error"] == "StorageFull"

        disk.free(server)
        for receipt in receipts:
            receipt.wait(Tier.LOCAL_DISK, timeout=DEADLINE_SECONDS)
        wait_until(lambda: readiness(server)[0] == 200, "readiness")
        after = write_all(stock, "stock", [rows(number) for number in range(5, 10)])
        writer.flush(Tier.COMMITTED, timeout=DEADLINE_SECONDS)

        assert server.is_running
        own = client.read("own").read_all()
        assert sorted(own["id"].to_pylist()) == list(range(10))
        found = read_back(stock, "stock")
        kept = [
            lsn
            for lsn, number in zip(found["_lsn"].to_pylist(), found["id"].to_pylist(), strict=True)
            if number >= 0
        ]
        assert kept == before + after
        assert server.action("health")["problems"] == []
        writer.close(timeout=DEADLINE_SECONDS)
        assert server.stop() == 0


@pytest.mark.full
@pytest.mark.skipif(not IS_ROOT, reason="a disk of its own takes root")
def test_a_small_disk_with_everything_on_it_drains_and_goes_on_by_itself(tmp_path: Path) -> None:
    """The log, the objects, the catalog and the warehouse; and nobody frees anything."""
    disk = SmallDisk(tmp_path / "disk")
    config = {"ingest": {"commit_interval": "1h", "segment_bytes": "1MiB"}}
    try:
        with Serving(disk.folder / "data", config=config) as server, server.client() as stock:
            written = write_all(stock, "stock", [rows(1)])
            told = refused_write(stock)
            assert "is almost full" in told["message"]
            assert server.action("flush", timeout=DEADLINE_SECONDS)["watermarks"]["COMMITTED"] >= written[0]
            wait_until(lambda: readiness(server)[0] == 200, "readiness")
            written += write_all(stock, "stock", [rows(2)], until="LOCAL_DISK")
            server.action("flush", timeout=DEADLINE_SECONDS)
            found = read_back(stock, "stock").filter(pc.field("id") > 0)
            assert found["_lsn"].to_pylist() == written
            wait_until(lambda: server.action("health")["problems"] == [])
    finally:
        disk.close()


@pytest.mark.full
def test_the_disk_of_the_store_is_full_for_a_while(store_disk: Disk, tmp_path: Path) -> None:
    config = {"store": {"url": f"file://{store_disk.folder}/objects"}, "ingest": {"commit_interval": "200ms"}}
    with Serving(tmp_path / "data", config=config) as server, server.client() as client:
        first = write_all(client, "stock", [rows(1)], until="COMMITTED")

        store_disk.fill(server)
        second = write_all(client, "stock", [rows(2, 1, TEXT)], until="LOCAL_DISK")
        wait_until(lambda: server.action("health")["status"] == "degraded", "the complaint")
        health = server.action("health")
        assert health["accepts_writes"]
        assert any(f"store file://{store_disk.folder}/objects" in problem for problem in health["problems"])
        assert readiness(server)[0] == 200
        assert health["watermarks"]["OBJECT_STORAGE"] < second[0]
        with pytest.raises(flight.FlightUnavailableError, match="not everything reached OBJECT_STORAGE"):
            server.action("flush", level="OBJECT_STORAGE", timeout=0.5)

        store_disk.free(server)
        server.action("flush", timeout=DEADLINE_SECONDS)
        assert server.action("health")["status"] == "ok"
        assert read_back(client, "stock")["_lsn"].to_pylist() == first + second
