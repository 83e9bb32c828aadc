"""Whose a topic is: a record in the topic of checkpoints says it, under the topic's id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devtools.kafka_broker import KafkaBroker
from headrace.errors import CheckpointConflict, EndpointError, EndpointUnavailable
from headrace.kafka.admin import end_offsets, find_topic
from headrace.kafka.transactions import Identity
from headrace.model.ownership import Target
from headrace.sinks import kafka, kafka_checkpoints, kafka_ownership
from headrace.sinks.contract import Place
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_checkpoints import Checkpoints
from tests.sinks.kafka_world import NAME, World
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    return World(kafka_broker)


def place_of(world: World, writer: str = "", *key: str) -> Place:
    return replace(world.place(), writer=writer or world.writer, key=key or ("k",))


def claim(world: World, place: Place | None = None, lineage: str = "a", *, adopts: bool = False) -> None:
    """As a sink does that has started, of which only the topic of checkpoints matters here."""
    place = place or place_of(world)
    Checkpoints(world.options().client, world.checkpoints, world.options().prefix).make()
    KafkaSink(NAME, place).claim(place.owner(lineage), adopts=adopts)


def inspect(world: World) -> Target:
    return KafkaSink(NAME, place_of(world)).inspect()


def topics(world: World) -> set[str]:
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    return set(admin.list_topics(timeout=DEADLINE_SECONDS).topics)


def test_a_topic_says_whose_it_is(world: World) -> None:
    sink = KafkaSink(NAME, place_of(world))
    sink.start(None, None, 1)
    mine = place_of(world).owner("a")
    sink.claim(mine)
    assert inspect(world) == Target(True, False, mine)
    sink.commit(0, world.handle(0, [1, 2]))
    before = end_offsets(world.options().client, world.checkpoints)
    assert inspect(world) == Target(True, True, mine)
    assert world.sink().committed() == {"offsets": 0}
    assert end_offsets(world.options().client, world.checkpoints) == before  # no fence, nor anything else
    claim(world, lineage="b")
    assert inspect(world).owner == replace(mine, lineage="b")


def test_to_look_at_what_is_not_there_makes_nothing(world: World) -> None:
    sink = KafkaSink(NAME, replace(place_of(world), location=f"{world.topic}-new"))
    assert (sink.inspect(), sink.committed()) == (Target(False), None)
    assert inspect(world) == Target(True, False, None)  # there is no topic of checkpoints either
    assert topics(world) & {f"{world.topic}-new", world.checkpoints} == set()
    with pytest.raises(EndpointUnavailable, match="is not there yet"):
        sink.claim(place_of(world).owner("a"))


def test_another_materialization_or_key_is_refused_unless_a_person_adopts_it(world: World) -> None:
    claim(world)
    other, other_key = place_of(world, "other"), place_of(world, "", "k", "r")
    with pytest.raises(EndpointError, match=rf"{world.topic}' is written by materialization .* --adopt"):
        claim(world, other)
    with pytest.raises(EndpointError, match=r"has the key \(k\), and would get \(k, r\): .* --adopt"):
        claim(world, other_key)
    assert inspect(world).owner == place_of(world).owner("a")
    claim(world, other, adopts=True)
    assert inspect(world).owner == other.owner("a")
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        claim(world)


def test_a_topic_of_the_version_before_gets_a_mark_and_one_made_anew_has_none(
    world: World, kafka_broker: KafkaBroker
) -> None:
    sink = world.sink()
    sink.start(None, None, 1)
    sink.commit(0, world.handle(0, [1, 2]))
    assert inspect(world) == Target(True, True, None)
    claim(world)
    assert inspect(world).owner == place_of(world).owner("a")
    kafka_broker.delete_topic(world.topic)
    assert inspect(world) == Target(False)
    kafka_broker.create_topic(world.topic)
    assert inspect(world) == Target(True, False, None)


@pytest.mark.full
def test_brokers_without_ids_know_a_topic_by_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_id(*of: Any) -> Any:
        found = find_topic(*of)
        return found and replace(found, id="")

    claim(world)
    monkeypatch.setattr(kafka, "find_topic", without_id)
    assert inspect(world).owner is None
    claim(world, place_of(world, "other"))
    assert inspect(world).owner == place_of(world, "other").owner("a")
    monkeypatch.undo()
    assert inspect(world).owner == place_of(world).owner("a")


@pytest.mark.full
def test_who_claims_a_topic_at_the_same_time_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kafka_ownership._write

    def late(*of: Any) -> None:
        monkeypatch.setattr(kafka_ownership, "_write", real)
        claim(world)
        real(*of)

    monkeypatch.setattr(kafka_ownership, "_write", late)
    with pytest.raises(EndpointError, match=f"is written by materialization '{world.writer}'"):
        claim(world, place_of(world, "other"))
    assert inspect(world).owner == place_of(world).owner("a")


@pytest.mark.full
def test_a_topic_whose_rows_carry_their_owner_is_nobodys(world: World) -> None:
    for writer in ("one", "other"):
        shared = replace(place_of(world, writer), owned="writer")
        claim(world, shared)
        assert KafkaSink(NAME, shared).inspect() == Target(True, False, None)
    assert inspect(world).owner is None


@pytest.mark.full
def test_a_mark_that_cannot_be_read_is_named_and_removed_by_hand(world: World) -> None:
    claim(world)
    topic = find_topic(world.options().client, world.topic)
    assert topic is not None
    key = f"headrace-target/{world.topic}/{topic.id}"
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    producer.produce(world.checkpoints, b"nonsense", key)
    producer.flush(DEADLINE_SECONDS)
    with pytest.raises(
        EndpointError,
        match=rf"under the key '{key}' .* has b'nonsense', .* once nobody else writes there, send a record",
    ):
        inspect(world)
    producer.produce(world.checkpoints, None, key)
    producer.flush(DEADLINE_SECONDS)
    assert inspect(world).owner is None


def test_what_was_committed_is_known_before_a_start_ends_what_hides_it(
    world: World, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has died that had committed an epoch to one topic, and not yet to another."""
    other = World(kafka_broker)
    other.checkpoints = world.checkpoints
    for each in (world, other):
        each.sink().start(None, None, 1)
    other.handle(0, [5])
    monkeypatch.setattr(kafka_checkpoints, "_OTHERS_SECONDS", 0)
    for epoch in range(2):
        world.sink().commit(epoch, world.handle(epoch, [epoch]))
        assert world.sink().committed() == {"offsets": epoch}
    assert other.sink().committed() is None


def test_an_epoch_that_some_shards_have_was_decided(world: World) -> None:
    world.sink(shards="2").start(None, None, 1)
    handle = world.handle(0, [1, 2], shards="2")
    first = handle["transactions"][0]
    with world.transactions() as transactions:
        identity = Identity(first["transactional_id"], first["producer_id"], first["producer_epoch"])
        assert transactions.end(identity, commit=True)
    sink = world.sink(shards="2")
    assert sink.committed() == {"offsets": 0}
    sink.start(None, None, 2)  # the recovery log knows of nothing
    with pytest.raises(CheckpointConflict, match="have a part of epoch 0, and only the recovery log knows"):
        sink.committed()
