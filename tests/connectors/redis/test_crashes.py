"""The connector, the runtime and Redis itself are killed, as by kill -9, and a frozen connector wakes up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.redis_server import RedisServer
from headrace.connectors.redis import RedisConnector, chunks, fence
from headrace.errors import Fenced, HeadraceError, Transient
from headrace.testing import FileLog, InProcess, Observed
from tests.connectors.redis.crash_scenario import (
    DOCUMENTS,
    applied,
    assert_delivered,
    assert_exact,
    faulty_connector,
    materialize,
    of_third_commit,
    small_chunks,
)
from tests.connectors.redis.driving import CLIENT
from tests.connectors.redis_endpoint import RedisEndpointUnderTest
from tests.crash.forking import ForkedConnector, ForkedProcess
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes


def in_full(*rows: tuple[str, int]) -> list[object]:
    """Leaves the rows to the full tier."""
    return [pytest.param(*row, marks=pytest.mark.full) for row in rows]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(tmp_path / "recovery.json")


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("sent Opened", 1),
        ("received StartCommit", 3),
        *in_full(("sent Loaded", 2), ("received Store", 17)),
    ],
)
def test_a_connector_killed_before_its_writes(
    redis_url: str, log: FileLog, step: str, occurrence: int
) -> None:
    kill_connector(redis_url, log, step, occurrence)
    assert_exact(redis_url, applied(redis_url, CLIENT))


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [("wrote a chunk", 6), *in_full(("wrote a chunk", 1), ("verified the fence", 4))],
)
def test_a_connector_killed_within_its_writes(
    redis_url: str, log: FileLog, step: str, occurrence: int
) -> None:
    kill_connector(redis_url, log, step, occurrence)
    assert_delivered(redis_url, applied(redis_url, CLIENT))


def test_a_sum_is_doubled_where_the_writes_were_done_and_the_log_did_not_hear_of_it(
    redis_url: str, log: FileLog
) -> None:
    """The price of delivery at least once; docs/connectors/redis.md says so."""
    kill_connector(redis_url, log, "sending StartedCommit", 3)
    view = applied(redis_url, CLIENT)
    assert_delivered(redis_url, view)
    rows = RedisEndpointUnderTest(redis_url).rows(view.bindings[0])
    assert sum(row["_document"]["count"] for row in rows) == len(DOCUMENTS) + 30


def kill_connector(url: str, log: FileLog, step: str, occurrence: int) -> None:
    """Lets a connector die at a step, and another one finish its work."""
    with faulty_connector("kill", step, occurrence) as connector:
        materialization = applied(url, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    materialize(CLIENT, materialization, log)


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("received StartedCommit", 3),
        ("committed to the log", 3),
        *in_full(("sent Store", 17), ("sent StartCommit", 3)),
    ],
)
def test_a_runtime_killed_at_a_step(redis_url: str, tmp_path: Path, step: str, occurrence: int) -> None:
    path = tmp_path / "recovery.json"
    with ForkedConnector("redis") as connector:
        arguments = [redis_url, str(path), connector.address, step, str(occurrence)]
        with ForkedProcess("tests.connectors.redis.faulty_runtime", arguments) as runtime:
            assert runtime.wait() == -9, "the runtime must have died of the fault, not of something else"
        # The same connector process goes on, with the broken stream's remains still in it.
        materialization = applied(redis_url, connector.client)
        materialize(connector.client, materialization, FileLog(path))
    if step in ("sent StartCommit", "received StartedCommit"):
        assert_delivered(redis_url, materialization)
    else:
        assert_exact(redis_url, materialization)


@pytest.fixture(scope="module")
def durable_server() -> Iterator[RedisServer]:
    """What it has answered is on disk."""
    with RedisServer(append_only=True) as server:
        yield server


@pytest.fixture
def durable(durable_server: RedisServer) -> RedisServer:
    with durable_server.client() as client:
        client.flushall()
    return durable_server


@pytest.fixture
def restored_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the test, chunks are again as they were before it."""
    monkeypatch.setattr(chunks, "ROWS_AT_ONCE", chunks.ROWS_AT_ONCE)
    for name in ("write", "verify"):
        monkeypatch.setattr(fence.Fence, name, getattr(fence.Fence, name))


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("sent Opened", 1),
        ("received StartCommit", 3),
        ("wrote a chunk", 6),
        ("sending StartedCommit", 3),
        *in_full(
            ("received Load", 8),
            ("sent Flushed", 3),
            ("wrote a chunk", 1),
            ("verified the fence", 4),
            ("committed to the log", 3),
        ),
    ],
)
def test_redis_killed_at_a_step(
    durable: RedisServer, log: FileLog, restored_chunks: None, step: str, occurrence: int
) -> None:
    left = occurrence

    def kill_redis(happened: str) -> None:
        nonlocal left
        left -= happened == step
        if left == 0 and happened == step:
            durable.kill()

    observer = of_third_commit(kill_redis)
    small_chunks(observer)
    materialization = applied(durable.url, CLIENT)
    with pytest.raises(Transient):
        materialize(InProcess(Observed(RedisConnector(), observer)), materialization, log, observer)
    durable.start()
    materialize(CLIENT, materialization, log)
    if step in ("wrote a chunk", "verified the fence"):
        assert_delivered(durable.url, materialization)
    else:
        # Also where all was written: the log has the transaction, since only the next one fails.
        assert_exact(durable.url, materialization)


@pytest.mark.parametrize(
    ("step", "occurrence", "writes"),
    [
        ("received StartCommit", 3, False),
        ("wrote a chunk", 3, True),
        pytest.param("verified the fence", 2, False, marks=pytest.mark.full),
    ],
)
def test_a_zombie_writes_nothing(
    redis_url: str, log: FileLog, step: str, occurrence: int, writes: bool
) -> None:
    with faulty_connector("stop", step, occurrence) as zombie:
        materialization = applied(redis_url, zombie.client)
        errors: list[HeadraceError] = []

        def run_zombie() -> None:
            try:
                materialize(zombie.client, materialization, log)
            except HeadraceError as error:
                errors.append(error)

        thread = threading.Thread(target=run_zombie)
        thread.start()
        zombie.wait_until_frozen()
        materialize(CLIENT, materialization, log)
        check = assert_delivered if writes else assert_exact
        check(redis_url, materialization)
        zombie.resume()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        (error,) = errors
        assert isinstance(error, Fenced)
        assert "process" in error.taken_by
    check(redis_url, materialization)
