"""What several tests of the ingest server share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ingest.support import FakeIceberg, Store


@pytest.fixture
def iceberg(monkeypatch: pytest.MonkeyPatch) -> FakeIceberg:
    """Engines of this test commit to tables in memory."""
    fake = FakeIceberg()
    monkeypatch.setattr("headrace.ingest.engine.CommitterProcess", fake.process)
    return fake


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "objects")


@pytest.fixture
def state_in_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log keeps many small segments until it has grown by a multiple of its state."""
    monkeypatch.setattr("headrace.ingest.log._STATE_SHARE", 0)
