"""Invariants 5 and 6 of docs/invariants.md: order of steps between the disk, the store and other servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Fenced
from headrace.ingest.engine import Engine
from headrace.ingest.store import SegmentStore
from headrace.model.tiers import Tier
from headrace.objects import ObjectStore
from tests.ingest.support import FakeIceberg, LocalSession, Store, running_engine, settings_for, write_all
from tests.waiting import wait_until
from tests.wal.support import OpenLog


def test_a_put_is_done_only_if_the_log_is_still_owned_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 5. If a claim appears during the put, its server may not have seen the segment."""
    store = SegmentStore((tmp_path / "objects").as_uri())
    term = store.claim_term()
    with OpenLog(tmp_path / "wal", term=term) as log:
        log.synced_write(1)
        segment = log.seal()
    create = ObjectStore.create

    def create_and_be_replaced(
        self: ObjectStore, path: str, data: bytes | memoryview, what: str, **options: Any
    ) -> None:
        create(self, path, data, what, **options)
        monkeypatch.undo()
        store.claim_term()

    monkeypatch.setattr(ObjectStore, "create", create_and_be_replaced)
    with pytest.raises(Fenced, match="another server took over"):
        store.put(segment, term)


def test_a_server_claims_its_term_before_it_reads_the_store(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 5. The previous server may acknowledge until the claim, so its work must be read after it."""
    create, objects = ObjectStore.create, tmp_path / "objects"
    acknowledged: list[int] = []
    with running_engine(tmp_path / "old", store=Store(objects)) as old, LocalSession(old) as session:
        session.await_level(session.write(1), Tier.OBJECT_STORAGE.name)

        def write_and_claim(
            self: ObjectStore, path: str, data: bytes | memoryview, what: str, **options: Any
        ) -> None:
            if path.startswith("epochs/"):
                patch.undo()
                acknowledged.append(session.write(2))
                session.await_level(acknowledged[0], Tier.OBJECT_STORAGE.name)
            create(self, path, data, what, **options)

        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "create", write_and_claim)
            new = Engine(settings_for(tmp_path / "new"), store=Store(objects))
        new.close()
    assert len(acknowledged) == 1
    assert new.tier_of(acknowledged[0]) != "LOST"


def test_a_segments_file_is_removed_before_its_object(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 6. The next process would upload a file without its object again, after a hole."""
    remove = ObjectStore.remove
    removed: list[str] = []
    too_early: list[str] = []

    def look_and_remove(self: ObjectStore, path: str, what: str) -> None:
        name = Path(path).name
        (too_early if (tmp_path / "data/wal" / name).exists() else removed).append(name)
        remove(self, path, what)

    monkeypatch.setattr(ObjectStore, "remove", look_and_remove)
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        for number in range(6):
            write_all(engine, number, level=Tier.COMMITTED)
        wait_until(lambda: len(removed) + len(too_early) > 2, "the removal of segments that are committed")
    assert too_early == []
