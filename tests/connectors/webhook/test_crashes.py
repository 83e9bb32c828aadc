"""Kills, as by kill -9, of the connector and of the runtime."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.errors import Transient
from headrace.testing import ConnectorProcess
from tests.connectors.webhook.crash_scenario import applied, assert_each_once_and_in_order, materialize
from tests.connectors.webhook_endpoint import Handler, Received, Receiver, answers

FAULTY_CONNECTOR = (sys.executable, "-m", "tests.connectors.webhook.faulty_connector")
FAULTY_RUNTIME = (sys.executable, "-m", "tests.connectors.webhook.faulty_runtime")
IN_THE_THIRD = 23
"""A request in the middle of the third transaction; each has nine or ten."""


@pytest.mark.parametrize(
    ("step", "occurrence", "repeats"),
    [
        ("received Store", 1, False),
        ("received Store", 17, False),
        ("received StartCommit", 3, False),
        ("posting", 1, False),
        ("posted", 1, True),
        ("posting", IN_THE_THIRD, True),
        ("posted", IN_THE_THIRD, True),
        ("sending StartedCommit", 1, True),
        ("sending StartedCommit", 3, True),
    ],
)
def test_the_connector_is_killed(
    receiver: Receiver, tmp_path: Path, step: str, occurrence: int, repeats: bool
) -> None:
    log = tmp_path / "recovery.json"
    with ConnectorProcess("webhook", [*FAULTY_CONNECTOR, step, str(occurrence)]) as connector:
        materialization = applied(receiver.address, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    with ConnectorProcess("webhook") as connector:
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
    with ConnectorProcess("webhook") as connector:
        materialization = applied(receiver.address, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
    with ConnectorProcess("webhook") as connector:
        materialize(connector.client, materialization, log)
    assert_each_once_and_in_order(receiver)
    assert len(receiver.keys) > len(set(receiver.keys))


def test_the_connector_is_killed_at_any_moment(receiver: Receiver, tmp_path: Path) -> None:
    draw = random.Random(5)
    log = tmp_path / "recovery.json"
    kills = 0
    while True:
        with ConnectorProcess("webhook") as connector:
            connector.client.wait_until_ready()
            materialization = applied(receiver.address, connector.client)
            timer = threading.Timer(draw.uniform(0.0, 0.1 if kills else 0.03), connector.kill)
            if kills < 3:
                timer.start()
            try:
                materialize(connector.client, materialization, log)
                break
            except Transient:
                kills += 1
            finally:
                timer.cancel()
    assert kills > 0
    assert_each_once_and_in_order(receiver)


@pytest.mark.parametrize(
    ("step", "occurrence", "repeats"),
    [
        ("sent Flush", 3, False),
        ("sent Store", 17, False),
        ("sent StartCommit", 3, True),
        ("received StartedCommit", 1, True),
        ("received StartedCommit", 3, True),
        ("committed to the log", 3, False),
    ],
)
def test_the_runtime_is_killed(
    receiver: Receiver, tmp_path: Path, step: str, occurrence: int, repeats: bool
) -> None:
    log = tmp_path / "recovery.json"
    with ConnectorProcess("webhook") as connector:
        died = subprocess.run(
            [*FAULTY_RUNTIME, receiver.address, connector.address, log, step, str(occurrence)], check=False
        )
        assert died.returncode == -9, "the runtime must have died of the fault, not of something else"
        # The same connector process goes on, and may still be sending what the dead one has committed.
        materialize(connector.client, applied(receiver.address, connector.client), log)
    assert_each_once_and_in_order(receiver)
    if step != "sent StartCommit":  # which the connector may not have got
        assert (len(receiver.keys) > len(set(receiver.keys))) == repeats
