"""A collection that cannot be committed is kept apart: others go on, and nothing of it is lost or doubled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest

from headrace.durable import keep_draft
from headrace.errors import (
    ConfigError,
    HeadraceError,
    Quarantined,
    SchemaError,
    ServerUnavailable,
    Unauthorized,
)
from headrace.ingest.access import Identity
from headrace.ingest.actions import Actions
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import LogLimits
from headrace.ingest.iceberg.errors import CommitConflict
from headrace.ingest.low_water import LowWater, read_file, read_newest
from headrace.ingest.quarantine.stuck import StuckLimits
from headrace.ingest.reads import _held
from headrace.ingest.tokens import ANYBODY, Roles
from headrace.model.tiers import Tier
from headrace.wal.batches import LSN, batches_of
from headrace.wal.segments import CorruptLog
from tests.ingest.support import (
    PATIENT,
    FakeIceberg,
    LocalSession,
    Store,
    away,
    batch,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")

OBJECT_STORAGE, COMMITTED = Tier.OBJECT_STORAGE.name, Tier.COMMITTED.name
_REFUSED = SchemaError("no such type")
_KILLED = "as if the process had ended here"


def quarantined(engine: Engine, iceberg: FakeIceberg, *ids: int) -> list[int]:
    """Writes to `bad` that are in its side log only, after one that is committed; all their LSNs."""
    lsns = write_all(engine, 0, collection="bad", level=Tier.COMMITTED)
    iceberg.hold()
    iceberg.problems["bad"] = _REFUSED
    with LocalSession(engine, "bad") as session:
        for number in ids:
            lsns.append(session.write(number))
            session.await_level(lsns[-1], OBJECT_STORAGE)
    iceberg.let_go()
    settle_with_others(engine)
    return lsns


def settle_with_others(engine: Engine) -> None:
    wait_until(lambda: "bad" in engine.quarantine, "a quarantine")
    write_all(engine, 1, 2, collection="good", level=Tier.COMMITTED)
    wait_until(lambda: not any("bad" in one.last_lsns for one in engine._index.all()), "a release")


def rows_of(engine: Engine, name: str) -> list[int]:
    """The LSNs of what is in the log and in the side log, as a read takes them."""
    log = list(_held(engine.log_parts()))
    parts = engine.quarantine.segments(name)
    side = list(_held([(one.path, one.length) for one in parts]))
    after = max((one.last_lsn for one in parts), default=engine.quarantine.dropped_lsn(name))
    batches = [rows for one in side for rows in batches_of(one.load(), name, 0, 2**62)]
    batches += [rows for one in log for rows in batches_of(one.load(), name, after, 2**62)]
    return [lsn for rows in batches for lsn in rows.column(LSN).to_pylist()]


def release(engine: Engine, name: str = "bad") -> None:
    engine.quarantine_calls.release(name, 60)


# Entering.


def test_a_collection_that_is_refused_is_kept_apart_and_the_log_is_released(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2, 3)
        assert rows_of(engine, "bad") == lsns[1:]
        wait_until(lambda: len(store.numbers()) <= 2, "a clean store")
        health = engine.health()
        assert health["problems"] == ["collection 'bad' is in quarantine: no such type"]
        assert health["accepts_writes"]
        assert health["quarantine"][0]["collection"] == "bad"
        assert health["quarantine"][0]["side_log_bytes"] > 0


def test_its_watermark_stays_and_queries_tell_the_truth(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
        good = write_all(engine, 9, collection="good", level=Tier.COMMITTED)
        expected = [COMMITTED, OBJECT_STORAGE, OBJECT_STORAGE]
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == expected
        assert engine.tier_of(good[-1], "good") == COMMITTED
        assert engine.watermarks("bad")[COMMITTED] < lsns[1]
        assert engine.lag_seconds(Tier.COMMITTED) > 0
        with pytest.raises(HeadraceError, match="in quarantine"):
            engine.flush(Tier.COMMITTED, 0.1)
    with running_engine(tmp_path / "data", store=store) as engine:
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == expected


def test_new_writes_are_refused_with_the_reason_and_others_are_taken(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1)
        with LocalSession(engine, "bad") as session:
            error = session.send(batch(5)).join()
        assert isinstance(error, Quarantined)
        assert (error.collection, error.reason) == ("bad", "no such type")
        assert "quarantine release bad" in error.message
        write_all(engine, 1, collection="good", level=Tier.COMMITTED)


def test_a_stream_that_is_open_is_refused_at_its_next_write(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        iceberg.problems["bad"] = _REFUSED
        with LocalSession(engine, "bad") as session:
            session.write(1)
            settle_with_others(engine)
            assert isinstance(session.send(batch(2)).join(), Quarantined)


def test_tokens_see_and_change_what_they_may(tmp_path: Path, iceberg: FakeIceberg, store: Store) -> None:
    reader = Identity("reader", Roles(read=("good",)))
    writer = Identity("writer", Roles(write=("bad",)))
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1)
        actions = Actions(engine)

        def ask(identity: Identity, action: str, **body: Any) -> Any:
            return json.loads(actions.run(action, json.dumps(body).encode(), identity))

        assert ask(reader, "list_quarantine") == {"quarantine": []}
        assert ask(reader, "health")["quarantine"] == []
        assert ask(reader, "health")["status"] == "degraded"
        [shown] = ask(writer, "list_quarantine")["quarantine"]
        assert (shown["collection"], shown["reason"]) == ("bad", "no such type")
        with pytest.raises(Unauthorized):
            ask(reader, "release_quarantine", name="bad")
        with pytest.raises(Unauthorized):
            ask(writer, "drop_quarantine", name="bad", confirm="bad")
        with pytest.raises(ConfigError, match="repeat the name 'bad'"):
            ask(ANYBODY, "drop_quarantine", name="bad", confirm="good")
        iceberg.problems.clear()
        assert ask(writer, "release_quarantine", name="bad")["name"] == "bad"
        assert ask(writer, "list_quarantine") == {"quarantine": []}


# Leaving.


def test_a_release_commits_everything_in_order_and_takes_writes_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2, 3)
        iceberg.problems.clear()
        release(engine)
        assert iceberg.lsns["bad"] == lsns
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == [COMMITTED] * 4
        lsns += write_all(engine, 4, collection="bad", level=Tier.COMMITTED)
        assert iceberg.lsns["bad"] == lsns
        wait_until(lambda: not list((tmp_path / "data/side").rglob("*.wal")) and not store.sides())
        wait_until(lambda: engine.health()["status"] == "ok")
    with running_engine(tmp_path / "data", store=store) as engine:  # and the table fits the log
        lsns += write_all(engine, 5, collection="bad", level=Tier.COMMITTED)
    assert iceberg.lsns["bad"] == lsns


def test_a_stream_that_waited_hears_of_the_release(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        iceberg.problems["bad"] = _REFUSED
        with LocalSession(engine, "bad") as session:
            lsn = session.write(1)
            settle_with_others(engine)
            iceberg.problems.clear()
            release(engine)
            session.await_level(lsn, COMMITTED)


def test_a_release_that_fails_says_why_and_changes_nothing(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1)
        with pytest.raises(SchemaError, match="no such type"):
            release(engine)
        assert "bad" in engine.quarantine
        assert rows_of(engine, "bad") == lsns[1:]
        write_all(engine, 1, collection="good", level=Tier.COMMITTED)


def test_what_is_not_in_quarantine_is_neither_released_nor_dropped(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 1, collection="good", level=Tier.COMMITTED)
        with pytest.raises(ConfigError, match="'good' is not in quarantine"):
            release(engine, "good")
        with pytest.raises(ConfigError, match="'good' is not in quarantine"):
            engine.quarantine_calls.drop("good")


def test_a_drop_gives_the_writes_up_and_says_that_they_are_lost(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
        first, last = engine.quarantine_calls.drop("bad")
        assert first <= lsns[1] <= lsns[2] <= last
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == [COMMITTED, "LOST", "LOST"]
        assert engine.tier_of(lsns[1], "good") == COMMITTED
        assert rows_of(engine, "bad") == []
        iceberg.problems.clear()
        later = write_all(engine, 4, collection="bad", level=Tier.COMMITTED)
        assert iceberg.lsns["bad"] == [lsns[0], *later]
        wait_until(lambda: not list((tmp_path / "data/side").rglob("*.wal")) and not store.sides())
    with running_engine(tmp_path / "data", store=store) as engine:
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == [COMMITTED, "LOST", "LOST"]


def test_writes_that_are_dropped_while_they_are_in_the_log_are_not_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """The committer reads the same segments for others, and for later writes."""
    with running_engine(
        tmp_path / "data", store=store, stuck=PATIENT, log=LogLimits(segment_seconds=3600)
    ) as engine:
        iceberg.problems = {"good": _REFUSED, "bad": _REFUSED}
        good = write_all(engine, 1, collection="good", level=Tier.LOCAL_DISK)
        dropped = write_all(engine, 2, collection="bad", level=Tier.LOCAL_DISK)
        engine.flush(Tier.OBJECT_STORAGE, 60)
        assert any({"good", "bad"} <= one.last_lsns.keys() for one in engine._index.all())
        engine.quarantine.enter("bad", "for this test")
        engine.quarantine_calls.drop("bad")
        later = write_all(engine, 3, collection="bad", level=Tier.LOCAL_DISK)
        engine.flush(Tier.OBJECT_STORAGE, 60)
        assert rows_of(engine, "bad") == later
        iceberg.problems.clear()
        engine.flush(Tier.COMMITTED, 60)
        assert iceberg.lsns == {"good": good, "bad": later}
        assert engine.tier_of(dropped[0], "bad") == "LOST"


def test_a_writer_that_waited_for_dropped_writes_never_hears_that_they_are_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        iceberg.problems["bad"] = _REFUSED
        with LocalSession(engine, "bad", {"producer": "p"}) as session:
            lsn = session.write(1, seq=1)
            settle_with_others(engine)
            engine.quarantine_calls.drop("bad")
            iceberg.problems.clear()
            later = write_all(engine, 2, collection="bad", level=Tier.COMMITTED)
            assert isinstance(session.send(batch(3), seq=2).join(), ServerUnavailable)
            assert session.lsns(COMMITTED) == []
        with LocalSession(engine, "bad", {"producer": "p", "resume_after": 0}) as again:
            assert any(first <= lsn <= last for first, last in again.greeting["lost"])
            again.send(batch(1), seq=1)  # sent once more: it is known, and lost
            again.send(batch(3), seq=2)
            wait_until(lambda: again.lsns(COMMITTED))
            assert lsn not in again.lsns(COMMITTED)
    assert iceberg.lsns["bad"][0] == later[0]


@pytest.mark.parametrize(
    "is_known", [False, True], ids=["an unknown quarantine", "a quarantine that is over"]
)
def test_what_the_store_knew_better_than_the_disk_holds_once_it_answers(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """The disk had no room for the mark of a drop, and the server starts without its store."""
    iceberg.problems = {"good": _REFUSED, "bad": _REFUSED}  # the log keeps everything
    with (
        monkeypatch.context() as patch,
        running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine,
    ):
        write_all(engine, 1, collection="good", level=Tier.LOCAL_DISK)
        with LocalSession(engine, "bad", {"producer": "p"}) as session:
            lsn = session.write(1, seq=1)
            session.await_level(lsn, OBJECT_STORAGE)
        if is_known:
            engine.quarantine.enter("bad", "for this test")
        patch.setattr("headrace.ingest.low_water.write_file", lambda *_: False)
        if not is_known:
            engine.quarantine.enter("bad", "for this test")
        engine.quarantine_calls.drop("bad")
    with away(store):
        engine = Engine(settings_for(tmp_path / "data", stuck=PATIENT), store=store)
        engine.start()
        again = LocalSession(engine, "bad", {"producer": "p", "resume_after": 0})
        assert again.greeting["last_seq"] == 1
        assert ("bad" in engine.quarantine) == is_known
    try:
        wait_until(lambda: engine.tier_of(lsn, "bad") == "LOST", "the mark of the store")
        engine.flush(Tier.OBJECT_STORAGE, 60)
        iceberg.problems.clear()
        later = write_all(engine, 2, collection="bad", level=Tier.COMMITTED)
        assert isinstance(again.send(batch(9), seq=2).join(), ServerUnavailable)
        assert again.lsns(COMMITTED) == []
        with LocalSession(engine, "bad", {"producer": "p", "resume_after": 0}) as resumed:
            resumed.send(batch(3), seq=2)
            wait_until(lambda: resumed.lsns(COMMITTED))
            assert lsn not in resumed.lsns(COMMITTED)
        assert iceberg.lsns["bad"][0] == later[0]
    finally:
        again.hang_up()
        engine.close(60)


# Everything survives.


def armed(monkeypatch: pytest.MonkeyPatch, point: str, thread: Thread | None = None) -> list[str]:
    """Ends the thread that gets there, or this one, once, as if the process had ended."""
    ended: list[str] = []

    def end_there(name: str) -> None:
        if name == point and not ended and thread in (None, current_thread()):
            ended.append(name)
            raise OSError(_KILLED)

    for module in ("quarantine.lifecycle", "quarantine.side_log", "low_water", "cleaner"):
        monkeypatch.setattr(f"headrace.ingest.{module}.reached", end_there)
    return ended


ENTERING = ["quarantine entering", "low water putting", "low water put", "quarantine entered"]
COPYING = ["side log writing", "side log written", "side log put", "side log recorded", "wal removing"]


@pytest.mark.parametrize("point", [*ENTERING, *COPYING])
@pytest.mark.parametrize("lost", [False, True], ids=["same disk", "new disk"])
def test_a_quarantine_that_ends_at_any_step_of_its_beginning_loses_nothing(
    tmp_path: Path,
    iceberg: FakeIceberg,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    lost: bool,
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine, monkeypatch.context() as patch:
        ended = armed(patch, point)
        iceberg.hold()
        iceberg.problems["bad"] = _REFUSED
        lsns = write_all(engine, 1, 2, 3, collection="bad", level=Tier.OBJECT_STORAGE)
        iceberg.let_go()
        write_all(engine, 1, collection="good", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: ended, point)
        engine._closing = True
        engine._commits.close(60)
        engine._cleaner.close(60)
    if lost:
        shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        settle_with_others(engine)
        assert rows_of(engine, "bad") == lsns
        iceberg.problems.clear()
        release(engine)
        wait_until(lambda: not store.sides(), "a clean store")
        wait_until(lambda: not list((tmp_path / "data/side").glob("*/*")), "a clean disk")
        wait_until(lambda: not engine._mark.current.released_sides, "a mark that has nothing to remove")
    assert iceberg.lsns["bad"] == lsns


@pytest.mark.parametrize("point", ["quarantine lifting", "low water put", "quarantine lifted"])
@pytest.mark.parametrize("lost", [False, True], ids=["same disk", "new disk"])
def test_a_release_that_ends_at_any_step_doubles_nothing(
    tmp_path: Path,
    iceberg: FakeIceberg,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    lost: bool,
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
        iceberg.problems.clear()
        ended = armed(monkeypatch, point)
        engine.quarantine.ask_release("bad")
        wait_until(lambda: ended)
        engine._commits.close(60)
    if lost:
        shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        if "bad" in engine.quarantine:
            release(engine)
        lsns += write_all(engine, 3, collection="bad", level=Tier.COMMITTED)
        wait_until(lambda: not store.sides(), "a clean store")
    assert iceberg.lsns["bad"] == lsns


@pytest.mark.parametrize("point", ["quarantine dropping", "low water put", "quarantine dropped"])
@pytest.mark.parametrize("lost", [False, True], ids=["same disk", "new disk"])
def test_a_drop_that_ends_at_any_step_is_done_or_not(
    tmp_path: Path,
    iceberg: FakeIceberg,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    lost: bool,
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
        armed(monkeypatch, point, current_thread())
        with pytest.raises(OSError, match=_KILLED):
            engine.quarantine_calls.drop("bad")
    if lost:
        shutil.rmtree(tmp_path / "data")
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=store) as engine:
        is_done = "bad" not in engine.quarantine
        assert is_done or point != "quarantine dropped"
        if is_done:
            assert [engine.tier_of(lsn, "bad") for lsn in lsns] == [COMMITTED, "LOST", "LOST"]
            lsns = lsns[:1]
        else:
            release(engine)
        lsns += write_all(engine, 3, collection="bad", level=Tier.COMMITTED)
    assert iceberg.lsns["bad"] == lsns


def side_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "data/side").rglob("*.wal"))


@pytest.mark.parametrize("harm", ["lost", "cut off", "damaged"])
def test_a_side_log_that_the_disk_lost_comes_back_from_the_store(
    tmp_path: Path, iceberg: FakeIceberg, harm: str
) -> None:
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
    [path] = side_files(tmp_path)
    data = path.read_bytes()
    path.unlink()  # the object may be another name of it
    if harm == "cut off":
        path.write_bytes(data[:-8])
    elif harm == "damaged":
        path.write_bytes(data[:-20] + b"\0" * 20)
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        release(engine)
    assert iceberg.lsns["bad"] == lsns


def test_a_side_log_that_is_nowhere_is_given_up_by_a_person_only(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
    for folder in ("data", "objects"):
        for path in (tmp_path / folder / "side").rglob("*.wal"):
            path.unlink()
    with pytest.raises(CorruptLog, match="restore it from a copy") as refused:
        Engine(settings_for(tmp_path / "data"), store=Store(tmp_path / "objects"))
    given_up = refused.value.message.split("--accept-loss ")[1].split()[0]
    iceberg.problems.clear()
    accepted: Any = frozenset([given_up])
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects"), accept_loss=accepted) as engine:
        assert [engine.tier_of(lsn, "bad") for lsn in lsns] == [COMMITTED, "LOST", "LOST"]
        release(engine)
        later = write_all(engine, 3, collection="bad", level=Tier.COMMITTED)
    assert iceberg.lsns["bad"] == [lsns[0], *later]


def test_a_store_that_lost_a_side_log_gets_it_again(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
    for path in (tmp_path / "objects/side").rglob("*.wal"):
        path.unlink()
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")):
        wait_until(lambda: list((tmp_path / "objects/side").rglob("*.wal")), "the side log in the store")
    shutil.rmtree(tmp_path / "data")
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        release(engine)
    assert iceberg.lsns["bad"] == lsns


def test_a_folder_that_was_moved_keeps_its_quarantine(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1)
    shutil.copytree(tmp_path / "data", tmp_path / "elsewhere")
    iceberg.problems.clear()
    with running_engine(tmp_path / "elsewhere", store=store) as engine:
        assert engine.quarantine.names() == ["bad"]
        release(engine)
    assert iceberg.lsns["bad"] == lsns


def test_a_full_disk_has_no_copy_in_part_and_heals(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True

    def full(path: Path) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        keep_draft(path)

    monkeypatch.setattr("headrace.ingest.quarantine.side_log.keep_draft", full)
    with running_engine(tmp_path / "data", store=store) as engine:
        iceberg.hold()
        iceberg.problems["bad"] = _REFUSED
        lsns = write_all(engine, 1, 2, collection="bad", level=Tier.OBJECT_STORAGE)
        iceberg.let_go()
        wait_until(lambda: engine._cleaner.failing, "a copy that fails")
        # It is tried again meanwhile, and there is a draft for as long as that takes.
        wait_until(lambda: not side_files(tmp_path), "a folder without a copy")
        assert rows_of(engine, "bad") == lsns
        is_full = False
        settle_with_others(engine)
        assert rows_of(engine, "bad") == lsns
        assert not list((tmp_path / "data/side").rglob("*.new"))


def test_the_limit_counts_side_logs(tmp_path: Path, iceberg: FakeIceberg, store: Store) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, *range(40))
        size = engine.quarantine.bytes
    with running_engine(tmp_path / "data", store=store, most_log_bytes=size - 1) as engine:
        assert not engine.health()["accepts_writes"]
        assert any("bytes of log are in quarantine" in said for said in engine.health()["problems"])
        engine.quarantine_calls.drop("bad")
        wait_until(lambda: engine.health()["accepts_writes"])


def test_runs_of_producers_survive_a_quarantine_and_a_restart(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    iceberg.problems["bad"] = _REFUSED
    iceberg.hold()
    with running_engine(tmp_path / "data", store=store) as engine:
        with LocalSession(engine, "bad", {"producer": "p"}) as session:
            lsns = [session.write(number, seq=number) for number in (1, 2, 3)]
            session.await_level(lsns[-1], OBJECT_STORAGE)
        iceberg.let_go()
        settle_with_others(engine)
    iceberg.problems.clear()
    with (
        running_engine(tmp_path / "data", store=store) as engine,
        LocalSession(engine, "bad", {"producer": "p", "resume_after": 0}) as again,
    ):
        again.greeting  # noqa: B018 - waits until the stream is open
        release(engine)
        for lsn in lsns:
            again.await_level(lsn, COMMITTED)
    assert iceberg.lsns["bad"] == lsns


def test_what_the_mark_has_not_released_is_left_alone_whoever_put_it_into_a_side_log(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1)
    [ours] = side_files(tmp_path)
    like_ours, draft = f"{7:020}-{1:016x}.wal", f"{8:020}-{1:016x}.wal.new"
    foreign = [
        folder / "side" / name
        for folder in (tmp_path / "data", tmp_path / "objects")
        for name in (
            "bad/.DS_Store",
            "bad/notes/a",
            f"bad/{9:020}-{1:016x}.wal/a",
            f"bad/{like_ours}",
            f"bad/{draft}",
            f"orders/{like_ours}",
            f"my copy/{like_ours}",
        )
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    with running_engine(tmp_path / "data", store=store) as engine:
        wait_until(lambda: not engine.quarantine._has_leftovers, "a look at what is there")
        assert ours.exists()
        engine.quarantine_calls.drop("bad")
        wait_until(lambda: not engine.quarantine._has_leftovers, "a removal")
        assert engine._cleaner.failing is None
    assert not ours.exists()
    assert store.sides() == [("bad", like_ours), ("orders", like_ours)]
    assert all(path.exists() for path in foreign)
    assert f"bad/{like_ours} is of no side log that the low-water mark names: it is ignored" in caplog.text
    assert "has side/bad/.DS_Store, which is not of the log: it is ignored" in caplog.text


# The mark.


def test_a_mark_of_a_server_without_quarantine_is_read(tmp_path: Path) -> None:
    mark = LowWater(number=3, first_segment=7).encode()
    for name in (b'"quarantined":{}', b'"dropped":{}'):
        assert name in mark
        mark = mark.replace(b"," + name, b"")
    assert LowWater.decode(mark, "here") == LowWater(number=3, first_segment=7)


def test_a_server_that_knows_no_quarantine_cannot_read_the_mark(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1)
    for mark in (read_file(tmp_path / "data"), read_newest(store)):
        assert mark is not None
        assert b'"tables":' not in mark.encode()
        assert LowWater.decode(mark.encode(), "here") == mark


# When.


def test_an_outage_of_everything_quarantines_nobody(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    limits = StuckLimits(refusals=2, failures=2, deaths=2, log_share=0)
    with running_engine(tmp_path / "data", store=store, stuck=limits) as engine:
        write_all(engine, 1, collection="one", level=Tier.COMMITTED)
        for name in ("one", "two", "three"):
            iceberg.problems[name] = CommitConflict("nothing can be written")
            write_all(engine, 2, collection=name, level=Tier.OBJECT_STORAGE)
        before = engine.commit_failures
        wait_until(lambda: engine.commit_failures > before + 30, "commits that fail")
        for name in ("one", "two", "three"):
            iceberg.problems[name] = _REFUSED
        before = engine.commit_failures
        wait_until(lambda: engine.commit_failures > before + 30, "commits that are refused")
        assert engine.quarantine.names() == []
        iceberg.problems.clear()
        engine.flush(Tier.COMMITTED, 60)


@pytest.mark.parametrize(
    "limits",
    [
        StuckLimits(failures=5, log_share=1e9),
        StuckLimits(failures=10**9, log_share=1e-9),
    ],
    ids=["failures in a row", "share of the log"],
)
def test_one_that_fails_while_others_are_committed_is_quarantined(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, limits: StuckLimits
) -> None:
    with running_engine(tmp_path / "data", store=store, stuck=limits) as engine:
        iceberg.problems["bad"] = CommitConflict("always somebody else")
        lsns = write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        settle_with_others_soon(engine)
        assert "always somebody else" in engine.quarantine.listed()[0].reason
        iceberg.problems.clear()
        release(engine)
        assert iceberg.lsns["bad"] == lsns


def settle_with_others_soon(engine: Engine) -> None:
    """Others have to be committed while the one is stuck."""

    def is_in() -> Iterator[bool]:
        while True:
            write_all(engine, 1, collection="good", level=Tier.COMMITTED)
            yield "bad" in engine.quarantine

    looks = is_in()
    wait_until(lambda: next(looks), "a quarantine")
