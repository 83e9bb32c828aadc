"""Nothing that a local catalog points to is still on its way to the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.ingest.iceberg import embedded_catalog
from headrace.ingest.iceberg.synced_files import SyncedFileIO
from tests.ingest.iceberg.scenario import Scenario


def test_files_are_synced_before_the_catalog_points_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(embedded_catalog(tmp_path), tmp_path)
    scenario.write_segment()
    synced: dict[str, int] = {}
    folders: set[str] = set()
    fdatasync, fsync = os.fdatasync, os.fsync

    def note_file(descriptor: int) -> None:
        fdatasync(descriptor)
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    def note_folder(descriptor: int) -> None:
        fsync(descriptor)
        folders.add(os.readlink(f"/proc/self/fd/{descriptor}"))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", note_file)
        patch.setattr(os, "fsync", note_folder)
        scenario.commit()

    files = {path: path.stat().st_size for path in (tmp_path / "warehouse").rglob("*") if path.is_file()}
    assert {str(path): size for path, size in files.items()} == synced
    assert {
        str(folder) for path in files for folder in path.parents if folder.is_relative_to(tmp_path)
    } == folders
    scenario.assert_exactly_once()


def test_a_file_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    output = SyncedFileIO().new_output(f"file://{tmp_path}/new/file")
    with output.create() as stream:
        stream.write(b"one")
    with pytest.raises(FileExistsError):
        output.create()
    with output.create(overwrite=True) as stream:
        stream.write(b"two")
    assert (tmp_path / "new/file").read_bytes() == b"two"
