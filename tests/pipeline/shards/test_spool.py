"""What a spool is given comes out again, all rows of a key together."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.pipeline.shards.spool import DIGEST, Spool
from headrace.protocol.key_digests import digest_keys


def keys(begin: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(begin, begin + count))})


@pytest.mark.parametrize(("limit", "on_disk"), [(1 << 30, False), (5_000, True), (0, True)])
def test_rows_and_what_was_loaded_meet(
    limit: int, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: dict[str, list[int]] = {"rows": [], "loaded": []}
    with Spool(limit, buckets=8) as spool:
        for begin in range(0, 3000, 300):
            some = keys(begin, 300)
            spool.add("rows", some, digest_keys(some))
        for begin in range(0, 1500, 100):
            some = keys(begin, 100)
            spool.add("loaded", some, digest_keys(some))
        spool.add("loaded", keys(0, 0), digest_keys(keys(0, 0)))
        assert spool.is_on_disk == on_disk
        for bucket in spool.buckets():
            rows = set(bucket["rows"][DIGEST].to_pylist())
            if "loaded" in bucket:
                assert set(bucket["loaded"][DIGEST].to_pylist()) <= rows
            for kind, table in bucket.items():
                seen[kind] += table["id"].to_pylist()
    assert sorted(seen["rows"]) == list(range(3000))
    assert sorted(seen["loaded"]) == list(range(1500))
    assert not list(tmp_path.iterdir()), "it cleans up"


def open_files(folder: Path) -> list[str]:
    """That are in a folder, by a name or without one."""
    links = [os.readlink(f"/proc/self/fd/{number}") for number in descriptors()]
    return [link for link in links if link.startswith(f"{folder}/")]


def descriptors() -> list[str]:
    listed = os.listdir("/proc/self/fd")
    return [number for number in listed if Path(f"/proc/self/fd/{number}").is_symlink()]


def test_nothing_has_a_name_that_a_killed_worker_would_leave_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    some = keys(0, 100)
    spool = Spool(0)
    spool.add("rows", some, digest_keys(some))
    assert spool.is_on_disk
    assert open_files(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="stop"), spool:
        raise ValueError("stop")
    assert not open_files(tmp_path)


def test_a_slice_is_spooled_by_its_own_rows() -> None:
    some = keys(0, 100)
    with Spool(0, buckets=4) as spool:
        for begin in range(0, 100, 7):
            part = some.slice(begin, 7)
            spool.add("rows", part, digest_keys(part))
        found = [value for bucket in spool.buckets() for value in bucket["rows"]["id"].to_pylist()]
    assert sorted(found) == list(range(100))
