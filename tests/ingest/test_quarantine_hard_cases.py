"""Quarantines that meet a full disk, a store that was away, a lost answer, or a table that was changed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest

from headrace.errors import EndpointUnavailable, SchemaError, ServerUnavailable
from headrace.ingest import low_water
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import LogLimits
from headrace.ingest.iceberg.errors import CommitterSilent
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.quarantine.stuck import StuckLimits
from headrace.model.tiers import Tier
from headrace.wal.segments import Segment
from headrace.wal.side_segments import copy_writes
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
from tests.ingest.test_quarantine import (
    COMMITTED,
    OBJECT_STORAGE,
    armed,
    quarantined,
    release,
    settle_with_others,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")

_REFUSED = SchemaError("no such type")


def test_a_copy_that_fails_holds_up_no_removal(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk that is what makes room."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headrace.ingest.quarantine.side_log.keep_draft", full)
    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        iceberg.hold()
        write_all(engine, 1, collection="good", level=Tier.OBJECT_STORAGE)
        first = engine._index.all()[0]
        iceberg.problems["bad"] = _REFUSED
        write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        engine.quarantine.enter("bad", "for this test")
        iceberg.let_go()
        write_all(engine, 2, collection="good", level=Tier.COMMITTED)
        wait_until(lambda: engine._cleaner.failing, "a copy that fails")
        wait_until(lambda: not first.path.exists(), "a file that is removed")
        wait_until(lambda: first.header.number not in store.numbers(), "an object that is removed")


def test_a_drop_makes_room_while_another_copy_fails(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1)

        def full(path: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("headrace.ingest.quarantine.side_log.keep_draft", full)
        iceberg.problems["worse"] = _REFUSED
        write_all(engine, 1, collection="worse", level=Tier.OBJECT_STORAGE)
        engine.quarantine.enter("worse", "for this test")
        wait_until(lambda: engine._cleaner.failing, "a copy that fails")
        engine.quarantine_calls.drop("bad")
        wait_until(lambda: not list((tmp_path / "data/side/bad").glob("*.wal")), "room")


def test_one_whose_copy_fails_does_not_keep_others_in_the_log(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(sources: Any, name: str, *rest: Any) -> Any:
        if name == "bad":
            raise OSError(errno.EIO, "a damaged sector")
        return copy_writes(sources, name, *rest)

    monkeypatch.setattr("headrace.ingest.quarantine.lifecycle.copy_writes", failing)
    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        for name in ("bad", "worse"):
            iceberg.problems[name] = _REFUSED
            write_all(engine, 1, collection=name, level=Tier.OBJECT_STORAGE)
            engine.quarantine.enter(name, "for this test")
        wait_until(lambda: list((tmp_path / "data/side/worse").glob("*.wal")), "the copy of the other one")


def test_a_table_that_did_not_answer_in_quarantine_is_missed_later_if_it_lacks_what_was_released(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, is_foreign = iceberg.watermarks, True

    def refuse(names: Any, *rest: Any) -> dict[str, Any]:
        return ask(names, *rest) | ({"bad": _REFUSED} if is_foreign and "bad" in names else {})

    monkeypatch.setattr(iceberg, "watermarks", refuse)
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_all(engine, 1, 2, 3, collection="bad", level=Tier.OBJECT_STORAGE)
        settle_with_others(engine)
        is_foreign = False
        release(engine)
        assert iceberg.lsns["bad"] == lsns
        wait_until(lambda: not store.sides(), "a clean store")
    del iceberg.committed["bad"]
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 9, collection="bad", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: engine.health()["problems"], "a problem")
        assert "--accept-loss bad:1-" in engine.health()["problems"][0]


def test_a_flush_does_not_overlook_what_is_copied_meanwhile(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_copy = Event()
    put = store.put_side

    def put_then(*what: Any) -> None:
        assert may_copy.wait(DEADLINE_SECONDS)
        put(*what)

    monkeypatch.setattr(store, "put_side", put_then)
    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        iceberg.problems["bad"] = _REFUSED
        [lsn] = write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        write_all(engine, 1, collection="good", level=Tier.COMMITTED)
        oldest = engine._index.oldest

        def after_the_copy(is_done: Callable[[Segment], bool]) -> Segment | None:
            may_copy.set()
            wait_until(lambda: not any("bad" in one.last_lsns for one in engine._index.all()))
            return oldest(is_done)

        monkeypatch.setattr(engine._index, "oldest", after_the_copy)
        engine.quarantine.enter("bad", "for this test")
        engine._cleaner.clean()
        assert not engine._reach.is_through(Tier.COMMITTED, lsn)


def test_a_quarantine_that_the_store_alone_knows_to_be_over_takes_writes_when_it_answers(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine, monkeypatch.context() as patch:
        lsns = quarantined(engine, iceberg, 1)
        iceberg.problems.clear()
        engine._cleaner.close(60)
        ended: list[str] = []

        def end_there(name: str) -> None:
            if name == "low water put":
                ended.append(name)
                raise OSError("as if the process had ended here")

        patch.setattr("headrace.ingest.low_water.reached", end_there)
        engine.quarantine.ask_release("bad")
        wait_until(lambda: ended)
        engine._commits.close(60)
    with away(store):
        engine = Engine(settings_for(tmp_path / "data"), store=store)
        engine.start()
        assert "bad" in engine.quarantine
    try:
        wait_until(lambda: "bad" not in engine.quarantine, "the store's answer")
        lsns += write_all(engine, 2, collection="bad", level=Tier.COMMITTED)
    finally:
        engine.close(60)
    assert iceberg.lsns["bad"] == lsns


def test_a_drop_that_the_store_alone_knows_of_tells_nobody_that_it_is_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine, monkeypatch.context() as patch:
        iceberg.problems["bad"] = _REFUSED
        with LocalSession(engine, "bad", {"producer": "p"}) as session:
            lsn = session.write(1, seq=1)
            settle_with_others(engine)
        engine._commits.close(60)
        engine._cleaner.close(60)
        armed(patch, "low water put", current_thread())
        with pytest.raises(OSError, match="as if the process"):
            engine.quarantine_calls.drop("bad")
    iceberg.problems.clear()
    with away(store):
        engine = Engine(settings_for(tmp_path / "data"), store=store)
        engine.start()
        session = LocalSession(engine, "bad", {"producer": "p", "resume_after": 0})
        session.greeting  # noqa: B018
    try:
        wait_until(lambda: "bad" not in engine.quarantine, "the store's answer")
        assert isinstance(session.send(batch(3), seq=2).join(), ServerUnavailable)
        write_all(engine, 2, collection="bad", level=Tier.COMMITTED)
        assert lsn not in session.lsns(COMMITTED)
    finally:
        session.hang_up()
        engine.close(60)


def test_a_release_lets_others_be_committed_in_between(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.ingest.quarantine.lifecycle.MOST_BYTES", 1)
    monkeypatch.setattr("headrace.ingest.commit_loop.MOST_BYTES", 1)
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = quarantined(engine, iceberg, 1, 2, 3)
        iceberg.problems.clear()
        before = len(iceberg.jobs)
        iceberg.hold()
        iceberg.holding.clear()
        asked = engine.quarantine.ask_release("bad")
        engine._commits.commit_now()
        assert iceberg.holding.wait(60)
        good = write_all(engine, 7, collection="good", level=Tier.OBJECT_STORAGE)
        iceberg.let_go()
        assert asked.done.wait(60)
        wait_until(lambda: good[0] in iceberg.lsns["good"])
        assert iceberg.lsns["bad"] == lsns
    names = [{one.name for one in job.collections} for job in iceberg.jobs[before:]]
    last_of_bad = max(at for at, one in enumerate(names) if "bad" in one)
    assert any("good" in one for one in names[:last_of_bad])


def test_a_process_that_does_not_answer_in_time_is_not_taken_for_one_that_died(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warehouse hangs, though the catalog answers."""
    commit = iceberg.commit
    limits = StuckLimits(refusals=2, failures=10**9, deaths=2, log_share=1e9)
    with running_engine(tmp_path / "data", store=store, stuck=limits) as engine:
        write_all(engine, 1, collection="only", level=Tier.COMMITTED)
        calls = 0

        def silent(job: CommitJob, timeout: float) -> Any:
            nonlocal calls
            calls += 1
            raise CommitterSilent("it did not answer in time")

        monkeypatch.setattr(iceberg, "commit", silent)
        write_all(engine, 2, collection="only", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: calls > 10)
        assert engine.quarantine.names() == []
        monkeypatch.setattr(iceberg, "commit", commit)


