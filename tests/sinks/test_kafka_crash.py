"""Processes that are killed in the middle: another finishes what was decided, and removes what was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.kafka_broker import KafkaBroker
from headrace.model.checkpoints import JsonObject
from tests.sinks.kafka_world import World

_HEAD = """
import json, os, signal, sys
from devtools.kafka_broker import KafkaBroker
from headrace.errors import Fenced
from headrace.kafka import transactions as kafka_transactions
from headrace.sinks.kafka_task import prepare_shard
from headrace.testing.faults import freeze_here
from tests.sinks.kafka_world import World, batch_of, handle_of

class Broker:
    bootstrap = sys.argv[1]
    def create_topic(self, *_): pass

world = World(Broker())
world.topic, world.checkpoints, world.writer = sys.argv[2:5]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""
_IN_PREPARE = """
def batches():
    yield batch_of(range(5000))
    die()

prepare_shard(world.shipment(1), 0, batches())
"""
_AFTER_PREPARE = """
print(json.dumps(world.handle(1, range(10, 20), shards="2")), flush=True)
die()
"""
_IN_COMMIT = """
end, ended = kafka_transactions.Transactions.end, []

def end_one(self, identity, *, commit):
    ended.append(end(self, identity, commit=commit))
    die()

kafka_transactions.Transactions.end = end_one
world.sink(shards="2").commit(1, json.loads(sys.argv[5]))
"""
_FROZEN_IN_PREPARE = """
def batches():
    yield batch_of(range(100))
    freeze_here()
    yield batch_of(range(100))

try:
    prepare_shard(world.shipment(1), 0, batches())
except Fenced:
    print("fenced")
"""
_FROZEN_BEFORE_PREPARE = """
shipment = world.shipment(1)
freeze_here()
prepare_shard(shipment, 0, [batch_of(range(100))])
print("left open")
"""
_FROZEN_BEFORE_COMMIT = """
handle = json.loads(sys.argv[5])
freeze_here()
world.sink(shards="2").commit(1, handle)
print("committed")
"""


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    world = World(kafka_broker)
    sink = world.sink(shards="2")
    sink.start(None, None, 1)
    sink.commit(0, world.handle(0, range(10), shards="2"))
    return world


def start_child(world: World, code: str, *arguments: str) -> subprocess.Popen[str]:
    names = (world.broker.bootstrap, world.topic, world.checkpoints, world.writer)
    return subprocess.Popen(
        [sys.executable, "-c", _HEAD + code, *names, *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def run_and_die(world: World, code: str, *arguments: str) -> str:
    with start_child(world, code, *arguments) as child:
        said, _ = child.communicate()
    assert child.returncode == -signal.SIGKILL
    return said


@contextmanager
def frozen(world: World, code: str, *arguments: str) -> Iterator[Callable[[], str]]:
    """A process that has stopped itself; what is yielded wakes it, and returns what it said to the end."""
    with start_child(world, code, *arguments) as child:
        try:
            stopped = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped is not None
            assert stopped.si_code == os.CLD_STOPPED, "it ended before it came there"

            def wake() -> str:
                child.send_signal(signal.SIGCONT)
                return child.communicate()[0].strip()

            yield wake
        finally:
            child.kill()


@pytest.mark.full
def test_one_that_dies_in_prepare(world: World) -> None:
    run_and_die(world, _IN_PREPARE)
    assert world.state().state == "Ongoing"
    successor = world.sink(shards="2")
    successor.start(0, None, 2)
    assert not world.state().is_open
    successor.commit(1, world.handle(1, range(10, 20), fence=2, shards="2"))
    assert world.values() == list(range(20))


@pytest.mark.full
def test_one_that_dies_before_the_decision(world: World) -> None:
    run_and_die(world, _AFTER_PREPARE)
    successor = world.sink(shards="2")
    successor.start(0, None, 2)
    assert [world.state(shard).is_open for shard in range(2)] == [False, False]
    assert world.values() == list(range(10))


def test_one_that_dies_after_the_decision(world: World) -> None:
    handle: JsonObject = json.loads(run_and_die(world, _AFTER_PREPARE))
    successor = world.sink(shards="2")
    successor.start(1, handle, 2)
    assert [world.state(shard).state for shard in range(2)] == ["Ongoing", "Ongoing"]
    assert world.values() == list(range(10))
    successor.commit(1, handle)
    assert world.values() == list(range(20))


@pytest.mark.full
def test_one_that_dies_between_the_commits_of_two_shards(world: World) -> None:
    handle = world.handle(1, range(10, 20), shards="2")
    run_and_die(world, _IN_COMMIT, json.dumps(handle))
    assert [world.state(shard).state for shard in range(2)] == ["CompleteCommit", "Ongoing"]
    successor = world.sink(shards="2")
    successor.start(1, handle, 2)
    for _ in range(2):
        successor.commit(1, handle)
        assert world.values() == list(range(20))


@pytest.mark.full
def test_one_that_wakes_up_in_prepare_is_fenced_off(world: World) -> None:
    with frozen(world, _FROZEN_IN_PREPARE) as wake:
        successor = world.sink(shards="2")
        successor.start(0, None, 2)
        handle = world.handle(1, range(10, 20), fence=2, shards="2")
        assert wake() == "fenced"
        successor.commit(1, handle)
    assert world.values() == list(range(20))


def test_one_that_wakes_up_before_prepare_cannot_lose_what_was_decided_meanwhile(world: World) -> None:
    with frozen(world, _FROZEN_BEFORE_PREPARE) as wake:
        successor = world.sink(shards="2")
        successor.start(0, None, 2)
        handle = world.handle(1, range(10, 20), fence=2, shards="2")
        assert wake() == "left open"  # and so the transaction that was decided is aborted
    assert world.state().identity.producer_epoch > handle["transactions"][0]["producer_epoch"]
    for _ in range(2):
        successor.commit(1, handle)
        assert world.values() == list(range(20))
    assert not world.state().is_open


def test_one_that_wakes_up_before_its_commit_changes_nothing(world: World) -> None:
    handle = world.handle(1, range(10, 20), shards="2")
    with frozen(world, _FROZEN_BEFORE_COMMIT, json.dumps(handle)) as wake:
        successor = world.sink(shards="2")
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.commit(2, world.handle(2, [20], fence=2, shards="2"))
        later = world.handle(3, [21], fence=2, shards="2")
        assert wake() == "committed"
        assert [world.state(shard).state for shard in range(2)] == ["Ongoing", "Ongoing"]
        assert world.values() == list(range(21))
        successor.commit(3, later)
    assert world.values() == list(range(22))
