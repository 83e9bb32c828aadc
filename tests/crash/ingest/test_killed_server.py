"""The server is killed, as by kill -9, at any moment, under load, and started again on the same folder."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess

pytestmark = pytest.mark.processes

# Steps of a starting server, or of a write that has just reached a tier.
MOMENTS = [None, *Tier]


def loaders(url: str, journal: Journal) -> list[Loader]:
    """Two collections, and in one of them writers of both kinds."""
    return [
        ProducerLoader("orders", url, "events", journal),
        ProducerLoader("clicks", url, "others", journal),
        StockLoader("stock", url, "events", journal),
        StockLoader("stranger", url, "others", journal),
    ]


@dataclass(frozen=True)
class Moment:
    """After so many notices of a tier, and a little later; without a tier: while the server starts."""

    tier: Tier | None
    notices: int
    later: float
    """In shares of what it takes to start, or else in seconds."""


def moments(draw: random.Random, kills: int) -> list[Moment]:
    """Just after a notice the next steps are under way: a sync, a put, a commit, the removal of a segment."""
    each_once = draw.sample(MOMENTS, len(MOMENTS))
    drawn = [*each_once, *(draw.choice([*MOMENTS, Tier.OBJECT_STORAGE]) for _ in range(kills))][:kills]
    longest = {None: 1.0, Tier.COMMITTED: 0.3}
    return [Moment(tier, draw.randint(1, 150), draw.random() * longest.get(tier, 0.05)) for tier in drawn]


def kill_at(moment: Moment, server: IngestProcess, journal: Journal, start_seconds: float) -> None:
    if moment.tier is None:
        server.kill()
        server.begin()
        time.sleep(moment.later * start_seconds)
    else:
        journal.await_news(moment.tier, moment.notices, is_over=lambda: not server.is_running)
        time.sleep(moment.later)
    server.kill()


def run(surroundings: Surroundings, journal: Journal, seed: int, kills: int) -> None:
    with surroundings.server() as server:
        writers = loaders(server.url, journal)
        for writer in writers:
            writer.start()
        start_seconds = measured(lambda: restart(server))
        for moment in moments(random.Random(seed), kills):
            kill_at(moment, server, journal, start_seconds)
            server.start()
        for writer in writers:
            writer.finish()
        surroundings.check(journal, server, Tier.LOCAL_DISK)


def restart(server: IngestProcess) -> None:
    server.kill()
    server.start()


def measured(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
def test_killed_many_times(folders: Surroundings, journal: Journal, kills: int) -> None:
    run(folders, journal, seed=4, kills=kills)


@pytest.mark.full
def test_killed_with_s3_and_a_rest_catalog(s3_and_rest: Surroundings, journal: Journal) -> None:
    run(s3_and_rest, journal, seed=6, kills=10)
