"""Invariant 7 of docs/invariants.md: an object that another process has created."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.objects import ObjectExists, ObjectStore


def test_an_object_that_exists_is_synced_before_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 7. The creator may have died before the sync, and the caller relies on the object."""
    store = ObjectStore((tmp_path / "objects").as_uri())
    theirs = tmp_path / "objects/log/0001.json"
    theirs.parent.mkdir()
    theirs.write_bytes(b"created, and not synced")
    synced: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with pytest.raises(ObjectExists):
        store.create("log/0001.json", b"ours", "create it")
    assert {theirs, theirs.parent, tmp_path / "objects"} <= set(synced)
    assert store.get("log/0001.json", "get it") == b"created, and not synced"
