"""A writer of ours that comes back to a server which has forgotten it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.client import Client
from headrace.errors import UnknownProducer
from headrace.ingest.engine import Engine
from headrace.ingest.log import seeded
from headrace.ingest.server import IngestServer
from headrace.model.tiers import Tier
from tests.client.conftest import QUICK
from tests.client.proxy import Proxy
from tests.ingest.support import (
    PRODUCER_SILENCE_SECONDS,
    FakeIceberg,
    LocalSession,
    running_server,
    write_all,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

NOBODY = 1  # a port on which nothing listens


@pytest.fixture
def server(tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch) -> Iterator[IngestServer]:
    monkeypatch.setattr(seeded, "clock", tmp_path / "clock")
    with running_server(tmp_path) as running:
        yield running


@pytest.fixture
def proxy(server: IngestServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    with headrace.connect(f"grpc://127.0.0.1:{proxy.port}") as connected:
        yield connected


def forget(engine: Engine, producer: str) -> None:
    """Sets the clock ahead, and seals segments until the log's state is written down without the producer."""
    wait_until(lambda: not engine.sessions())
    clock = seeded.clock
    assert clock is not None
    ahead = 0

    def is_forgotten() -> bool:
        nonlocal ahead
        ahead += 2  # more each time, since who looks is heard of again
        clock.write_text(f"0 {ahead * PRODUCER_SILENCE_SECONDS}")
        write_all(engine, 0, collection="others", level=Tier.COMMITTED)
        with LocalSession(engine, options={"producer": producer}) as session:
            return session.greeting["last_seq"] is None

    wait_until(is_forgotten)


def test_a_writer_whose_writes_were_acknowledged_goes_on(
    server: IngestServer, proxy: Proxy, client: Client, iceberg: FakeIceberg
) -> None:
    with client.writer("orders", linger=0, reconnect=QUICK) as writer:
        written = [writer.write_durable({"id": n}, "COMMITTED", DEADLINE_SECONDS).lsn for n in range(3)]
        proxy.target = NOBODY
        proxy.cut()
        wait_until(lambda: writer.trouble is not None)  # or it would send on the stream that is broken
        forget(server.engine, writer.producer)
        proxy.target = server.port
        written.append(writer.write_durable({"id": 3}, "COMMITTED", DEADLINE_SECONDS).lsn)
    assert iceberg.lsns["orders"] == written


def test_a_writer_that_was_not_answered_doubles_nothing(
    server: IngestServer,
    proxy: Proxy,
    client: Client,
    iceberg: FakeIceberg,
) -> None:
    writer = client.writer("orders", producer="till", linger=0, reconnect=QUICK)
    writer.write_durable({"id": 1}, "COMMITTED", DEADLINE_SECONDS)
    proxy.mute()
    receipt = writer.write({"id": 2})
    writer.send_now()
    wait_until(lambda: len(iceberg.lsns["orders"]) == 2)
    proxy.target = NOBODY
    proxy.cut()
    wait_until(lambda: not server.engine.sessions())
    forget(server.engine, "till")
    proxy.target = server.port
    with pytest.raises(UnknownProducer, match=r"'till', and 1 of the writes .* 'orders'"):
        writer.flush(Tier.LOCAL_DISK, DEADLINE_SECONDS)
    assert len(iceberg.lsns["orders"]) == 2
    assert isinstance(receipt.error, UnknownProducer)
    writer.close()
    with client.writer("orders", producer="till", reconnect=QUICK) as another:
        another.write_durable({"id": 3}, "COMMITTED", DEADLINE_SECONDS)
    assert len(iceberg.lsns["orders"]) == 3
