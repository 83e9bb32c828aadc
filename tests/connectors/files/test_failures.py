"""Stores that refuse, are full, or are not there."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from devtools.s3_server import S3Server
from headrace.connectors.files import folder as folder_module
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.testing import MemoryLog
from tests.connectors.files.driving import applied, ids, open_again, planned, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest


def full(*_: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_wrong_secret_is_refused_and_not_repeated(s3_server: S3Server, s3_bucket: str) -> None:
    options = {**s3_server.obstore_options(), "secret_access_key": "hunter2hunter2"}
    with pytest.raises(EndpointError) as error:
        planned({"url": f"s3://{s3_bucket}", "options": options}, things())
    said = "".join(traceback.format_exception(error.value))
    assert "SignatureDoesNotMatch" in said
    assert "hunter2" not in said
    assert s3_server.access_key not in said
    assert "\n" not in str(error.value)


def test_a_bucket_that_is_not_there(s3_server: S3Server) -> None:
    with pytest.raises(EndpointError, match=r"s3://nobody cannot list things/_headrace: .*NoSuchBucket"):
        planned({"url": "s3://nobody", "options": s3_server.obstore_options()}, things())


def test_a_server_that_is_not_there(s3_server: S3Server) -> None:
    options = {**s3_server.obstore_options(), "endpoint": "http://127.0.0.1:1"}
    with pytest.raises(EndpointUnavailable, match="s3://nobody cannot list"):
        planned({"url": "s3://nobody", "options": options}, things())


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EndpointError, match="Not a directory"):
        planned({"url": str(tmp_path / "file")}, things())


def test_a_disk_that_is_full_while_rows_are_staged(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = applied(folder.config, things())
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(EndpointUnavailable, match="No space left on device"):
            write(view, MemoryLog(), [1])
    assert folder.files("things", "_staged") == []
    log = MemoryLog()
    write(view, log, [1])
    open_again(view, log)
    assert ids(folder) == [[1]]


def test_a_failure_within_a_file_is_told_as_it_is(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it comes up through Arrow's writer."""
    view = applied(folder.config, things())

    def give_up(*_: object) -> int:
        raise EndpointUnavailable("the store gave up")

    monkeypatch.setattr(folder_module._FileSink, "write", give_up)
    with pytest.raises(EndpointUnavailable, match=r"^the store gave up$"):
        write(view, MemoryLog(), [1])


def test_publishing_that_fails_is_done_by_the_next_stream(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(EndpointUnavailable, match="No space left on device"):
            open_again(view, log)
    assert ids(folder) == []
    open_again(view, log)
    assert ids(folder) == [[1]]
