"""The process that commits is killed, frozen, and outlives its server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from sqlalchemy.exc import OperationalError

from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.faults import Action, Faults
from headrace.model.tiers import Tier
from headrace.testing.freezing import freeze
from headrace.testing.ingest_process import IngestProcess
from tests.crash.ingest.committers import committers_of
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

OVERTAKING_SECONDS = 15.0
"""Limits a wait for commits: none are possible while a process is frozen in a transaction."""


@contextmanager
def load(server: IngestProcess, journal: Journal) -> Iterator[list[Loader]]:
    """Ends well only if every writer has heard everything."""
    writers: list[Loader] = [
        ProducerLoader("producer", server.url, "events", journal),
        StockLoader("stock", server.url, "events", journal),
    ]
    for writer in writers:
        writer.start()
    try:
        yield writers
    except BaseException:
        for writer in writers:
            writer.stop()
        raise
    for writer in writers:
        writer.finish()


def committer_of(server: IngestProcess, other_than: int = 0) -> psutil.Process:
    found: list[psutil.Process] = []

    def is_there() -> bool:
        found[:] = [process for process in committers_of(server) if process.pid != other_than]
        return bool(found)

    wait_until(is_there, "a process of the server that commits")
    return found[0]


@pytest.mark.parametrize(
    ("surroundings", "kills"),
    [
        ("folders", 2),
        pytest.param("folders", 8, marks=pytest.mark.full),
        pytest.param("s3_and_rest", 8, marks=pytest.mark.full),
    ],
    indirect=["surroundings"],
)
def test_the_committer_is_killed(surroundings: Surroundings, journal: Journal, kills: int) -> None:
    draw = random.Random(1)
    with surroundings.server() as server:
        with load(server, journal):
            killed = 0
            for number in range(kills):
                committer = committer_of(server, other_than=killed)
                if number % 2:  # in the middle of a commit; else perhaps before it is even ready
                    journal.await_news(Tier.COMMITTED, draw.randint(1, 300))
                time.sleep(draw.random())
                committer.kill()
                killed = committer.pid
                journal.await_news(Tier.LOCAL_DISK)
            assert server.is_running
        surroundings.check(journal, server, Tier.LOCAL_DISK)


@pytest.mark.full  # tests/ingest/iceberg/test_committer_process.py freezes a committer by itself
def test_the_committer_hangs_and_goes_on(folders: Surroundings, journal: Journal) -> None:
    """Writes continue in the meantime, and nothing is reported as committed that is not."""
    with folders.server(commit_timeout=3600) as server:
        with load(server, journal):
            journal.await_news(Tier.COMMITTED)
            committer = committer_of(server)
            while not _reports_the_truth_while_frozen(committer, folders, journal):
                committer.resume()
                journal.await_news(Tier.COMMITTED)
            committer.resume()
            journal.await_news(Tier.COMMITTED, 200)
            assert committer_of(server).pid == committer.pid
        folders.check(journal, server, Tier.LOCAL_DISK)


def _reports_the_truth_while_frozen(
    committer: psutil.Process, folders: Surroundings, journal: Journal
) -> bool:
    """Leaves it frozen; returns False if it froze in an SQLite transaction, which blocks the check."""
    freeze(committer.pid)
    journal.await_news(Tier.OBJECT_STORAGE, 200)
    try:
        folders.check_committed(journal)
    except OperationalError:
        return False
    return True


@pytest.mark.full
def test_the_committer_hangs_for_too_long(folders: Surroundings, journal: Journal) -> None:
    with folders.server(commit_timeout=20) as server:
        with load(server, journal):
            journal.await_news(Tier.COMMITTED)
            committer = committer_of(server)
            freeze(committer.pid)
            committer_of(server, other_than=committer.pid)
            journal.await_news(Tier.COMMITTED, 200)
            assert not committer.is_running()
        folders.check(journal, server, Tier.LOCAL_DISK)


@pytest.mark.parametrize(
    "step",
    [
        "committing",
        *(pytest.param(step, marks=pytest.mark.full) for step in ("read", "written", "committed")),
    ],
)
def test_a_committer_outlives_its_server(
    folders: Surroundings, journal: Journal, faults: Faults, step: str
) -> None:
    """It is frozen in the middle of its work, and goes on when another server's has done the same work."""
    point = f"committer {step}"
    with folders.server(environment=faults.environment) as server:
        with load(server, journal):
            journal.await_news(Tier.COMMITTED)
            faults.arm(point, Action.PARK)
            wait_until(lambda: point in faults.parked, f"the committer at {step}")
            zombie = committer_of(server)
            freeze(zombie.pid)
            faults.release(point)
            server.kill()
            server.start()
            journal.await_news(Tier.COMMITTED, 50)
            zombie.resume()
            await_end(zombie)
        folders.check(journal, server, Tier.LOCAL_DISK)


@pytest.mark.full
def test_a_committer_outlives_its_server_from_any_moment(folders: Surroundings, journal: Journal) -> None:
    draw = random.Random(2)
    with folders.server() as server:
        with load(server, journal):
            for _ in range(4):
                journal.await_news(Tier.COMMITTED, draw.randint(1, 200))
                zombie = committer_of(server)
                time.sleep(draw.random() * 0.3)
                freeze(zombie.pid)
                server.kill()
                server.start()
                # While one is frozen in a transaction of SQLite's nobody else commits, so it goes on first.
                journal.hears(Tier.COMMITTED, 50, OVERTAKING_SECONDS)
                zombie.resume()
                await_end(zombie)
        folders.check(journal, server, Tier.LOCAL_DISK)


@pytest.mark.full
def test_killed_while_its_committer_works(folders: Surroundings, journal: Journal) -> None:
    """The committer of before is still at it when the new server starts."""
    draw = random.Random(3)
    with folders.server() as server:
        with load(server, journal):
            for _ in range(4):
                journal.await_news(Tier.COMMITTED, draw.randint(1, 200))
                time.sleep(draw.random() * 0.2)
                server.kill()
                server.start()
        folders.check(journal, server, Tier.LOCAL_DISK)


def await_end(process: psutil.Process) -> None:
    wait_until(lambda: _has_ended(process), f"the end of {process}")


def _has_ended(process: psutil.Process) -> bool:
    """It is not our child. Where nobody collects orphans, it stays as a zombie."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
