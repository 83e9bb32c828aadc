"""Each test runs on a folder, and on an S3 server where it takes `any_endpoint`."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.s3_server import S3Server
from tests.connectors.files_endpoint import FilesEndpointUnderTest, in_bucket, in_folder


@pytest.fixture
def folder(tmp_path: Path) -> FilesEndpointUnderTest:
    return in_folder(tmp_path / "files")


@pytest.fixture
def s3_endpoint(s3_server: S3Server, s3_bucket: str) -> FilesEndpointUnderTest:
    return in_bucket(s3_server, s3_bucket)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.processes)])
def any_endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> FilesEndpointUnderTest:
    if request.param == "folder":
        return in_folder(tmp_path / "files")
    return in_bucket(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))
