"""A decided epoch whose transaction brokers have aborted is sent again, and counts once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from devtools.kafka_broker import KafkaBroker
from headrace.errors import EndpointError, HeadraceError, Transient
from headrace.model.checkpoints import JsonObject
from headrace.sinks import kafka, kafka_checkpoints, kafka_resend
from headrace.sinks.kafka_task import prepare_shard
from tests.sinks.kafka_world import World, batch_of, handle_of
from tests.sinks.together import run_together
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    world = World(kafka_broker, partitions=3)
    world.sink().start(None, None, 1)
    return world


def lose(world: World, shard: int = 0) -> None:
    """What a broker does after transaction.timeout.ms, and a late task of who was replaced."""
    with world.transactions() as transactions:
        transactions.take_over(world.id(shard), 60_000)


def test_it_is_sent_again_with_keys_headers_and_partitions(world: World) -> None:
    handle = world.handle(0, range(100))
    world.handle(0, [7, 8, 9])  # the same id, by a task that comes late: it aborts the first
    assert world.values() == []
    for _ in range(2):
        world.sink().commit(0, handle)
        assert world.values() == list(range(100))
    ranges = handle["transactions"][0]["ranges"][world.topic]
    found = {str(message.partition()) for message in world.messages()}
    assert found == set(ranges)
    assert {dict(message.headers() or ())["headrace.epoch"] for message in world.messages()} == {b"0"}
    assert world.sink().committed() == {"offsets": 0}


class ImpatientBroker(KafkaBroker):
    def _properties(self, home: Path) -> dict[str, str]:
        every = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        return {**super()._properties(home), every: "200"}


@pytest.mark.full
@pytest.mark.processes
def test_one_that_was_open_for_too_long_is_sent_again() -> None:
    """Relies on the broker's own clock; `lose` does the same without waiting for it."""
    with ImpatientBroker() as broker:
        world = World(broker)
        short = {"transaction__timeout__ms": "8000", "recovery_time": "8s"}
        world.sink(**short).start(None, None, 1)
        handles: list[JsonObject] = []

        def prepare() -> bool:
            with suppress(HeadraceError):  # if preparing takes long enough, the broker aborts it
                handles.append(world.handle(0, range(20), fence=1, **short))
            return bool(handles)

        wait_until(prepare, "an epoch prepared before its transaction is aborted")
        wait_until(lambda: not world.state().is_open, "a broker that aborts the transaction")
        assert (world.state().state, world.values()) == ("CompleteAbort", [])
        for _ in range(2):
            world.sink().commit(0, handles[0])
            assert world.values() == list(range(20))


def test_only_the_shard_that_was_lost_is_sent_again(world: World) -> None:
    handle = world.handle(0, range(10), shards="2")
    lose(world, 1)
    for _ in range(2):
        world.sink().commit(0, handle)
        assert world.values() == list(range(10))


def test_it_is_not_sent_again_once_later_epochs_are_there(world: World) -> None:
    first = world.handle(0, [1])
    lose(world)
    world.sink().commit(0, first)
    second = world.handle(1, [2])
    world.sink().commit(0, first)
    assert world.state().state == "Ongoing"  # and does not disturb what is being prepared
    world.sink().commit(1, second)
    world.sink().commit(0, first)
    assert world.values() == [1, 2]


def test_two_who_send_it_again_at_once(world: World) -> None:
    handle = world.handle(0, range(50))
    lose(world)
    failed: list[HeadraceError] = []

    def commit() -> None:
        while True:
            try:
                world.sink().commit(0, handle)
            except HeadraceError as error:
                failed.append(error)
            else:
                return

    run_together([commit] * 2)
    assert world.values() == list(range(50))
    assert all(isinstance(error, Transient) for error in failed)


def test_one_that_looks_and_is_overtaken_before_it_sends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = world.handle(0, range(50))
    lose(world)
    look = kafka_resend.is_committed

    def look_slowly(*arguments: Any) -> bool:
        found = look(*arguments)
        monkeypatch.setattr(kafka, "is_committed", look)
        world.sink().commit(0, handle)  # somebody who is faster
        return found

    monkeypatch.setattr(kafka, "is_committed", look_slowly)
    world.sink().commit(0, handle)
    assert world.values() == list(range(50))


def test_only_its_own_messages_are_sent_again(world: World) -> None:
    others = World(world.broker)
    others.topic, others.checkpoints = world.topic, world.checkpoints

    def batches() -> Iterator[object]:
        yield batch_of(range(30))
        others.sink().commit(0, others.handle(0, range(100, 130)))
        yield batch_of(range(30, 60))

    shipment = world.shipment(0)
    prepared = prepare_shard(shipment, 0, batches())
    assert prepared is not None
    lose(world)
    world.sink().commit(0, handle_of(shipment, [prepared.to_json()]))
    assert world.values() == [*range(60), *range(100, 130)]


def test_one_that_died_while_sending_again(world: World) -> None:
    handle = world.handle(0, range(50))
    lose(world)
    shipment = world.shipment(0)
    prepare_shard(shipment, 0, [batch_of(range(20))])  # what it had sent, and left open
    world.sink().commit(0, handle)
    assert world.values() == list(range(50))


def test_what_readers_see_only_later_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of somebody else, open since before, hides from readers that ours is committed."""
    others = World(world.broker)
    others.checkpoints = world.checkpoints
    theirs = others.handle(0, [1])
    handle = world.handle(0, [5])
    world.sink().commit(0, handle)
    lose(world)  # so that the broker does not know the transaction any more
    monkeypatch.setattr(kafka_checkpoints, "_OTHERS_SECONDS", 0.0)
    with pytest.raises(Transient, match="has a transaction that has been open"):
        world.sink().commit(0, handle)
    others.sink().commit(0, theirs)
    world.sink().commit(0, handle)
    assert world.values() == [5]


def test_messages_that_are_gone_are_said_and_nothing_is_committed(world: World) -> None:
    handle = world.handle(0, range(30))
    lose(world)
    ranges = handle["transactions"][0]["ranges"][world.topic]
    partition, (_, last) = next(iter(ranges.items()))
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    cut = TopicPartition(world.topic, int(partition), last)
    for future in admin.delete_records([cut]).values():
        future.result(DEADLINE_SECONDS)
    with pytest.raises(
        EndpointError, match=r"of its 30 messages topic '.*' still has \d+, so it cannot be sent"
    ):
        world.sink().commit(0, handle)
    assert world.values() == []


def test_a_topic_that_was_made_anew_is_said(world: World) -> None:
    handle = world.handle(0, range(30))
    lose(world)
    gone = {**handle, "checkpoints": f"{world.checkpoints}-2"}
    world.broker.create_topic(f"{world.checkpoints}-2")
    raw = handle["transactions"][0]
    ranges = {world.topic: raw["ranges"][world.topic], f"{world.checkpoints}-2": {"0": [5, 5]}}
    with pytest.raises(EndpointError, match="it was made anew"):
        world.sink().commit(0, {**gone, "transactions": [{**raw, "ranges": ranges}]})


def test_an_epoch_that_another_pipeline_committed_is_said(world: World) -> None:
    lost = world.handle(0, [1])
    other = world.handle(0, [2])
    world.sink().commit(0, other)
    with pytest.raises(EndpointError, match="has committed epoch 0 with other rows than were decided here"):
        world.sink().commit(0, lost)
    assert world.values() == [2]
