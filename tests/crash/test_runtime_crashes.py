"""The runtime's process is killed, as by kill -9, at each of its steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing import ConnectorProcess, FileLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.scenario import applied, assert_exact, materialize

STEPS = [
    ("sent Open", 1),
    ("received Opened", 1),
    ("sent Acknowledge", 3),
    ("received Acknowledged", 3),
    ("sent Load", 8),
    ("sent Flush", 3),
    ("received Loaded", 2),
    ("received Flushed", 3),
    ("sent Store", 17),
    ("sent StartCommit", 1),
    ("sent StartCommit", 3),
    ("received StartedCommit", 1),
    ("received StartedCommit", 3),
    ("committed to the log", 3),
]


@pytest.mark.parametrize(("step", "occurrence"), STEPS)
def test_killed_at_a_step(endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int) -> None:
    told = tmp_path / "endpoint.json"
    told.write_text(json.dumps({"endpoint_type": endpoint.endpoint_type, "config": endpoint.config}))
    with ConnectorProcess(endpoint.endpoint_type) as connector:
        died = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.crash.faulty_runtime",
                told,
                connector.address,
                step,
                str(occurrence),
            ],
            check=False,
        )
        assert died.returncode == -9, "the runtime must have died of the fault, not of something else"
        # The same connector process goes on, with the broken stream's remains still in it.
        materialization = applied(endpoint, connector.client)
        materialize(connector.client, materialization, FileLog(tmp_path / "recovery.json"))
    assert_exact(endpoint, materialization)
