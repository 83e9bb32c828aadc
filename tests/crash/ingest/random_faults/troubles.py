"""What goes wrong while a server runs. Each is a context manager: it is over at the end of the block."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import psutil

from headrace.certify.ingest import clock
from headrace.certify.ingest.store_manners import Manners, set_manners
from headrace.faults import Action
from headrace.model.tiers import Tier
from headrace.testing.freezing import freeze
from tests.crash.ingest.committers import committers_of
from tests.crash.ingest.random_faults.damage import lie_is_over
from tests.crash.ingest.random_faults.points import COMMITTER_POINTS
from tests.crash.ingest.random_faults.scene import Scene

Trouble = Callable[[Scene, random.Random], AbstractContextManager[None]]

_DAY = 86_400
_STEPS = (-400 * _DAY, -30 * _DAY, -3600, -2, 3600, 8 * _DAY, 30 * _DAY, 400 * _DAY)
# Bounds of waits for something that need not come.
_A_WHILE = 3.0
_MANY = 40


@contextmanager
def nothing(_: Scene, __: random.Random) -> Iterator[None]:
    yield


def store_that_is(manners: Manners) -> Trouble:
    @contextmanager
    def badly_behaved(scene: Scene, draw: random.Random) -> Iterator[None]:
        set_manners(scene.faults, manners)
        scene.journal.hears(Tier.LOCAL_DISK, draw.randint(1, _MANY), _A_WHILE)
        try:
            yield
        finally:
            set_manners(scene.faults, Manners.GOOD)

    return badly_behaved


@contextmanager
def store_lies(scene: Scene, draw: random.Random) -> Iterator[None]:
    """What it lacks is on the server's disk, or committed: harm is done only by losing that as well."""
    with store_that_is(Manners.LYING)(scene, draw):
        yield
    lie_is_over(scene)


@contextmanager
def store_away(scene: Scene, draw: random.Random) -> Iterator[None]:
    outages = scene.outside.store_outages
    with outages[draw.choice(sorted(outages))]():
        scene.journal.hears(Tier.LOCAL_DISK, draw.randint(1, _MANY), _A_WHILE)
        yield


@contextmanager
def catalog_away(scene: Scene, draw: random.Random) -> Iterator[None]:
    outages = scene.outside.catalog_outages
    with outages[draw.choice(sorted(outages))]():
        scene.journal.hears(Tier.OBJECT_STORAGE, draw.randint(1, _MANY), _A_WHILE)
        yield


def fails_at(*points: str, how: Action, most: int = 3) -> Trouble:
    """Something fails at one of the points, several times in a row."""

    @contextmanager
    def failing(scene: Scene, draw: random.Random) -> Iterator[None]:
        point = draw.choice(points)
        for _ in range(draw.randint(1, most)):
            scene.faults.clear()
            scene.faults.arm(point, how, draw.randint(1, 5))
            _await(lambda: point in scene.faults.fired)
        scene.before_start = lambda: scene.faults.arm(point, how, draw.randint(1, 3))
        try:
            yield
        finally:
            scene.before_start = lambda: None

    return failing


def slow_at(*points: str) -> Trouble:
    """Something takes long at one of the points."""

    @contextmanager
    def slow(scene: Scene, draw: random.Random) -> Iterator[None]:
        point = draw.choice(points)
        scene.faults.arm(point, Action.PARK, draw.randint(1, 3))
        _await(lambda: point in scene.faults.parked)
        scene.journal.hears(Tier.MEMORY, draw.randint(1, _MANY), _A_WHILE)
        try:
            yield
        finally:
            scene.faults.release(point)

    return slow


@contextmanager
def frozen(scene: Scene, draw: random.Random) -> Iterator[None]:
    scene.server.freeze()
    time.sleep(draw.random())
    scene.server.resume()
    yield


@contextmanager
def committer_frozen(scene: Scene, draw: random.Random) -> Iterator[None]:
    found = committers_of(scene.server)
    for committer in found:
        with suppress(psutil.Error, ProcessLookupError):
            freeze(committer.pid)
    scene.outside.blocked.append("frozen")  # perhaps in a transaction
    scene.journal.hears(Tier.OBJECT_STORAGE, draw.randint(1, _MANY), _A_WHILE)
    try:
        yield
    finally:
        scene.outside.blocked.remove("frozen")
        for committer in found:
            with suppress(psutil.Error):
                committer.resume()


@contextmanager
def committer_killed(scene: Scene, draw: random.Random) -> Iterator[None]:
    if draw.random() < 0.5:
        point = draw.choice(COMMITTER_POINTS)
        scene.faults.arm(point, Action.LOSE)
        _await(lambda: point in scene.faults.fired)
    else:
        time.sleep(draw.random() * 0.5)
        for committer in committers_of(scene.server):
            with suppress(psutil.Error):
                committer.kill()
    scene.check_committed()
    yield


@contextmanager
def clock_stepped(scene: Scene, draw: random.Random) -> Iterator[None]:
    """For good, or until the next step."""
    clock.step(scene.faults, draw.choice(_STEPS))
    scene.journal.hears(Tier.COMMITTED, draw.randint(1, _MANY), _A_WHILE)
    yield
    if draw.random() < 0.5:
        clock.step(scene.faults, 0)


TROUBLES: dict[str, Trouble] = {
    "nothing": nothing,
    "the store is away": store_away,
    "the store does not answer": store_that_is(Manners.AWAY),
    "the store is slow": store_that_is(Manners.SLOW),
    "the store hangs": slow_at("object putting", "object put", "owner checking"),
    "the store fails now and then": store_that_is(Manners.FLAKY),
    "the store lies": store_lies,
    "the store keeps what it calls failed": fails_at("object put", how=Action.UNAVAILABLE),
    "the catalog is away": catalog_away,
    "the disk is full": fails_at("wal writing", "wal creating", how=Action.DISK_FULL),
    "the disk is slow": slow_at("wal syncing", "wal creating"),
    "the disk fails": fails_at("wal writing", "wal syncing", "wal creating", how=Action.IO_ERROR),
    "files stay": fails_at("wal removing", how=Action.IO_ERROR),
    "the server is frozen": frozen,
    "the committer is frozen": committer_frozen,
    "the committer is killed": committer_killed,
    "the committer is slow": slow_at(*COMMITTER_POINTS),
    "the clock is set": clock_stepped,
}


def _await(condition: Callable[[], bool]) -> None:
    """For a while: with other trouble about, nothing may ever come to a point."""
    deadline = time.monotonic() + _A_WHILE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
