"""A server for the tests of one module, and a check that none of them has harmed it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.ingest_process.serving import Serving, read_back, rows, write_all
from tests.waiting import DEADLINE_SECONDS, wait_until

# gRPC and Arrow keep a few threads for later.
SPARE_THREADS = 24
MOST_GROWTH = 300 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Commits only when it is told to, so that a test knows what a commit has in it."""
    settings = {"ingest": {"commit_interval": "1h"}}
    with Serving(tmp_path_factory.mktemp("server") / "data", config=settings) as serving:
        yield serving


@pytest.fixture(scope="module")
def baseline(server: Serving) -> tuple[int, int]:
    """Memory and threads after a first write, read and commit."""
    with server.client() as client:
        write_all(client, "warm_up", [rows(1)])
        server.action("flush", timeout=DEADLINE_SECONDS)
        read_back(client, "warm_up")
    return server.rss, server.seen.num_threads()


@pytest.fixture(scope="module")
def proven(server: Serving, baseline: tuple[int, int]) -> Iterator[Serving]:
    """Yields the server; after the module it must serve others exactly, commit, and hold no resources."""
    rss, threads = baseline
    yield server
    assert server.is_running, server.output()[-3000:]
    with server.client() as client:
        lsns = write_all(client, "after", [rows(7), rows(8, 2, "ü")])
        expected = pa.table(
            {
                "id": [7, 8, 9],
                "text": ["", "ü", "ü"],
                "_lsn": [lsns[0], lsns[1], lsns[1]],
                "_row": pa.array([0, 0, 1], pa.int32()),
            }
        )
        assert read_back(client, "after").to_pydict() == expected.to_pydict()
    wait_until(lambda: server.seen.num_threads() <= threads + SPARE_THREADS, "the end of all threads")
    wait_until(lambda: server.rss - rss < MOST_GROWTH, "the return of memory")
    # Whatever got in can be committed, and no other collection is held up.
    server.action("flush", timeout=DEADLINE_SECONDS)
    assert server.action("health")["problems"] == []


@pytest.fixture
def unharmed(proven: Serving) -> Iterator[Serving]:
    """Yields the server; after the test it must be the same process, without sessions of the test."""
    yield proven
    assert proven.is_running, proven.output()[-3000:]
    wait_until(lambda: not proven.sessions(), "the end of all sessions")
