"""What several tests of the ingest server share."""

from __future__ import annotations

import pytest

from tests.ingest.support import FakeIceberg


@pytest.fixture
def iceberg(monkeypatch: pytest.MonkeyPatch) -> FakeIceberg:
    """Engines of this test commit to tables in memory."""
    fake = FakeIceberg()
    monkeypatch.setattr("headrace.ingest.engine.CommitterProcess", fake.process)
    return fake
