"""A copied or moved folder goes on in a new term, which fences off the server that it was copied from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import Fenced
from headrace.ingest.engine import Engine
from headrace.ingest.store import SegmentStore
from headrace.model.lsn import first_lsn_of
from headrace.model.tiers import Tier
from tests.ingest.support import (
    FakeIceberg,
    LocalSession,
    Store,
    batch,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")

OBJECT_STORAGE = Tier.OBJECT_STORAGE.name


def identity_of(folder: Path) -> dict[str, object]:
    identity: dict[str, object] = json.loads((folder / "identity.json").read_text())
    return identity


def is_put_aside(folder: Path) -> bool:
    return any(folder.glob("wal-put-aside-*"))


def moved(tmp_path: Path, store: Store) -> int:
    """Moves a folder with a write that is on its disk only."""
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
        store.broken = "nothing gets out"
        [lsn] = write_all(engine, 2, level=Tier.LOCAL_DISK)
    store.broken = None
    shutil.copytree(tmp_path / "data", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "data")
    return lsn


def test_a_moved_folder_goes_on_in_a_new_term_with_all_that_it_has(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    kept = moved(tmp_path, store)
    for again in range(2):
        with running_engine(tmp_path / "elsewhere", store=store) as engine:
            assert engine.health()["term"] == 1
            lsns = write_all(engine, 3, level=Tier.COMMITTED)
            assert engine.tier_of(kept) == Tier.COMMITTED.name
        assert (lsns[0] == first_lsn_of(1)) == (again == 0)
    assert iceberg.lsns["orders"][1] == kept
    assert not is_put_aside(tmp_path / "elsewhere")
    assert identity_of(tmp_path / "elsewhere").keys() == {"log_id", "epoch", "place"}


def test_the_server_of_the_original_folder_acknowledges_nothing_more(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    url = tmp_path / "objects"
    with running_engine(tmp_path / "data", store=Store(url)) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with (
        running_engine(tmp_path / "data", store=Store(url)) as original,
        LocalSession(original) as session,
        running_engine(tmp_path / "copy", store=Store(url)) as copy,
    ):
        session.send(batch(2))  # it may know by then that it was replaced, and refuse the write
        wait_until(lambda: original.fatal)
        assert "another server took over" in str(original.fatal)
        assert session.lsns(OBJECT_STORAGE) == []
        [lsn] = write_all(copy, 3, level=Tier.COMMITTED)
        assert all(copy.tier_of(late) == "LOST" for late in session.lsns("MEMORY"))
    assert iceberg.lsns["orders"] == [1, lsn]


@pytest.mark.parametrize("point", ["identity written", "term claiming", "term claimed"])
def test_a_claim_that_ends_at_any_step_is_made_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kept = moved(tmp_path, store)

    def end_there(name: str) -> None:
        if name == point:
            raise OSError("as if the process had ended here")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.ingest.data_folder.reached", end_there)
        patch.setattr("headrace.ingest.store.reached", end_there)
        with pytest.raises(OSError, match="as if the process"):
            Engine(settings_for(tmp_path / "elsewhere"), store=store)
    with running_engine(tmp_path / "elsewhere", store=store) as engine:
        engine.flush(Tier.COMMITTED, 60)
        assert engine.tier_of(kept) == Tier.COMMITTED.name
    assert not is_put_aside(tmp_path / "elsewhere")
    assert iceberg.lsns["orders"][1] == kept


@pytest.mark.parametrize("in_between", ["a segment", "more of the same segment"])
def test_what_the_original_does_until_the_claim_makes_an_old_copy_of_the_other(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch, in_between: str
) -> None:
    url, lsns = tmp_path / "objects", []
    with running_engine(tmp_path / "data", store=Store(url)) as engine:
        lsns += write_all(engine, 1, level=Tier.COMMITTED)
    if in_between == "a segment":
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    original = Engine(settings_for(tmp_path / "data", commit_interval=3600), store=Store(url))
    try:
        original.start()
        if in_between != "a segment":  # the folder is copied while its server runs
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
        claim = SegmentStore.claim_term

        def go_on_before(store: SegmentStore, announce: Callable[[int], None] = lambda _: None) -> int:
            patch.undo()
            lsns.extend(write_all(original, 2, level=Tier.OBJECT_STORAGE))
            return claim(store, announce)

        with monkeypatch.context() as patch:
            patch.setattr(SegmentStore, "claim_term", go_on_before)
            copy = Engine(settings_for(tmp_path / "copy"), store=Store(url))
        try:
            copy.start()
            lsns += write_all(copy, 3, level=Tier.COMMITTED)
        finally:
            copy.close(60)
    finally:
        original.close(60)
    assert is_put_aside(tmp_path / "copy")
    assert iceberg.lsns["orders"] == lsns


def test_a_take_over_that_ends_after_its_claim_begins_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is an old copy, and must not be fenced off by its own claim."""
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_all(engine, 1, level=Tier.COMMITTED)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_all(engine, 2, level=Tier.COMMITTED)

    def end_there(name: str) -> None:
        if name == "term claimed":
            raise OSError("as if the process had ended here")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.ingest.store.reached", end_there)
        with pytest.raises(OSError, match="as if the process"):
            Engine(settings_for(tmp_path / "copy"), store=store)
    with running_engine(tmp_path / "copy", store=store) as engine:
        lsns += write_all(engine, 3, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


def test_of_two_copies_that_start_at_once_one_goes_on(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
    for name in ("one", "other", "later"):
        shutil.copytree(tmp_path / "data", tmp_path / name)
    others: list[Engine] = []
    claim = SegmentStore.claim_term

    def claim_after_the_other(store: SegmentStore, announce: Callable[[int], None] = lambda _: None) -> int:
        patch.undo()
        others.append(Engine(settings_for(tmp_path / "other"), store=store))
        return claim(store, announce)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "claim_term", claim_after_the_other)
        one = Engine(settings_for(tmp_path / "one"), store=store)
    [other] = others
    assert (other.health()["term"], one.health()["term"]) == (1, 2)
    for engine in (one, other):
        engine.close(60)
    for name in ("other", "later"):
        with pytest.raises(Fenced, match="another server took over"):
            Engine(settings_for(tmp_path / name), store=store)
