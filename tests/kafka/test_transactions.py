"""Transactions that another process began are finished by name, and by nobody who means another one."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from devtools.kafka_broker import KafkaBroker
from headrace.errors import ConfigError, EndpointUnavailable, Fenced
from headrace.kafka.security import Security
from headrace.kafka.transactions import Identity, Transactions
from headrace.sinks.kafka_producer import Transaction
from headrace.sinks.kafka_task import prepare_shard
from tests.sinks.kafka_world import World, batch_of


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    world = World(kafka_broker)
    world.sink().start(None, None, 1)
    return world


def identity_of(handle: object) -> Identity:
    assert isinstance(handle, dict)
    (raw,) = handle["transactions"]
    return Identity(raw["transactional_id"], raw["producer_id"], raw["producer_epoch"])


def test_a_commit_is_known_when_it_is_repeated_and_then_is_no_abort(world: World) -> None:
    ours = identity_of(world.handle(0, [1, 2]))
    with world.transactions() as transactions:
        assert transactions.end(ours, commit=True)
        assert transactions.end(ours, commit=True)
        assert not transactions.end(ours, commit=False)
    assert (world.state().state, world.values()) == ("CompleteCommit", [1, 2])


def test_an_abort_is_known_when_it_is_repeated_and_then_is_no_commit(world: World) -> None:
    ours = identity_of(world.handle(0, [1, 2]))
    with world.transactions() as transactions:
        assert transactions.end(ours, commit=False)
        assert transactions.end(ours, commit=False)
        assert not transactions.end(ours, commit=True)
    assert (world.state().state, world.values()) == ("CompleteAbort", [])


def test_each_producer_has_an_epoch_of_its_own_so_no_end_hits_another_one(world: World) -> None:
    first = identity_of(world.handle(0, [1]))
    with world.transactions() as transactions:
        assert transactions.end(first, commit=True)
        second = identity_of(world.handle(1, [2]))
        assert second.producer_epoch > first.producer_epoch
        assert not transactions.end(first, commit=True)
        assert not transactions.end(first, commit=False)
        assert world.state().identity == second
        assert (world.state().state, world.values()) == ("Ongoing", [1])


def test_who_is_taken_over_cannot_go_on(world: World) -> None:
    def batches() -> Iterator[object]:
        yield batch_of([1])
        with world.transactions() as transactions:
            transactions.take_over(world.id(), 60_000)
        yield batch_of([2])

    with pytest.raises(Fenced):
        prepare_shard(world.shipment(0), 0, batches())
    assert (world.state().is_open, world.values()) == (False, [])


def test_a_description_tells_what_is_open_and_where(world: World) -> None:
    world.handle(0, [1])
    found = world.state()
    assert found.is_open
    assert found.timeout_ms == 900_000
    assert found.topics == {world.topic: (0,), world.checkpoints: (0,)}
    with world.transactions() as transactions:
        assert transactions.describe("never used") is None


def test_ids_are_found_by_how_they_begin(world: World) -> None:
    world.handle(0, [1])
    with world.transactions() as transactions:
        assert transactions.list(world.options().prefix) == [world.id()]
        assert transactions.list("nobody's") == []


def test_a_timeout_that_brokers_do_not_allow(world: World) -> None:
    with world.transactions() as transactions, pytest.raises(ConfigError, match="and the brokers allow less"):
        transactions.take_over(world.id(), 3_600_000)
    with pytest.raises(ConfigError, match="and the brokers allow less"):
        prepare_shard(world.shipment(0, transaction__timeout__ms="3600000"), 0, [batch_of([1])])


class Deaf:
    """A producer that never hears of its id."""

    def init_transactions(self, seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing came in {seconds} s"))


def test_a_producer_that_hears_nothing_is_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sink().start(None, None, 1)
    made: list[Any] = []
    make = Transaction._new_producer

    def new_producer(transaction: Transaction) -> Any:
        made.append(Deaf() if len(made) < deaf else make(transaction))
        return made[-1]

    monkeypatch.setattr(Transaction, "_new_producer", new_producer)
    deaf = 2
    world.sink().commit(0, world.handle(0, [1, 2]))
    assert (len(made), world.values()) == (3, [1, 2])
    made.clear()
    deaf = 3
    with pytest.raises(EndpointUnavailable, match="nothing came in 30"):
        world.handle(1, [3])
    assert len(made) == 3


def test_a_connection_that_broke_is_made_anew(world: World) -> None:
    ours = identity_of(world.handle(0, [1, 2]))
    with world.transactions() as transactions:
        assert transactions.describe(world.id()) is not None
        for connection in transactions._connections.values():
            connection.close()
        assert transactions.end(ours, commit=True)
    assert world.values() == [1, 2]


@pytest.mark.full
@pytest.mark.processes
def test_a_broker_that_is_down_and_comes_back() -> None:
    with KafkaBroker() as broker:
        world = World(broker)
        world.sink().start(None, None, 1)
        ours = identity_of(world.handle(0, [1, 2]))
        with world.transactions() as transactions:
            assert transactions.describe(world.id()) is not None
            broker.stop()
            broker.start()
            assert transactions.end(ours, commit=True)
        assert world.values() == [1, 2]


def test_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.kafka.transactions._PATIENCE_SECONDS", 0.0)
    with (
        Transactions("127.0.0.1:1", Security()) as transactions,
        pytest.raises(EndpointUnavailable, match=r"127\.0\.0\.1:1 cannot be reached: Connection refused"),
    ):
        transactions.describe("x")
    with Transactions("nonsense", Security()) as transactions, pytest.raises(ConfigError, match="HOST:PORT"):
        transactions.describe("x")


@contextmanager
def somebody_who_answers(raw: bytes) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(raw)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as a Kafka broker does"),
        (struct.pack(">ii", 100, 1), "it closed the connection"),
    ],
)
def test_somebody_who_is_no_broker(raw: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.kafka.transactions._PATIENCE_SECONDS", 0.0)
    with (
        somebody_who_answers(raw) as address,
        Transactions(address, Security()) as transactions,
        pytest.raises(EndpointUnavailable, match=said),
    ):
        transactions.describe("x")
