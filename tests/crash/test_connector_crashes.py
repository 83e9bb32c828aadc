"""The connector's process is killed, as by kill -9, after each message and each statement of a commit."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from headrace.errors import Transient
from headrace.testing import ConnectorProcess, FileLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.scenario import applied, assert_exact, faulty_connector, materialize

STEPS = [
    ("received Open", 1),
    ("sending Opened", 1),
    ("sent Opened", 1),
    ("received Acknowledge", 3),
    ("sending Acknowledged", 3),
    ("sent Acknowledged", 3),
    ("received Load", 8),
    ("received Flush", 3),
    ("sending Loaded", 2),
    ("sent Loaded", 2),
    ("sending Flushed", 3),
    ("sent Flushed", 3),
    ("received Store", 1),
    ("received Store", 17),
    ("received StartCommit", 1),
    ("received StartCommit", 3),
    ("sending StartedCommit", 1),
    ("sending StartedCommit", 3),
    ("sent StartedCommit", 3),
    # BEGIN, the update of the view, clearing what was staged for it, the insert, clearing, the insert into
    # the deltas, clearing, the checkpoint, COMMIT.
    *(("statement of commit 3", statement) for statement in range(1, 10)),
]


@pytest.mark.parametrize(("step", "occurrence"), STEPS)
def test_killed_at_a_message(endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int) -> None:
    log = FileLog(tmp_path / "recovery.json")
    with faulty_connector(endpoint.endpoint_type, "kill", step, occurrence) as connector:
        materialization = applied(endpoint, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    with ConnectorProcess(endpoint.endpoint_type) as connector:
        materialize(connector.client, materialization, log)
    assert_exact(endpoint, materialization)


def test_killed_again_and_again_at_any_moment(endpoint: EndpointUnderTest, tmp_path: Path) -> None:
    """Kills that no message marks: in the middle of a statement, or of the endpoint's own commit."""
    draw = random.Random(5)
    log = FileLog(tmp_path / "recovery.json")
    with ConnectorProcess(endpoint.endpoint_type) as connector:
        materialization = applied(endpoint, connector.client)
    kills = 0
    while True:
        with ConnectorProcess(endpoint.endpoint_type) as connector:
            connector.client.wait_until_ready()
            timer = threading.Timer(draw.uniform(0.0, 0.15 if kills else 0.01), connector.kill)
            if kills < 12:
                timer.start()
            try:
                materialize(connector.client, materialization, log)
                break
            except Transient:
                kills += 1
            finally:
                timer.cancel()
    assert kills > 0
    assert_exact(endpoint, materialization)
