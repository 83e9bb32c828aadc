"""The connector of the documentation's example passes the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.testing.conformance import ConnectorConformance, EndpointUnderTest
from tests.docs.running import run_examples

example: Any = run_examples("docs/writing-a-connector.md")


class TestWritingAConnector(ConnectorConformance):
    @pytest.fixture
    def endpoint(self, tmp_path: Path) -> EndpointUnderTest:
        under_test: EndpointUnderTest = example.JsonFileUnderTest(tmp_path / "views.json")
        return under_test
