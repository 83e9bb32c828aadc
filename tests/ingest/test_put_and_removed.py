"""Names in object storage that are free again, and terms that are missing there, mislead no server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.errors import Fenced
from headrace.ingest.store import SegmentStore
from headrace.model.tiers import Tier
from tests.ingest.support import (
    FakeIceberg,
    LocalSession,
    Store,
    copy_image,
    running_engine,
    write_all,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")

OBJECT_STORAGE = Tier.OBJECT_STORAGE.name


def store_in(folder: Path) -> SegmentStore:
    return SegmentStore(folder.absolute().as_uri())


def test_a_machine_that_is_rolled_back_while_it_runs_puts_nothing_more(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    """Its memory and its disk are those of before; its store, where all names are free again, is not."""
    url = tmp_path / "objects"
    with running_engine(tmp_path / "data", store=Store(url)) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
    copy_image(tmp_path / "data", tmp_path / "image")
    with (
        running_engine(tmp_path / "image", store=Store(url)) as rolled_back,
        LocalSession(rolled_back) as session,
    ):
        # Or the other one would be the first to learn that segment 1 was released by somebody else.
        wait_until(lambda: rolled_back._mark.current.first_segment > 1 and not rolled_back._cleaner.backlog)
        wait_until(lambda: rolled_back._uploader.is_idle)
        with running_engine(tmp_path / "data", store=Store(url)) as before:
            for number in range(2, 6):
                write_all(before, number, level=Tier.COMMITTED)
            wait_until(lambda: before._mark.current.first_segment > 4 and not before._cleaner.backlog)
        lsn = session.write(9)
        wait_until(lambda: rolled_back.fatal)
        assert "its machine was rolled back while it ran" in str(rolled_back.fatal)
        assert lsn not in session.lsns(OBJECT_STORAGE)
    with running_engine(tmp_path / "image", store=Store(url)) as engine:
        assert write_all(engine, 10, level=Tier.COMMITTED)
    assert len(iceberg.lsns["orders"]) == len(set(iceberg.lsns["orders"])) == 6


def test_an_object_that_somebody_removed_is_put_again(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    iceberg.hold()
    with running_engine(tmp_path / "data", store=store, commit_interval=3600.0) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
        *_, newest = store.numbers()  # the one before it may have the collection alone
        store.remove(newest)
        write_all(engine, 2, level=Tier.OBJECT_STORAGE)
        assert newest in store.numbers()
        assert engine.fatal is None
        iceberg.let_go()


def test_what_a_replaced_server_puts_where_a_name_is_free_again_does_no_harm(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "old", store=store) as old, LocalSession(old) as session:
        write_all(old, 1, level=Tier.COMMITTED)
        store.hold()
        late = session.write(2)
        with running_engine(tmp_path / "new", store=Store(tmp_path / "objects")) as new:
            for number in range(3, 7):
                write_all(new, number, level=Tier.COMMITTED)
            wait_until(lambda: new._mark.current.first_segment > 4 and not new._cleaner.backlog)
            store.let_go()
            wait_until(lambda: old.fatal)
            assert late not in session.lsns(OBJECT_STORAGE)
    assert min(store.numbers()) < 4  # what the replaced server has put
    shutil.rmtree(tmp_path / "new")
    with running_engine(tmp_path / "third", store=Store(tmp_path / "objects")) as third:
        write_all(third, 7, level=Tier.COMMITTED)
        wait_until(lambda: min(store.numbers()) > 4, "an object that is not needed to be removed")
        assert third.tier_of(late) == "LOST"
    assert len(iceberg.lsns["orders"]) == 6


def test_a_server_of_any_earlier_term_is_fenced_off_in_a_store_that_was_emptied(tmp_path: Path) -> None:
    store = store_in(tmp_path / "objects")
    log_id, terms = store.log_id(), [store.claim_term() for _ in range(4)]
    for path in (tmp_path / "objects/epochs").iterdir():
        path.unlink()  # by a rule for old objects, or as the store was moved
    store.join(log_id, terms[3])
    for term in terms[:3]:
        with pytest.raises(Fenced, match="another server took over"):
            store.check_owner(term)
    store.check_owner(terms[3])


def test_a_claim_leaves_no_hole_below_it(tmp_path: Path) -> None:
    store = store_in(tmp_path / "objects")
    terms = [store.claim_term() for _ in range(4)]
    for number in (1, 2):
        (tmp_path / f"objects/epochs/{number:010}").unlink()
    assert store.claim_term() == 4
    for term in terms:
        with pytest.raises(Fenced):
            store.check_owner(term)
