"""The catalog that the tests of this folder use; another one runs them by overriding the fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.ingest.iceberg import CatalogSettings, embedded_catalog
from tests.ingest.iceberg.scenario import Scenario


@pytest.fixture
def catalog_settings(tmp_path: Path) -> CatalogSettings:
    """A catalog for this test alone."""
    return embedded_catalog(tmp_path)


@pytest.fixture
def scenario(catalog_settings: CatalogSettings, tmp_path: Path) -> Scenario:
    folder = tmp_path / "wal"
    folder.mkdir()
    return Scenario(catalog_settings, folder)
