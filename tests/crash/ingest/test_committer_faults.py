"""The process that commits is killed, frozen, and outlives its server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from sqlalchemy.exc import OperationalError

from headrace.certify.ingest.journal import WAIT_SECONDS, Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess
from tests.crash.ingest.committers import committers_of

KILLS = 8
OVERTAKING_SECONDS = 15.0


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
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = [process for process in committers_of(server) if process.pid != other_than]
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError("the server has no process that commits")


def test_the_committer_is_killed(surroundings: Surroundings, journal: Journal) -> None:
    draw = random.Random(1)
    with surroundings.server() as server:
        with load(server, journal):
            killed = 0
            for number in range(KILLS):
                committer = committer_of(server, other_than=killed)
                if number % 2:  # in the middle of a commit; else perhaps before it is even ready
                    journal.await_news(Tier.COMMITTED, draw.randint(1, 300))
                time.sleep(draw.random())
                committer.kill()
                killed = committer.pid
                journal.await_news(Tier.LOCAL_DISK)
            assert server.is_running
        surroundings.check(journal, server, Tier.LOCAL_DISK)


def test_the_committer_hangs(folders: Surroundings, journal: Journal) -> None:
    """It goes on when it is let, and is replaced when that takes too long; writes go on meanwhile."""
    with folders.server(commit_timeout=60) as server:
        with load(server, journal):
            journal.await_news(Tier.COMMITTED)
            committer = committer_of(server)
            for left in reversed(range(5)):
                committer.suspend()
                journal.await_news(Tier.OBJECT_STORAGE, 200)
                try:
                    folders.check_committed(journal)
                    break
                except OperationalError:  # it was frozen in a transaction of SQLite's
                    if not left:
                        raise
                    committer.resume()
                    journal.await_news(Tier.COMMITTED)
            committer.resume()
            journal.await_news(Tier.COMMITTED, 200)
            assert committer_of(server).pid == committer.pid
            committer.suspend()
            committer_of(server, other_than=committer.pid)
            journal.await_news(Tier.COMMITTED, 200)
            assert not committer.is_running()
        folders.check(journal, server, Tier.LOCAL_DISK)


def test_a_committer_outlives_its_server(folders: Surroundings, journal: Journal) -> None:
    """It is frozen in the middle of its work, and goes on when another server's has done the same work."""
    draw = random.Random(2)
    was_overtaken = []
    with folders.server() as server:
        with load(server, journal):
            for _ in range(4):
                journal.await_news(Tier.COMMITTED, draw.randint(1, 200))
                zombie = committer_of(server)
                time.sleep(draw.random() * 0.3)
                zombie.suspend()
                server.kill()
                server.start()
                # While one is frozen in a transaction of SQLite's nobody else commits, so it goes on first.
                was_overtaken.append(journal.hears(Tier.COMMITTED, 50, OVERTAKING_SECONDS))
                zombie.resume()
                await_end(zombie)
        folders.check(journal, server, Tier.LOCAL_DISK)
    assert any(was_overtaken)


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
    """It is not our child. Where nobody collects orphans, it stays as a zombie."""
    deadline = time.monotonic() + WAIT_SECONDS
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"{process} does not end"
        time.sleep(0.02)