def test_a_restored_store_that_loses_its_disk_later_still_knows_the_quarantine(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    objects, copy = tmp_path / "objects", tmp_path / "copy"
    with running_engine(tmp_path / "data", store=Store(objects)) as engine:
        write_all(engine, 0, collection="good", level=Tier.COMMITTED)
        wait_until(lambda: low_water.read_newest(Store(objects)), "a mark")
    shutil.copytree(objects, copy)
    with running_engine(tmp_path / "data", store=Store(objects)) as engine:
        lsns = quarantined(engine, iceberg, 1, 2)
    shutil.rmtree(objects)
    shutil.copytree(copy, objects)
    with running_engine(tmp_path / "data", store=Store(objects)) as engine:
        wait_until(lambda: Store(objects).sides(), "the side log in the store")
        engine.flush(Tier.OBJECT_STORAGE, 60)
    shutil.rmtree(tmp_path / "data")
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=Store(objects)) as engine:
        assert engine.quarantine.names() == ["bad"]
        release(engine)
    assert iceberg.lsns["bad"] == lsns


def test_a_restart_after_a_mark_that_nobody_knows_the_end_of_finds_its_side_logs(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put was done, and the look for other servers after it failed."""
    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        iceberg.problems["bad"] = _REFUSED
        lsns = write_all(engine, 1, 2, collection="bad", level=Tier.OBJECT_STORAGE)
        write_all(engine, 1, collection="good", level=Tier.COMMITTED)
        put = store.put_low_water
        failed: list[int] = []

        def unsure(number: int, data: bytes, term: int) -> None:
            put(number, data, term)
            if low_water.LowWater.decode(data, "").quarantined["bad"].segments:
                failed.append(number)
                raise EndpointUnavailable("no answer")

        engine.quarantine.enter("bad", "for this test")
        monkeypatch.setattr(store, "put_low_water", unsure)
        wait_until(lambda: failed, "a mark that is put")
        monkeypatch.setattr(engine.quarantine, "set_aside", lambda *_: False)
        monkeypatch.setattr(store, "put_low_water", put)
        engine._cleaner.clean()
        wait_until(lambda: not engine.quarantine._has_leftovers, "a look at what is left over")
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=store) as engine:
        release(engine)
    assert iceberg.lsns["bad"] == lsns


def test_a_segment_is_released_by_what_its_own_tables_have_said_of_late(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """The cleaner comes late, when there is more to release than the tables were asked for."""
    with running_engine(tmp_path / "data", store=store, commit_interval=3600) as engine:
        lsns = write_all(engine, 1, level=Tier.OBJECT_STORAGE)
        engine.flush(Tier.COMMITTED, 60)
        wait_until(lambda: engine._commits.confirmed.tables, "what the tables have said")
        iceberg.committed.clear()
        iceberg.lsns.clear()
        write_all(engine, 2, collection="others", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: engine._index.is_uploaded(engine._index.all()[-1]))
        engine._cleaner._remove_committed()
        engine.flush(Tier.COMMITTED, 60)
        write_all(engine, 3, collection="others", level=Tier.OBJECT_STORAGE)
        engine.flush(Tier.COMMITTED, 60)
        wait_until(lambda: iceberg.lsns.get("orders") == lsns, "what the older copy lacked")


def test_a_release_includes_what_is_on_its_way_to_object_storage(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(
        tmp_path / "data", store=store, stuck=PATIENT, log=LogLimits(segment_seconds=3600)
    ) as engine:
        lsns = write_all(engine, 1, 2, collection="bad", level=Tier.LOCAL_DISK)
        engine.quarantine.enter("bad", "for this test")
        release(engine)
        assert iceberg.lsns["bad"] == lsns
        iceberg.problems["bad"] = _REFUSED
        write_all(engine, 3, collection="bad", level=Tier.LOCAL_DISK)
        engine.quarantine.enter("bad", "for this test")
        with pytest.raises(SchemaError):
            release(engine)
        assert "bad" in engine.quarantine


def test_a_stream_that_only_waits_ends_when_its_writes_are_dropped(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        iceberg.problems["bad"] = _REFUSED
        with LocalSession(engine, "bad") as session:
            session.await_level(session.write(1), OBJECT_STORAGE)
            engine.quarantine.enter("bad", "for this test")
            engine.quarantine_calls.drop("bad")
            assert isinstance(session.join(), ServerUnavailable)


def test_a_clean_up_that_is_late_does_not_put_a_released_table_back(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_releasing, is_released = Event(), Event()
    with running_engine(tmp_path / "data", store=store) as engine:
        quarantined(engine, iceberg, 1, 2)
        iceberg.problems.clear()
        removable = engine._index.removable

        def late(committed: Callable[[str], int]) -> list[Segment]:
            found = removable(committed)
            if found and current_thread() is engine._cleaner._thread:
                is_releasing.set()
                assert is_released.wait(DEADLINE_SECONDS)
            return found

        monkeypatch.setattr(engine._index, "removable", late)
        write_all(engine, 3, collection="good", level=Tier.COMMITTED)
        write_all(engine, 4, collection="good", level=Tier.COMMITTED)
        assert is_releasing.wait(DEADLINE_SECONDS)
        before = engine._mark.current.number
        engine.quarantine_calls.release("bad", 60)
        is_released.set()
        wait_until(lambda: engine._mark.current.number > before + 1, "a release of segments")
        recorded = engine._mark.current.tables["bad"]
        assert recorded.position == iceberg.committed["bad"].position


def test_rows_that_are_in_the_table_are_not_given_up(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit was done, its answer was lost, and the catalog was away when the table was to be asked."""
    commit, ask, is_away = iceberg.commit, iceberg.watermarks, False
    problem = EndpointUnavailable("the catalog is away")

    def lose_the_answer(job: CommitJob, timeout: float) -> Any:
        nonlocal is_away
        if not is_away:
            commit(job, timeout)
        is_away = True
        return {"bad": problem}

    def watermarks(names: Any, *rest: Any) -> dict[str, Any]:
        return ask(names, *rest) | ({"bad": problem} if is_away and "bad" in names else {})

    with running_engine(tmp_path / "data", store=store, stuck=PATIENT) as engine:
        write_all(engine, 0, collection="bad", level=Tier.COMMITTED)
        monkeypatch.setattr(iceberg, "commit", lose_the_answer)
        monkeypatch.setattr(iceberg, "watermarks", watermarks)
        [lsn] = write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: is_away)
        engine.quarantine.enter("bad", "for this test")
        is_away = False
        engine.quarantine_calls.drop("bad")
        assert iceberg.lsns["bad"][-1] == lsn
        assert engine.tier_of(lsn, "bad") == COMMITTED
