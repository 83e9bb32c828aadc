"""One collection cannot be committed, in a real server that dies between two steps of keeping it apart."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from headrace.certify.ingest.journal import WAIT_SECONDS, Journal
from headrace.certify.ingest.oracle import read_tables
from headrace.certify.ingest.refusing_table import RefusingTable
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.cli import cli
from headrace.client import connect
from headrace.faults import Action, Faults
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess
from tests.crash.ingest import deadly
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

BAD, GOOD = deadly.COLLECTION, "good"
ENTERING = [
    "quarantine entering",
    "quarantine entered",
    "side log written",
    "side log put",
    "side log recorded",
]
RELEASING = ["quarantine lifting", "quarantine lifted", "side log removed"]
DROPPING = ["quarantine dropping", "quarantine dropped"]
DECISIVE = {("side log put", True), ("quarantine lifting", False), ("quarantine dropped", False)}


def points(names: list[str]) -> list[object]:
    """Each with the disk kept and lost; the decisive ones belong to `make test`."""
    return [
        pytest.param(
            point,
            is_disk_lost,
            id=f"{point}-{'disk lost' if is_disk_lost else 'restarted'}",
            marks=[] if (point, is_disk_lost) in DECISIVE else pytest.mark.full,
        )
        for point in names
        for is_disk_lost in (False, True)
    ]


@dataclass
class Scene:
    """A server with a collection that is committed, and one whose table somebody changes."""

    journal: Journal
    server: IngestProcess
    writers: list[Loader]
    table: RefusingTable

    def quarantine(self) -> list[str]:
        with connect(self.server.url) as client:
            return [one["collection"] for one in client.quarantine()]

    def await_death(self) -> None:
        """Returns when the fault that is armed has ended the server."""
        status = self.server.process.wait(WAIT_SECONDS)
        assert status == -signal.SIGKILL, self.server.log_tail()

    def restart(self, is_disk_lost: bool) -> None:
        if is_disk_lost:
            shutil.rmtree(self.server.data)
        self.server.start()

    def run(self, *arguments: str) -> str:
        """Runs `headrace quarantine`; it may be cut off by the server's death."""
        called = ["quarantine", *arguments, "--server", self.server.url]
        return CliRunner().invoke(cli, called).output

    def finish(self) -> None:
        self.journal.await_news(Tier.COMMITTED, 50)
        for writer in self.writers:
            writer.finish()


@contextmanager
def scene(folders: Surroundings, journal: Journal, faults: Faults) -> Iterator[Scene]:
    with folders.server(environment=faults.environment) as server:
        writers: list[Loader] = [
            ProducerLoader("producer", server.url, GOOD, journal, retain=Tier.OBJECT_STORAGE),
            StockLoader("stock", server.url, BAD, journal),
        ]
        for writer in writers:
            writer.start()
        try:
            wait_until(lambda: {GOOD, BAD} <= committed_of(journal), "commits to both tables")
            yield Scene(journal, server, writers, RefusingTable(folders, BAD))
        finally:
            for writer in writers:
                writer.stop()


def committed_of(journal: Journal) -> set[str]:
    return {one.collection for one in journal.so_far().values() if Tier.COMMITTED in dict(one.told)}


@pytest.mark.parametrize(("point", "is_disk_lost"), points(ENTERING))
def test_died_while_a_collection_is_put_into_quarantine(
    folders: Surroundings, journal: Journal, faults: Faults, point: str, is_disk_lost: bool
) -> None:
    with scene(folders, journal, faults) as at:
        faults.arm(point, Action.LOSE)
        at.table.refuse_until(lambda: not at.server.is_running, "a death")
        at.await_death()
        at.restart(is_disk_lost)
        at.table.await_quarantine(at.server)
        journal.await_news(Tier.COMMITTED, 50)  # of the other one
        at.table.mend()
        assert "bad is released" in at.run("release", BAD)
        at.finish()
        folders.check(journal, at.server, Tier.OBJECT_STORAGE if is_disk_lost else Tier.LOCAL_DISK)


@pytest.mark.parametrize(("point", "is_disk_lost"), points(RELEASING))
def test_died_while_a_collection_is_released(
    folders: Surroundings, journal: Journal, faults: Faults, point: str, is_disk_lost: bool
) -> None:
    with scene(folders, journal, faults) as at:
        at.table.await_quarantine(at.server)
        at.table.mend()
        faults.arm(point, Action.LOSE)
        at.run("release", BAD)
        at.await_death()
        at.restart(is_disk_lost)
        if at.quarantine():
            assert point == "quarantine lifting"
            assert "bad is released" in at.run("release", BAD)
        at.finish()
        folders.check(journal, at.server, Tier.OBJECT_STORAGE if is_disk_lost else Tier.LOCAL_DISK)


@pytest.mark.parametrize(("point", "is_disk_lost"), points(DROPPING))
def test_died_while_a_collection_is_dropped(
    folders: Surroundings, journal: Journal, faults: Faults, point: str, is_disk_lost: bool
) -> None:
    with scene(folders, journal, faults) as at:
        at.table.await_quarantine(at.server)
        at.writers[1].stop()
        at.writers[1].join()
        faults.arm(point, Action.LOSE)
        at.run("drop", BAD, "--yes", BAD)
        at.await_death()
        at.restart(is_disk_lost)
        at.table.mend()
        if at.quarantine():
            assert point == "quarantine dropping"
            assert "are lost" in at.run("drop", BAD, "--yes", BAD)
        later = StockLoader("later", at.server.url, BAD, journal)
        later.start()
        journal.await_news(Tier.COMMITTED, 50)
        for writer in (at.writers[0], later):
            writer.finish()
        told = {
            lsn: one.name
            for one in journal.writes.values()
            if one.collection == BAD
            for tier, lsn in one.told.items()
            if tier >= (Tier.OBJECT_STORAGE if is_disk_lost else Tier.LOCAL_DISK)
        }
        with connect(at.server.url) as client:
            client.flush(Tier.COMMITTED, timeout=100)
            said = client.watermarks(BAD, lsns=sorted(told))["lsns"]
        found = read_tables(folders.catalog(), folders.namespace)
        assert "LOST" in said.values()
        for lsn, name in told.items():
            assert said[str(lsn)] == ("COMMITTED" if lsn in found.lsns(name) else "LOST")
        assert not found.repeated


def test_a_committer_that_dies_of_one_collection_commits_the_others(
    folders: Surroundings, journal: Journal, faults: Faults
) -> None:
    cure = faults.folder / deadly.CURE
    cure.touch()
    faults.load(deadly.__name__)
    with scene(folders, journal, faults) as at:
        cure.unlink()
        wait_until(lambda: at.table.is_apart(at.server), "a quarantine")
        assert "ended 5 times on it alone" in json.loads(at.run("list", "--json"))[0]["reason"]
        journal.await_news(Tier.COMMITTED, 50)
        cure.touch()
        assert "bad is released" in at.run("release", BAD)
        at.finish()
        folders.check(journal, at.server, Tier.LOCAL_DISK)
