"""The server dies between two of its steps, and goes on with the folder that it left, or with none."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess
from tests.crash.ingest.faulty_server import FAULT
from tests.crash.ingest.journal import WAIT_SECONDS, Journal
from tests.crash.ingest.surroundings import Surroundings
from tests.crash.ingest.writers import Loader, ProducerLoader, StockLoader

WORKING = [
    ("wrote", 60),
    ("synced", 61),
    ("created a file", 4),
    ("put an object", 5),
    ("looked for the owner", 5),
    ("asked the tables", 1),
    ("committed", 1),
    ("committed", 2),
    ("removed a file", 2),
    ("removed an object", 2),
]
TAKING_OVER = [("claimed an epoch", 1), ("fetched a segment", 2), ("wrote its identity", 1), ("wrote", 1)]


@pytest.fixture
def fault(folders: Surroundings) -> Path:
    return folders.folder / "fault"


def faulty(surroundings: Surroundings, fault: Path) -> IngestProcess:
    command = (sys.executable, "-m", "tests.crash.ingest.faulty_server", "serve")
    return surroundings.server(command=command, environment={FAULT: str(fault)})


def start_writers(server: IngestProcess, journal: Journal) -> list[Loader]:
    # It makes the log's state so large that only every few segments begin with it.
    with headrace.connect(server.url) as client:
        client.create_collection(
            "wide", pa.schema([(f"a column with number {n}", "int64") for n in range(60)])
        )
    writers: list[Loader] = [
        ProducerLoader("producer", server.url, "events", journal, retain=Tier.OBJECT_STORAGE),
        StockLoader("stock", server.url, "events", journal),
    ]
    for writer in writers:
        writer.start()
    return writers


def finish(writers: list[Loader], journal: Journal) -> None:
    journal.await_news(Tier.COMMITTED, 50)
    for writer in writers:
        writer.finish()


@pytest.mark.parametrize("is_disk_lost", [False, True], ids=["restarted", "disk lost"])
@pytest.mark.parametrize(("step", "occurrence"), WORKING)
def test_died_at_work(
    folders: Surroundings, journal: Journal, fault: Path, step: str, occurrence: int, is_disk_lost: bool
) -> None:
    fault.write_text(f"{step} {occurrence}")
    with faulty(folders, fault) as server:
        writers = start_writers(server, journal)
        assert server.process.wait(WAIT_SECONDS) == -signal.SIGKILL, server.log_tail()
        fault.unlink()
        if is_disk_lost:
            shutil.rmtree(server.data)
        server.start()
        finish(writers, journal)
        folders.assert_exactly_once(journal, server, Tier.OBJECT_STORAGE if is_disk_lost else Tier.LOCAL_DISK)


@pytest.mark.parametrize(("step", "occurrence"), TAKING_OVER)
def test_died_while_taking_over(
    folders: Surroundings, journal: Journal, fault: Path, step: str, occurrence: int
) -> None:
    with faulty(folders, fault) as server:
        writers = start_writers(server, journal)
        journal.await_news(Tier.COMMITTED, 50)
        server.kill()
        shutil.rmtree(server.data)
        fault.write_text(f"{step} {occurrence}")
        with pytest.raises(HeadraceError, match=f"ended with {-signal.SIGKILL}"):
            server.start()
        fault.unlink()
        server.start()
        finish(writers, journal)
        folders.assert_exactly_once(journal, server, Tier.OBJECT_STORAGE)
