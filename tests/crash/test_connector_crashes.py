"""The connector's process is killed, as by kill -9, after each message and each statement of a commit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import Transient
from headrace.testing import FileLog
from headrace.testing.conformance import EndpointUnderTest
from tests.crash.forking import ForkedConnector
from tests.crash.scenario import applied, assert_exact, faulty_connector, materialize

pytestmark = pytest.mark.processes

# Statements of the third commit: BEGIN, the update of the view, clearing its staging table, the insert,
# clearing, the insert into the deltas, clearing, the checkpoint, COMMIT.
CHECKPOINT, COMMIT = ("statement of commit 3", 8), ("statement of commit 3", 9)
DECISIVE = [
    ("sent Opened", 1),
    ("received StartCommit", 3),
    CHECKPOINT,
    COMMIT,
    ("sent StartedCommit", 3),
]
OTHERS = [
    ("received Open", 1),
    ("sending Opened", 1),
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
    ("sending StartedCommit", 1),
    ("sending StartedCommit", 3),
    *(("statement of commit 3", statement) for statement in range(1, 8)),
]
KILLS = 12


@pytest.mark.parametrize(
    ("step", "occurrence"), [*DECISIVE, *(pytest.param(*step, marks=pytest.mark.full) for step in OTHERS)]
)
def test_killed_at_a_message(endpoint: EndpointUnderTest, tmp_path: Path, step: str, occurrence: int) -> None:
    log = FileLog(tmp_path / "recovery.json")
    with faulty_connector(endpoint.endpoint_type, "kill", step, occurrence) as connector:
        materialization = applied(endpoint, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    with ForkedConnector(endpoint.endpoint_type) as connector:
        materialize(connector.client, materialization, log)
    assert_exact(endpoint, materialization)


@pytest.mark.full
def test_killed_again_and_again_at_any_moment(endpoint: EndpointUnderTest, tmp_path: Path) -> None:
    """Kills that no message marks: in the middle of a statement, or of the endpoint's own commit."""
    draw = random.Random(5)
    log = FileLog(tmp_path / "recovery.json")
    with ForkedConnector(endpoint.endpoint_type) as connector:
        materialization = applied(endpoint, connector.client)
    kills = 0
    while True:
        with ForkedConnector(endpoint.endpoint_type) as connector:
            step = draw.choice(["sent Flush", "sent Store", "sent StartCommit", "sent StartCommit"])
            killing = kill_after(connector, step, draw.randint(1, 2), draw.uniform(0.0, 0.01))
            try:
                materialize(connector.client, materialization, log, killing if kills < KILLS else ignore)
                break
            except Transient:
                kills += 1
    assert kills > 0, "the first one has more than two of each step before it"
    assert_exact(endpoint, materialization)


def kill_after(
    connector: ForkedConnector, step: str, occurrence: int, seconds: float
) -> Callable[[str], None]:
    """Kills the connector some time after a step of the runtime."""
    left = occurrence

    def observe(happened: str) -> None:
        nonlocal left
        left -= happened == step
        if left == 0 and happened == step:
            time.sleep(seconds)
            connector.kill()

    return observe


def ignore(_: str) -> None:
    pass
