"""A log goes on only if it can show that nothing between it and its tables is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EndpointUnavailable, Fenced
from headrace.ingest.engine import Engine
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.low_water import TableMark, read_file, read_newest
from headrace.ingest.store import SegmentStore
from headrace.model.lsn import first_lsn_of
from headrace.model.tiers import Tier
from headrace.objects import ObjectStore
from headrace.wal.position import LogPosition
from headrace.wal.segments import CorruptLog, number_of, segment_files, segment_name
from headrace.wal.state import Committed
from tests.ingest.support import (
    FakeIceberg,
    LocalSession,
    Store,
    away,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")

OBJECT_STORAGE, COMMITTED = Tier.OBJECT_STORAGE.name, Tier.COMMITTED.name
_AWAY = EndpointUnavailable("the catalog is away")


def write_each(engine: Engine, *ids: int, level: Tier, collection: str = "orders") -> list[int]:
    """Writes that are each in a segment of their own."""
    return [lsn for one in ids for lsn in write_all(engine, one, collection=collection, level=level)]


def wait_for_release(engine: Engine) -> None:
    """Returns when nothing more is left than a log needs to go on."""
    wait_until(lambda: engine._mark.current.first_segment > 1 and len(engine._index.all()) == 1, "a release")


def kept_on_disk(folder: Path) -> list[int]:
    return [number_of(path) for path in segment_files(folder / "wal")]


# Segments that are gone.


def test_segments_that_the_disk_lost_are_taken_from_the_store_and_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, 4, 5, level=Tier.OBJECT_STORAGE)
    for path in segment_files(tmp_path / "data/wal")[:3]:
        path.unlink()
    iceberg.problem = None
    with running_engine(tmp_path / "data", store=store) as engine:
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["orders"] == lsns


def test_a_segment_that_the_disk_lost_in_the_middle_is_taken_from_the_store(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, level=Tier.OBJECT_STORAGE)
    segment_files(tmp_path / "data/wal")[1].unlink()
    iceberg.problem = None
    with running_engine(tmp_path / "data", store=store) as engine:
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["orders"] == lsns


@pytest.mark.parametrize("position", [0, 1], ids=["front", "middle"])
@pytest.mark.parametrize("lost", ["folder", "disk"])
def test_segments_that_are_nowhere_are_given_up_by_a_person_only(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, position: int, lost: str
) -> None:
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, level=Tier.OBJECT_STORAGE)
        [gone] = [one for one in engine._index.all() if lsns[position] in one.last_lsns.values()]
    first, last = (1 if position == 0 else gone.header.number), gone.header.number
    for number in range(first, last + 1):
        (tmp_path / "objects/wal" / segment_name(number)).unlink()
        (tmp_path / "data/wal" / segment_name(number)).unlink()
    if lost == "disk":
        shutil.rmtree(tmp_path / "data")
    with pytest.raises(CorruptLog, match=f"with --accept-loss log:{first}-{last}$"):
        Engine(settings_for(tmp_path / "data"), store=store)
    accepted = frozenset([f"log:{first}-{last}"])
    iceberg.problem = None
    with running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine:
        engine.flush(Tier.COMMITTED, 60)
        kept = [lsn for lsn in lsns if lsn != lsns[position]]
        assert engine.tier_of(lsns[position]) == "LOST"
        assert [engine.tier_of(lsn) for lsn in kept] == [COMMITTED] * 2
    assert iceberg.lsns["orders"] == kept
    with running_engine(tmp_path / "data", store=store) as engine:  # the word of a person is kept
        assert engine.tier_of(lsns[position]) == "LOST"


def test_a_log_that_is_given_up_as_a_whole_keeps_what_it_takes_from_then_on(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """Neither the disk nor the store has a segment; its numbers are not given out again."""
    with running_engine(tmp_path / "data", store=store) as engine:
        write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
        last = engine._mark.current.first_segment
    for number in store.numbers():
        store.remove(number)
    shutil.rmtree(tmp_path / "data")
    accepted = frozenset([f"log:{last}-{last}"])
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine:
        with LocalSession(engine, options={"producer": "p", "resume_after": 3}) as session:
            # Who is not known may be one of those that are forgotten with the log's state.
            assert session.greeting["forgotten_lsn"] == first_lsn_of(1) - 1
        lsns = write_each(engine, 4, 5, level=Tier.OBJECT_STORAGE)
    assert min(store.numbers()) > last
    with running_engine(tmp_path / "data", store=store) as engine:
        assert not list((tmp_path / "data").glob("wal-put-aside-*"))
        iceberg.problem = None
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["orders"][-2:] == lsns


# The low-water mark.


def test_what_is_removed_was_released_in_the_store_and_on_the_disk_before(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []
    unreleased: list[int] = []

    def remove(_: SegmentStore, number: int) -> None:
        marks = [read_file(tmp_path / "data"), read_newest(store)]
        unreleased.extend(number for mark in marks if mark is None or mark.first_segment <= number)
        removed.append(number)

    monkeypatch.setattr(Store, "remove", remove)
    with running_engine(tmp_path / "data", store=store) as engine:
        write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
        wait_until(lambda: removed)
    assert unreleased == []


POINTS = ["low water putting", "low water put", "low water written", "wal removing", "wal removed"]


@pytest.mark.parametrize("point", [*POINTS, "segment removed"])
@pytest.mark.parametrize("lost", [False, True], ids=["same disk", "new disk"])
def test_a_removal_that_ends_at_any_step_is_finished_later(
    tmp_path: Path,
    iceberg: FakeIceberg,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    lost: bool,
) -> None:
    ended: list[str] = []

    def end_there(name: str) -> None:
        if name == point:
            ended.append(name)
            raise OSError("as if the process had ended here")

    with running_engine(tmp_path / "data", store=store) as engine, monkeypatch.context() as patch:
        patch.setattr("headrace.ingest.low_water.reached", end_there)
        patch.setattr("headrace.ingest.cleaner.reached", end_there)
        lsns = write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_until(lambda: ended)
        engine._cleaner.close(60)
    if lost:
        shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        wait_until(lambda: [engine.tier_of(lsn) for lsn in lsns] == [COMMITTED] * 3)  # the table says so
        lsns += write_each(engine, 4, level=Tier.COMMITTED)
        wait_for_release(engine)
        first = engine._mark.current.first_segment
        wait_until(lambda: store.numbers()[0] == first == kept_on_disk(tmp_path / "data")[0], "a removal")
        wait_until(lambda: len(store.low_waters()) == 1)
    assert iceberg.lsns["orders"] == lsns


def test_a_full_disk_is_emptied_with_the_mark_in_the_store_alone(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with running_engine(tmp_path / "data", store=store) as engine, monkeypatch.context() as patch:
        patch.setattr("headrace.ingest.low_water.replace_file", full)
        lsns = write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
        wait_until(lambda: kept_on_disk(tmp_path / "data")[0] > 1)
        engine._cleaner.close(60)
    mark = read_file(tmp_path / "data")
    assert mark is not None
    assert mark.first_segment == 1
    with running_engine(tmp_path / "data", store=store) as engine:
        assert [engine.tier_of(lsn) for lsn in lsns] == [COMMITTED] * 3
        write_each(engine, 4, level=Tier.COMMITTED)
        wait_until(lambda: (mark := read_file(tmp_path / "data")) and mark.first_segment > 1)


def test_a_log_of_an_older_version_goes_on_and_gets_a_mark(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
    (tmp_path / "data/low-water.json").unlink()
    shutil.rmtree(tmp_path / "objects/low-water")
    identity = tmp_path / "data/identity.json"
    identity.write_text(
        json.dumps({k: v for k, v in json.loads(identity.read_text()).items() if k != "place"})
    )
    with running_engine(tmp_path / "data", store=store) as engine:
        wait_until(lambda: read_file(tmp_path / "data"))
        lsns += write_each(engine, 4, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns
    assert "place" in json.loads(identity.read_text())


# Tables that do not fit the log.


def a_released_log(folder: Path, store: Store, *ids: int) -> list[int]:
    with running_engine(folder, store=store) as engine:
        lsns = write_each(engine, *ids, level=Tier.COMMITTED)
        wait_for_release(engine)
    return lsns


def test_a_table_from_an_older_copy_is_brought_up_to_date_from_the_log(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, level=Tier.COMMITTED)
        wait_for_release(engine)
        old, rows = dict(iceberg.committed), list(iceberg.lsns["orders"])
        engine._cleaner.close(60)  # so that the log keeps what comes now
        lsns += write_each(engine, 3, 4, level=Tier.COMMITTED)
    iceberg.committed, iceberg.lsns = old, {"orders": rows}
    with running_engine(tmp_path / "data", store=store) as engine:
        wait_until(lambda: iceberg.lsns["orders"] == lsns)
        write_each(engine, 5, level=Tier.COMMITTED)


@pytest.mark.parametrize("fate", ["restored", "dropped"])
def test_a_table_that_lacks_what_the_log_no_longer_has_is_not_committed_to(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, fate: str
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        write_each(engine, 1, level=Tier.COMMITTED)
        old = dict(iceberg.committed) if fate == "restored" else {}
        lsns = write_each(engine, 2, 3, 4, level=Tier.COMMITTED)
        wait_for_release(engine)
    before = old["orders"].lsn if old else 0
    iceberg.committed, iceberg.lsns = old, {"orders": []}
    with running_engine(tmp_path / "data", store=store) as engine, LocalSession(engine) as session:
        lsn = session.write(5)
        session.await_level(lsn, OBJECT_STORAGE)
        wait_until(lambda: engine.commit_failures)
        [problem] = engine.health()["problems"]
        others = write_each(engine, 1, level=Tier.COMMITTED, collection="others")
        assert lsn not in session.lsns(COMMITTED)
    needed = lsns[1]  # the last write is in the segment that is kept
    what = f"orders:{before + 1}-{needed}"
    assert f"--accept-loss {what}" in problem
    with running_engine(tmp_path / "data", store=store, accept_loss=frozenset([what])) as engine:
        engine.flush(Tier.COMMITTED, 60)
        assert engine.tier_of(needed, "orders") == "LOST"
        assert engine.tier_of(lsn, "orders") == COMMITTED
        assert engine.tier_of(others[0], "others") == COMMITTED
    assert iceberg.lsns["orders"] == [lsns[2], lsn]
    with running_engine(tmp_path / "data", store=store) as engine:  # the word of a person is kept
        write_each(engine, 6, level=Tier.COMMITTED)
        assert engine.lost(collection="orders") == [(before + 1, needed), *engine.lost()]


def test_a_writer_never_hears_that_what_was_given_up_is_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        with LocalSession(engine, options={"producer": "p"}) as session:
            lsn = session.write(1, seq=1)
        write_each(engine, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
        needed = engine._mark.current.tables["orders"].needed
    iceberg.committed, iceberg.lsns = {}, {}
    accepted = frozenset([f"orders:1-{needed}"])
    with running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine:
        wait_until(lambda: engine.tier_of(lsn, "orders") == "LOST", "the loss")
        # After the loss is known, streams are broken off; then the other collection is committed.
        write_all(engine, 1, collection="others", level=Tier.COMMITTED)
        with LocalSession(engine, options={"producer": "p", "resume_after": 0}) as session:
            later = session.write(4, seq=2)
            session.await_level(later, COMMITTED)
            assert session.greeting["lost"][0] == [1, needed]
            assert lsn not in session.lsns(COMMITTED)


def test_a_table_that_moves_while_the_server_runs_is_asked_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
        iceberg.committed, iceberg.lsns = {}, {}
        lsns += write_each(engine, 2, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


def test_a_table_without_a_segment_is_one_of_an_older_version(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
    iceberg.committed["orders"] = Committed(lsns[0], 1001, LogPosition(lsns[0]))
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 2, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


# Old copies of the data folder.


def an_old_copy_in_place(tmp_path: Path, store: Store, *, before: int, after: int) -> list[int]:
    """Writes, and has the folder as it was in the middle of that; the lock and the place are the same."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with running_engine(data, store=store) as engine:
        lsns = write_each(engine, *range(before), level=Tier.COMMITTED)
    shutil.copytree(data, copy)
    with running_engine(data, store=store) as engine:
        lsns += write_each(engine, *range(after), level=Tier.COMMITTED)
        wait_for_release(engine)
    for name in ("wal", "low-water.json", "identity.json"):
        path = data / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if (copy / name).exists():
            shutil.move(copy / name, path)
    return lsns


