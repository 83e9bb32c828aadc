"""What a server says of its connections, and how often."""

from __future__ import annotations

import logging
import resource
from typing import cast

import pytest

from headrace._native import Port
from headrace.ingest.connections import Connections, most_connections


class ScriptedPort:
    def __init__(self) -> None:
        self.open_now, self.idle = 3, 0
        self.away = (0, 0, 0)

    def connections(self) -> tuple[int, int, int, int]:
        return self.open_now, self.idle, 1, 2048

    def turned_away(self) -> tuple[int, int, int]:
        return self.away


def test_who_was_turned_away_is_in_the_log_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    port, now = ScriptedPort(), [100.0]
    connections = Connections(cast(Port, port), lambda: now[0])
    said = caplog.records
    with caplog.at_level(logging.WARNING):
        connections.look()
        assert said == []
        port.away = (2, 1, 4)
        connections.look()
        [first] = said
        assert first.getMessage() == (
            "connections were turned away: 2 because there were 2048, which is the most, "
            "1 that did not finish their handshake in time, and 4 that were idle and made room for others"
        )
        port.away = (5, 1, 5)
        now[0] += 59
        connections.look()
        assert len(said) == 1
        now[0] += 1
        connections.look()
        connections.look()
        assert [record.args for record in said] == [(2, 2048, 1, 4), (3, 2048, 0, 1)]


def test_a_server_that_is_full_says_so() -> None:
    port = ScriptedPort()
    connections = Connections(cast(Port, port))
    assert connections.problem is None
    port.open_now, port.idle, port.away = 2048, 1, (7, 0, 2)
    assert connections.problem is None, "the idle one makes room"
    port.idle = 0
    assert connections.problem == "2,048 connections are open, which is the most: others are turned away"
    assert connections.to_json() == {
        "open": 2048,
        "idle": 0,
        "most": 2048,
        "handshakes": 1,
        "turned_away": {"full": 7, "handshake": 0, "idle": 2},
    }


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "asked_for", "most"),
    [
        ((1_024, 20_000), (6_400, 20_000), 2_048),
        ((1_024, UNLIMITED), (6_400, UNLIMITED), 2_048),
        ((1_024, 4_096), (4_096, 4_096), 1_280),
        ((1_024, 1_024), (1_024, 1_024), 256),
        ((100, 100), (100, 100), 1),
        ((20_000, 20_000), None, 2_048),
        ((UNLIMITED, UNLIMITED), None, 2_048),
    ],
)
def test_connections_leave_descriptors_to_the_log(
    limits: tuple[int, int],
    asked_for: tuple[int, int] | None,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    assert most_connections() == most
    assert asked == ([] if asked_for is None else [asked_for])
