"""A connector that was frozen, replaced, and wakes up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.errors import Fenced, HeadraceError
from headrace.testing import ConnectorProcess, FileLog, MemoryLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.scenario import applied, assert_exact, faulty_connector, materialize


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("received Load", 8),
        ("received Store", 17),
        ("received StartCommit", 1),
        ("received StartCommit", 3),
        ("sending StartedCommit", 3),
    ],
)
def test_a_zombie_commits_nothing(
    endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int
) -> None:
    with (
        faulty_connector(endpoint.endpoint_type, "stop", step, occurrence) as zombie,
        ConnectorProcess(endpoint.endpoint_type) as connector,
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
        thread.join(60)
        assert not thread.is_alive()
        (error,) = errors
        assert isinstance(error, Fenced)
        assert "process" in error.taken_by
        assert "00000000-ffffffff" in str(error)
    assert_exact(endpoint, materialization)
