"""Invariants 10 and 12 of docs/invariants.md, for a Kafka topic: what must hold for open transactions."""

from __future__ import annotations

from dataclasses import replace

from devtools.kafka_broker import KafkaBroker
from headrace.errors import Transient
from headrace.kafka.transactions import Description
from headrace.sinks.contract import Epoch
from headrace.sinks.kafka import KafkaSink
from tests.sinks.conftest import Rows
from tests.sinks.kafka_world import NAME, World
from tests.waiting import wait_until


def started(sink: KafkaSink) -> KafkaSink:
    """Starts a sink with retries, as a runner does, because a new topic may have no leader yet."""

    def has_started() -> bool:
        try:
            sink.start(None, None, 1)
        except Transient:
            return False
        return True

    wait_until(has_started, "the start of the sink")
    return sink


def test_the_epoch_before_is_committed_before_a_new_producer_is_made(
    kafka_broker: KafkaBroker, rows: Rows
) -> None:
    """Invariant 10. A producer with the same transactional id would abort a decided transaction."""
    world = World(kafka_broker)
    sink = started(world.sink())
    decided = world.handle(0, [0, 1, 2])
    left_open = world.state()
    found: list[Description] = []

    def commit_the_epoch_before() -> None:
        found.append(world.state())
        sink.commit(0, decided)

    prepared = sink.prepare(Epoch(1, 1, {"offsets": 1}, commit_the_epoch_before), rows(1))
    assert found == [left_open]
    assert left_open.is_open
    assert world.values() == [0, 1, 2]
    sink.commit(1, prepared)
    assert world.values() == [0, 1, 2, 10, 11, 12]


def test_a_commit_by_somebody_else_is_found_from_the_handle_alone(kafka_broker: KafkaBroker) -> None:
    """Invariant 12. The configuration now names another topic, which knows nothing of the epoch.

    Its transaction is no longer the last one of its transactional id, so only the records show that it was
    committed. A sink that does not find them would send the rows a second time.
    """
    world = World(kafka_broker)
    started(world.sink())
    handle = world.handle(0, [0, 1, 2])
    world.sink().commit(0, handle)
    world.sink().commit(1, world.handle(1, [10]))

    moved = World(kafka_broker)
    late = started(KafkaSink(NAME, replace(moved.place(), writer=world.writer)))
    late.commit(0, handle)
    assert (world.values(), moved.values()) == ([0, 1, 2, 10], [])
