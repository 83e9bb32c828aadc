from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.s3_server import S3Server
from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.faults import Faults


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def folders(tmp_path: Path) -> Surroundings:
    return Surroundings.in_folder(tmp_path)


@pytest.fixture
def faults(folders: Surroundings) -> Faults:
    return Faults(folders.folder / "faults")


@pytest.fixture
def s3_and_rest(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, rest_catalog: IcebergRestCatalog
) -> Surroundings:
    """A real S3 server, for the log and the tables, and a real REST catalog."""
    store = {"url": f"s3://{s3_bucket}/log", "options": s3_server.obstore_options()}
    return Surroundings(tmp_path, store, rest_catalog.iceberg_properties(), f"crash_{uuid4().hex}")


@pytest.fixture
def surroundings(request: pytest.FixtureRequest) -> Surroundings:
    """Returns the fixture that the test names as its parameter."""
    found: Surroundings = request.getfixturevalue(request.param)
    return found
