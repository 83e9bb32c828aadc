"""Kills, as by kill -9, of the connector and of the runtime."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from headrace.errors import Transient
from tests.connectors.webhook.crash_scenario import applied, assert_each_once_and_in_order, materialize
from tests.connectors.webhook_endpoint import Behaviour, Handler, Received, Receiver, answers
from tests.crash.forking import ForkedConnector, ForkedProcess

pytestmark = pytest.mark.processes

FAULTY_CONNECTOR = "tests.connectors.webhook.faulty_connector"
FAULTY_RUNTIME = "tests.connectors.webhook.faulty_runtime"
IN_THE_THIRD = 23
"""A request in the middle of the third transaction; each has nine or ten."""


@pytest.mark.parametrize(
    ("step", "occurrence", "repeats"),
    [
        ("received StartCommit", 3, False),
        ("posted", IN_THE_THIRD, True),
        ("sending StartedCommit", 3, True),
        pytest.param("received Store", 1, False, marks=pytest.mark.full),
        pytest.param("received Store", 17, False, marks=pytest.mark.full),
        pytest.param("posting", 1, False, marks=pytest.mark.full),
        pytest.param("posted", 1, True, marks=pytest.mark.full),
        pytest.param("posting", IN_THE_THIRD, True, marks=pytest.mark.full),
        pytest.param("sending StartedCommit", 1, True, marks=pytest.mark.full),
    ],
)
def test_the_connector_is_killed(
    receiver: Receiver, tmp_path: Path, step: str, occurrence: int, repeats: bool
) -> None:
    log = tmp_path / "recovery.json"
    with ForkedConnector("webhook", FAULTY_CONNECTOR, [step, str(occurrence)]) as connector:
        materialization = applied(receiver.address, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    with ForkedConnector("webhook") as connector:
        materialize(connector.client, materialization, log)
    assert_each_once_and_in_order(receiver)
    assert (len(receiver.keys) > len(set(receiver.keys))) == repeats


def test_the_connector_is_killed_while_the_receiver_has_its_request(
    receiver: Receiver, tmp_path: Path
) -> None:
    log = tmp_path / "recovery.json"

    def takes_and_kills(handler: Handler, received: Received) -> None:
        os.kill(connector.pid, signal.SIGKILL)

    receiver.script.extend([*[answers(200)] * (IN_THE_THIRD - 1), takes_and_kills])
    with ForkedConnector("webhook") as connector:
        materialization = applied(receiver.address, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
    with ForkedConnector("webhook") as connector:
        materialize(connector.client, materialization, log)
    assert_each_once_and_in_order(receiver)
    assert len(receiver.keys) > len(set(receiver.keys))


@pytest.mark.full
def test_the_connector_is_killed_at_any_moment(receiver: Receiver, tmp_path: Path) -> None:
    """Kills it while it sends, after different parts of the work."""
    draw = random.Random(5)
    log = tmp_path / "recovery.json"
    for _ in range(3):
        with ForkedConnector("webhook") as connector:
            materialization = applied(receiver.address, connector.client)
            killing = kill_soon(connector.pid, draw.uniform(0.0, 0.01))
            receiver.script.extend([*[answers(200)] * draw.randint(0, 8), killing])
            with pytest.raises(Transient):
                materialize(connector.client, materialization, log)
        receiver.script.clear()
    with ForkedConnector("webhook") as connector:
        materialize(connector.client, materialization, log)
    assert_each_once_and_in_order(receiver)


def kill_soon(pid: int, seconds: float) -> Behaviour:
    """Answers, and kills the connector some time later, whatever it is doing then."""

    def behave(handler: Handler, received: Received) -> None:
        handler.answer(200)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)

    return behave


@pytest.mark.parametrize(
    ("step", "occurrence", "repeats"),
    [
        ("received StartedCommit", 3, True),
        ("committed to the log", 3, False),
        pytest.param("sent Flush", 3, False, marks=pytest.mark.full),
        pytest.param("sent Store", 17, False, marks=pytest.mark.full),
        pytest.param("sent StartCommit", 3, True, marks=pytest.mark.full),
        pytest.param("received StartedCommit", 1, True, marks=pytest.mark.full),
    ],
)
def test_the_runtime_is_killed(
    receiver: Receiver, tmp_path: Path, step: str, occurrence: int, repeats: bool
) -> None:
    log = tmp_path / "recovery.json"
    with ForkedConnector("webhook") as connector:
        arguments = [receiver.address, connector.address, str(log), step, str(occurrence)]
        with ForkedProcess(FAULTY_RUNTIME, arguments) as runtime:
            assert runtime.wait() == -9, "the runtime must have died of the fault, not of something else"
        # The same connector process goes on, and may still be sending what the dead one has committed.
        materialize(connector.client, applied(receiver.address, connector.client), log)
    assert_each_once_and_in_order(receiver)
    if step != "sent StartCommit":  # which the connector may not have got
        assert (len(receiver.keys) > len(set(receiver.keys))) == repeats
