"""A connector that was frozen, replaced, and wakes up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.errors import Fenced, HeadraceError
from headrace.testing import FileLog, MemoryLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.forking import ForkedConnector
from tests.crash.scenario import applied, assert_exact, faulty_connector, materialize
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("received StartCommit", 3),
        ("sending StartedCommit", 3),
        pytest.param("received Load", 8, marks=pytest.mark.full),
        pytest.param("received Store", 17, marks=pytest.mark.full),
        pytest.param("received StartCommit", 1, marks=pytest.mark.full),
    ],
)
def test_a_zombie_commits_nothing(
    endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int
) -> None:
    with (
        faulty_connector(endpoint.endpoint_type, "stop", step, occurrence) as zombie,
        ForkedConnector(endpoint.endpoint_type) as connector,
    ):
        connector.client.wait_until_ready()  # who is frozen for too long is taken for gone
        materialization = applied(endpoint, zombie.client)
        errors: list[HeadraceError] = []

        def run_zombie() -> None:
            try:
                materialize(zombie.client, materialization, MemoryLog())
            except HeadraceError as error:
                errors.append(error)

        thread = threading.Thread(target=run_zombie)
        thread.start()
        zombie.wait_until_frozen()
        materialize(connector.client, materialization, FileLog(tmp_path / "recovery.json"))
        assert_exact(endpoint, materialization)
        zombie.resume()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        (error,) = errors
        assert isinstance(error, Fenced)
        assert "process" in error.taken_by
        assert "00000000-ffffffff" in str(error)
    assert_exact(endpoint, materialization)
