"""A receiver for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.connectors.webhook import client
from headrace.connectors.webhook.retries import Retries
from tests.connectors.webhook.clock import Clock
from tests.connectors.webhook_endpoint import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replaces the clock of retries in this process, so that no test waits or runs out of time."""
    clock = Clock()

    def retries(retry_for: float) -> Retries:
        return clock.retries(retry_for)

    monkeypatch.setattr(client, "Retries", retries)
    return clock


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxy is no part of the tests."""
    for scheme in ("http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)
