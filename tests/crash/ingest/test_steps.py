"""The server dies between two of its steps, and goes on with the folder that it left, or with none."""

from __future__ import annotations

import shutil
import signal

import pyarrow as pa
import pytest

import headrace
from headrace.certify.ingest.journal import WAIT_SECONDS, Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.errors import HeadraceError
from headrace.faults import Action, Faults
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess

pytestmark = pytest.mark.processes

WORKING = [
    ("wal written", 60),
    ("wal synced", 61),
    ("wal creating", 4),
    ("object synced", 5),
    ("uploader put", 5),
    ("tables asked", 1),
    ("commits answered", 1),
    ("commits answered", 2),
    ("wal removed", 2),
    ("segment removed", 2),
]
TAKING_OVER = [("term claimed", 1), ("segment fetched", 2), ("identity written", 1), ("wal written", 1)]
# Between reaching a tier and announcing it: written but not synced; synced, uploaded or committed but not
# announced.
DECISIVE = {
    ("wal written", 60, False),
    ("wal synced", 61, False),
    ("uploader put", 5, True),
    ("commits answered", 1, False),
}


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


@pytest.mark.parametrize(
    ("step", "occurrence", "is_disk_lost"),
    [
        pytest.param(
            step,
            occurrence,
            is_disk_lost,
            id=f"{step}-{occurrence}-{'disk lost' if is_disk_lost else 'restarted'}",
            marks=[] if (step, occurrence, is_disk_lost) in DECISIVE else pytest.mark.full,
        )
        for step, occurrence in WORKING
        for is_disk_lost in (False, True)
    ],
)
def test_died_at_work(
    folders: Surroundings, journal: Journal, faults: Faults, step: str, occurrence: int, is_disk_lost: bool
) -> None:
    faults.arm(step, Action.LOSE, occurrence)
    with folders.server(environment=faults.environment) as server:
        writers = start_writers(server, journal)
        assert server.process.wait(WAIT_SECONDS) == -signal.SIGKILL, server.log_tail()
        if is_disk_lost:
            shutil.rmtree(server.data)
        server.start()
        finish(writers, journal)
        folders.check(journal, server, Tier.OBJECT_STORAGE if is_disk_lost else Tier.LOCAL_DISK)


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [TAKING_OVER[0], *(pytest.param(*each, marks=pytest.mark.full) for each in TAKING_OVER[1:])],
)
def test_died_while_taking_over(
    folders: Surroundings, journal: Journal, faults: Faults, step: str, occurrence: int
) -> None:
    with folders.server(environment=faults.environment) as server:
        writers = start_writers(server, journal)
        journal.await_news(Tier.COMMITTED, 50)
        server.kill()
        shutil.rmtree(server.data)
        faults.arm(step, Action.LOSE, occurrence)
        with pytest.raises(HeadraceError, match=f"ended with {-signal.SIGKILL}"):
            server.start()
        server.start()
        finish(writers, journal)
        folders.check(journal, server, Tier.OBJECT_STORAGE)


@pytest.mark.full
def test_a_file_that_cannot_be_removed_is_no_gap(
    folders: Surroundings, journal: Journal, faults: Faults
) -> None:
    faults.arm("wal removing", Action.IO_ERROR)
    with folders.server(environment=faults.environment) as server:
        writers = start_writers(server, journal)
        faults.arm("wal removed", Action.LOSE, 10)
        assert server.process.wait(WAIT_SECONDS) == -signal.SIGKILL, server.log_tail()
        assert "wal removing" in faults.fired
        server.start()
        finish(writers, journal)
        folders.check(journal, server, Tier.LOCAL_DISK)
