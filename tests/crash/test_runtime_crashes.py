"""The runtime's process is killed, as by kill -9, at each of its steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.testing import FileLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.forking import ForkedConnector, ForkedProcess
from tests.crash.scenario import applied, assert_exact, materialize

pytestmark = pytest.mark.processes

DECISIVE = [
    ("received Opened", 1),
    ("sent StartCommit", 3),
    ("received StartedCommit", 3),
    ("committed to the log", 3),
]
OTHERS = [
    ("sent Open", 1),
    ("sent Acknowledge", 3),
    ("received Acknowledged", 3),
    ("sent Load", 8),
    ("sent Flush", 3),
    ("received Loaded", 2),
    ("received Flushed", 3),
    ("sent Store", 17),
    ("sent StartCommit", 1),
    ("received StartedCommit", 1),
]


@pytest.mark.parametrize(
    ("step", "occurrence"), [*DECISIVE, *(pytest.param(*step, marks=pytest.mark.full) for step in OTHERS)]
)
def test_killed_at_a_step(endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int) -> None:
    told = tmp_path / "endpoint.json"
    told.write_text(json.dumps({"endpoint_type": endpoint.endpoint_type, "config": endpoint.config}))
    with ForkedConnector(endpoint.endpoint_type) as connector:
        arguments = [str(told), connector.address, step, str(occurrence)]
        with ForkedProcess("tests.crash.faulty_runtime", arguments) as runtime:
            assert runtime.wait() == -9, "the runtime must have died of the fault, not of something else"
        # The same connector process goes on, with the broken stream's remains still in it.
        materialization = applied(endpoint, connector.client)
        materialize(connector.client, materialization, FileLog(tmp_path / "recovery.json"))
    assert_exact(endpoint, materialization)