def test_a_disk_that_was_rolled_back_goes_on_in_a_new_term(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    lsns = an_old_copy_in_place(tmp_path, store, before=1, after=3)
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 9, level=Tier.COMMITTED)
    assert lsns[-1] == first_lsn_of(1)
    assert iceberg.lsns["orders"] == lsns


@pytest.mark.parametrize("first", ["store", "catalog"])
def test_a_disk_that_was_rolled_back_is_found_out_before_anything_gets_beyond_it(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, first: str
) -> None:
    lsns = an_old_copy_in_place(tmp_path, store, before=1, after=3)
    iceberg.problem = _AWAY
    with away(store):
        engine = Engine(settings_for(tmp_path / "data"), store=store)
        engine.start()
        with LocalSession(engine) as session:
            again = [session.write(number) for number in range(30)]
            session.await_level(again[-1], Tier.LOCAL_DISK.name)
            if first == "catalog":
                iceberg.problem = None
                wait_until(lambda: engine.fatal)
    with LocalSession(engine) as session:
        wait_until(lambda: engine.fatal)
        assert "old copy" in str(engine.fatal)
        assert not session.lsns(OBJECT_STORAGE)
    engine.close(60)
    assert lsns[1] in again, "the LSNs were given twice, to be told apart"
    iceberg.problem = None
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 9, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


