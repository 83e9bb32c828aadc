"""After a restart an object is read again only if it is not, by its tag, the one that was put."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.s3_server import S3Server
from headrace.ingest.store import SegmentStore
from headrace.objects import ObjectStore
from tests.ingest.test_store import sealed_segment


@pytest.fixture
def url(s3_bucket: str) -> str:
    return f"s3://{s3_bucket}/log"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that are read."""
    found: list[str] = []
    stream = ObjectStore.stream

    def noted(self: ObjectStore, path: str, what: str) -> object:
        found.append(path)
        return stream(self, path, what)

    monkeypatch.setattr(ObjectStore, "stream", noted)
    return found


def test_what_was_put_or_read_is_not_read_again(
    tmp_path: Path, s3_server: S3Server, url: str, read: list[str]
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    SegmentStore(url, s3_server.obstore_options()).put(segment, 0)
    assert SegmentStore(url, s3_server.obstore_options()).has(segment)
    assert read == []
    os.removexattr(segment.path, "user.headrace.object")  # as after a copy, or before this version
    for _ in range(2):
        assert SegmentStore(url, s3_server.obstore_options()).has(segment)
    assert len(read) == 1


def test_another_object_of_the_same_name_and_size_is_read_and_refused(
    tmp_path: Path, s3_server: S3Server, url: str, read: list[str]
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    store = SegmentStore(url, s3_server.obstore_options())
    store.put(segment, 0)
    data = bytearray(segment.path.read_bytes()[: segment.length])
    data[-1] ^= 1
    ObjectStore(url, s3_server.obstore_options()).put(f"wal/{segment.path.name}", bytes(data), "change it")
    assert not store.has(segment)
    assert len(read) == 1


def test_a_folder_has_no_tags(tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    SegmentStore((tmp_path / "objects").as_uri()).put(segment, 0)
    assert os.listxattr(segment.path) == []