def test_segments_that_were_replaced_by_older_ones_are_found_out_by_the_mark_beside_them(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
    shutil.copytree(tmp_path / "data/wal", tmp_path / "old")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 2, 3, 4, 5, level=Tier.COMMITTED)
        wait_for_release(engine)
    shutil.rmtree(tmp_path / "data/wal")
    shutil.copytree(tmp_path / "old", tmp_path / "data/wal")
    with away(store), pytest.raises(EndpointUnavailable, match="the store is away"):
        Engine(settings_for(tmp_path / "data"), store=store)
    assert kept_on_disk(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 6, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


def test_an_old_copy_whose_store_lost_its_segments_is_found_out_by_the_mark_there(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    an_old_copy_in_place(tmp_path, store, before=1, after=4)
    shutil.rmtree(tmp_path / "objects/wal")
    with pytest.raises(CorruptLog, match="neither in"):
        Engine(settings_for(tmp_path / "data"), store=store)


def test_writes_without_rows_are_not_missed_in_a_table() -> None:
    """A table does not record them, so it is not behind where they are released."""
    assert TableMark(LogPosition(100), released=150).needed == 100
    assert TableMark(LogPosition(100), released=90).needed == 90


def test_a_table_of_another_history_with_lsns_that_fit_stops_the_server(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """Two copies of a folder, each with a store of its own, have both given the same LSNs."""
    with running_engine(tmp_path / "data", store=store) as engine:
        write_each(engine, 1, level=Tier.COMMITTED)
    for name in ("data", "objects"):
        shutil.copytree(tmp_path / name, tmp_path / f"copy of {name}")
    with running_engine(tmp_path / "data", store=store) as engine:
        write_each(engine, 2, 3, level=Tier.COMMITTED)
    rows = list(iceberg.lsns["orders"])
    other = Store(tmp_path / "copy of objects")
    identity = tmp_path / "copy of data/identity.json"
    raw = json.loads(identity.read_text())
    identity.write_text(
        json.dumps({"log_id": raw["log_id"], "epoch": raw["epoch"]})
    )  # as if it were in place
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "copy of data", store=other) as engine:
        write_each(engine, 4, 5, 6, level=Tier.OBJECT_STORAGE)
        iceberg.problem = None
        wait_until(lambda: engine.fatal)
        assert isinstance(engine._fatal, Fenced)
    assert iceberg.lsns["orders"] == rows


# Copied or moved folders.


def test_a_copied_folder_does_not_start_without_its_store_and_its_tables(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shutil.rmtree(tmp_path / "data")
    with (
        away(store),
        pytest.raises(EndpointUnavailable, match="copied or moved, and only its store can tell"),
    ):
        Engine(settings_for(tmp_path / "copy"), store=store)
    iceberg.problem = _AWAY
    with pytest.raises(EndpointUnavailable, match="copied or moved, and only its tables can tell"):
        Engine(settings_for(tmp_path / "copy"), store=store)
    iceberg.problem = None
    with running_engine(tmp_path / "copy", store=store) as engine:
        lsns += write_each(engine, 2, level=Tier.COMMITTED)
    assert lsns[-1] == first_lsn_of(1), "it is not behind, and goes on with what it has in a new term"
    assert not list((tmp_path / "copy").glob("wal-put-aside-*"))
    assert iceberg.lsns["orders"] == lsns
    with away(store), running_engine(tmp_path / "copy", store=store) as engine:  # now it is where it was
        [lsn] = write_all(engine, 3, level=Tier.LOCAL_DISK)
    assert lsn < first_lsn_of(2)


def test_a_copy_of_folder_and_store_that_is_behind_its_tables_goes_on_in_a_new_term(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
    for name in ("data", "objects"):
        shutil.copytree(tmp_path / name, tmp_path / f"copy of {name}")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns += write_each(engine, 2, 3, level=Tier.COMMITTED)
    other = Store(tmp_path / "copy of objects")
    with running_engine(tmp_path / "copy of data", store=other) as engine:
        lsns += write_each(engine, 4, level=Tier.COMMITTED)
    assert lsns[-1] == first_lsn_of(1)
    assert iceberg.lsns["orders"] == lsns


def test_a_new_term_follows_a_table_that_is_ahead_of_a_restored_store(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
        shutil.copytree(tmp_path / "objects", tmp_path / "restored")
        lsns += write_each(engine, 2, 3, level=Tier.COMMITTED)
    with running_engine(tmp_path / "new", store=Store(tmp_path / "restored")) as engine:
        lsns += write_each(engine, 4, level=Tier.COMMITTED)
    assert iceberg.lsns["orders"] == lsns


def test_a_segment_that_was_half_fetched_is_fetched_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.problem = _AWAY
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, level=Tier.OBJECT_STORAGE)
    segment_files(tmp_path / "data/wal")[1].unlink()
    stream = ObjectStore.stream

    def half(self: ObjectStore, path: str, what: str) -> Iterator[memoryview]:
        for chunk in stream(self, path, what):
            yield chunk[: len(chunk) // 2]
            raise EndpointUnavailable("the store goes away in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "stream", half)
        with pytest.raises(EndpointUnavailable):
            Engine(settings_for(tmp_path / "data"), store=store)
    iceberg.problem = None
    with running_engine(tmp_path / "data", store=store) as engine:
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["orders"] == lsns


def test_a_log_that_came_from_the_store_starts_without_it_afterwards(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    a_released_log(tmp_path / "data", store, 1, 2, 3)
    shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store):
        pass
    with away(store), running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 4, level=Tier.LOCAL_DISK)


def test_a_mark_that_was_read_while_the_store_was_away_does_not_move(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """A person may have given something up, but in the store there may be a later mark."""
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, 2, 3, level=Tier.COMMITTED)
        wait_for_release(engine)
    iceberg.committed.clear()
    recorded = read_file(tmp_path / "data")
    assert recorded is not None
    accepted = frozenset([f"orders:1-{recorded.tables['orders'].needed}"])
    with away(store):
        engine = Engine(settings_for(tmp_path / "data", accept_loss=accepted), store=store)
        engine.start()
        wait_until(lambda: engine.commit_failures > 2, "commits that fail")
        assert read_file(tmp_path / "data") == recorded
        assert read_newest(store) == recorded
    try:
        wait_until(lambda: engine.tier_of(lsns[0], "orders") == "LOST", "the loss, once the store answers")
    finally:
        engine.close(60)


def test_a_table_that_is_restored_before_segments_are_released_is_noticed_in_time(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, restored = iceberg.commit, False

    def commit_and_restore(job: CommitJob, timeout: float) -> Any:
        """Brings an older copy of the table back before anybody hears that it was committed."""
        nonlocal restored
        copy = dict(iceberg.committed), {name: list(lsns) for name, lsns in iceberg.lsns.items()}
        outcome = commit(job, timeout)
        if iceberg.lsns["orders"][-1] == lsns[-1] and not restored:
            restored = True
            iceberg.committed, iceberg.lsns = copy
        return outcome

    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_each(engine, 1, level=Tier.COMMITTED)
        iceberg.hold()
        lsns += write_each(engine, 2, 3, level=Tier.OBJECT_STORAGE)
        monkeypatch.setattr(iceberg, "commit", commit_and_restore)
        iceberg.let_go()
        wait_until(lambda: restored and iceberg.lsns["orders"] == lsns, "what the older copy lacked")
        wait_for_release(engine)
