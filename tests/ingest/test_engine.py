"""The engine when the parts that it depends on fail, hang and heal, and over restarts."""

from __future__ import annotations

import errno
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.errors import (
    ConfigError,
    EndpointUnavailable,
    SchemaError,
    ServerUnavailable,
    StorageFull,
    Terminal,
    Unauthorized,
    WriteTimeout,
)
from headrace.ingest.actions import Actions
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import LogLimits
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.log import seeded
from headrace.ingest.tokens import Identity, Roles
from headrace.model.lsn import RESERVED_AT_ONCE
from headrace.model.tiers import Tier
from tests.ingest.support import (
    PATIENT,
    PRODUCER_SILENCE_SECONDS,
    FakeIceberg,
    LocalSession,
    Store,
    batch,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import DEADLINE_SECONDS, wait_until
from tests.wal.support import NO_SPACE, Disk

MEMORY, LOCAL_DISK, OBJECT_STORAGE, COMMITTED = (tier.name for tier in Tier)


IN_FOLDERS = {MEMORY: "nothing", LOCAL_DISK: "process", OBJECT_STORAGE: "process", COMMITTED: "process"}


# Never early, and healing.


def test_no_write_is_at_object_storage_while_puts_fail(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    store.broken = "the store is down"
    with running_engine(tmp_path / "data", store=store) as engine, LocalSession(engine) as session:
        lsn = session.write(1)
        session.await_level(lsn, LOCAL_DISK)
        wait_until(lambda: engine.upload_failures > 1)
        assert session.lsns(OBJECT_STORAGE) == session.lsns(COMMITTED) == []
        assert engine.watermarks()[OBJECT_STORAGE] < lsn
        assert engine.health()["status"] == "degraded"
        assert "the store is down" in engine.health()["problems"]
        assert engine.lag_seconds(Tier.OBJECT_STORAGE) > 0
        with pytest.raises(WriteTimeout, match="OBJECT_STORAGE in time: the store is down"):
            engine.flush(Tier.OBJECT_STORAGE, 0.01)
        store.broken = None
        session.await_level(lsn, COMMITTED)
        assert engine.health()["status"] == "ok"
    assert iceberg.lsns == {"orders": [lsn]}


def test_no_write_is_at_object_storage_while_a_put_hangs(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    store.hold()
    with running_engine(tmp_path / "data", store=store) as engine, LocalSession(engine) as session:
        lsns = [session.write(number) for number in range(5)]
        session.await_level(lsns[-1], LOCAL_DISK)
        assert store.holding.wait(DEADLINE_SECONDS)
        assert session.lsns(OBJECT_STORAGE) == []
        store.let_go()
        session.await_level(lsns[-1], COMMITTED)
    assert iceberg.lsns == {"orders": lsns}


def test_no_write_is_committed_while_commits_fail_or_hang(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.problem = EndpointUnavailable("the catalog is down")
    with running_engine(tmp_path) as engine, LocalSession(engine) as session:
        lsn = session.write(1)
        session.await_level(lsn, OBJECT_STORAGE)
        wait_until(lambda: engine.commit_failures > 1)
        assert session.lsns(COMMITTED) == []
        assert "the catalog is down" in engine.health()["problems"]
        iceberg.hold()
        iceberg.problem = None
        assert iceberg.holding.wait(DEADLINE_SECONDS)
        assert session.lsns(COMMITTED) == []
        assert engine.tier_of(lsn) == OBJECT_STORAGE
        iceberg.let_go()
        session.await_level(lsn, COMMITTED)
        assert engine.tier_of(lsn) == COMMITTED
        assert {"snapshot_id": 1001} in session.messages


def test_a_commit_whose_answer_is_lost_is_told_of_once_it_is_known(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.answers_lost = True
    with running_engine(tmp_path) as engine, LocalSession(engine) as session:
        lsn = session.write(1)
        wait_until(lambda: engine.commit_failures > 1)
        assert session.lsns(COMMITTED) == []
        iceberg.answers_lost = False
        session.await_level(lsn, COMMITTED)
    assert iceberg.lsns == {"orders": [lsn]}


@pytest.mark.parametrize(
    "defect", [ConfigError("not our table"), ZeroDivisionError("a defect"), OSError(5, "x")]
)
def test_whatever_a_commit_raises_the_next_is_tried(
    tmp_path: Path, iceberg: FakeIceberg, defect: Exception
) -> None:
    iceberg.problem = defect  # type: ignore[assignment]
    with running_engine(tmp_path) as engine:
        [lsn] = write_all(engine, 1)
        wait_until(lambda: engine.commit_failures > 1)
        iceberg.problem = None
        engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
    assert iceberg.lsns == {"orders": [lsn]}


def test_a_collection_that_cannot_be_committed_does_not_hold_up_another(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when what waits of it is more than one commit reads."""
    monkeypatch.setattr("headrace.ingest.commit_loop.MOST_BYTES", 1)
    iceberg.problems["bad"] = SchemaError("no such type")
    with running_engine(tmp_path, stuck=PATIENT) as engine:
        for number in range(3):
            write_all(engine, number, collection="bad", level=Tier.OBJECT_STORAGE)
        good = write_all(engine, 1, 2, collection="good", level=Tier.COMMITTED)
        assert engine.health()["problems"] == ["no such type"]
        assert engine.watermarks("good")[COMMITTED] >= good[-1]
        assert engine.watermarks("bad")[COMMITTED] == 0
        assert engine.watermarks()[COMMITTED] == 0
    assert iceberg.lsns == {"good": good}


def test_closing_does_not_wait_for_a_commit_that_hangs(
    tmp_path: Path, iceberg: FakeIceberg, caplog: pytest.LogCaptureFixture
) -> None:
    iceberg.hold()
    with running_engine(tmp_path) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
        assert iceberg.holding.wait(DEADLINE_SECONDS)
        assert engine._commits._thread.is_alive()
        engine._commits.close(timeout=0.1)
        engine._commits._thread.join(DEADLINE_SECONDS)
        assert not engine._commits._thread.is_alive()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_full_disk_refuses_writes_by_name_and_heals_by_itself(tmp_path: Path, iceberg: FakeIceberg) -> None:
    disk = Disk()
    with running_engine(tmp_path, disk=disk, log=LogLimits(segment_seconds=3600)) as engine:
        [before] = write_all(engine, 1, level=Tier.LOCAL_DISK)
        disk.write_errors += [NO_SPACE] * 1000
        with LocalSession(engine) as session:
            waiting = session.write(2)
            wait_until(lambda: engine.refusal() is not None)
            assert isinstance(engine.refusal(), StorageFull)
            assert session.lsns(LOCAL_DISK) == []
            disk.write_errors.clear()
            session.await_level(waiting, LOCAL_DISK)
            wait_until(lambda: engine.refusal() is None)
            after = session.write(3)
            engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
    assert iceberg.lsns == {"orders": [before, waiting, after]}


# Restarts.


def test_a_restart_goes_on_where_the_last_process_ended(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with (
        running_engine(tmp_path) as engine,
        LocalSession(engine, options={"producer": "till", "first_seq": 10}) as session,
    ):
        lsns = [session.write(number, seq=seq) for number, seq in ((1, 10), (2, 11))]
        engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
        before = engine.watermarks("orders")
    with running_engine(tmp_path) as engine:
        assert engine.lost() == [(3, RESERVED_AT_ONCE)]
        engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
        assert engine.watermarks("orders") == before
        assert [engine.tier_of(lsn) for lsn in (*lsns, 3, RESERVED_AT_ONCE)] == [COMMITTED] * 2 + ["LOST"] * 2
        assert engine.tier_of(RESERVED_AT_ONCE + 1) == engine.tier_of(0) == "UNKNOWN"
        with LocalSession(engine, options={"producer": "till", "resume_after": 0}) as session:
            assert session.greeting == {
                "collection": "orders",
                "last_seq": 11,
                "forgotten_lsn": 0,
                "assigned": [[10, 1, 2]],
                "lost": [[3, RESERVED_AT_ONCE]],
                "watermarks": before,
                "survives": IN_FOLDERS,
            }
            session.await_level(lsns[-1], COMMITTED)
            assert session.lsns(MEMORY) == []
            session.send(batch(2), seq=11).await_level(lsns[1], MEMORY)
            new = session.write(3, seq=12)
            assert new == RESERVED_AT_ONCE + 1
            assert session.lsns(MEMORY) == [lsns[1], new]
        engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
    assert iceberg.lsns == {"orders": [*lsns, new]}


def test_flushing_after_a_restart_returns_at_once(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path) as engine:
        write_all(engine, 1)
    iceberg.problem = EndpointUnavailable("the catalog is down")
    with running_engine(tmp_path) as engine:
        engine.flush(Tier.LOCAL_DISK, 0)
        assert engine.watermarks()[MEMORY] == engine.watermarks()[LOCAL_DISK] == 1


def test_what_was_committed_before_a_crash_is_found_in_the_tables(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.answers_lost = True
    with running_engine(tmp_path) as engine:
        [lsn] = write_all(engine, 1)
        wait_until(lambda: engine.commit_failures)
    iceberg.answers_lost = False
    jobs = len(iceberg.jobs)
    with running_engine(tmp_path) as engine:
        wait_until(lambda: engine.tier_of(lsn) == COMMITTED)
    assert len(iceberg.jobs) == jobs
    assert iceberg.lsns == {"orders": [lsn]}


def test_collections_and_their_changes_survive_a_restart_and_the_loss_of_the_disk(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    wider = pa.schema([("id", pa.int64()), ("name", pa.string())])
    key, schema = ("/id",), {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}

    def check(engine: Engine) -> None:
        assert engine.collections.names() == ["made", "orders", "typed"]
        assert engine.collections.schema("orders") == wider
        assert engine.collections.schema("made") == pa.schema([("x", pa.float64())])
        assert engine.collections.get("typed").key == key
        assert engine.collections.get("typed").json_schema == schema

    url = (tmp_path / "objects").as_uri()
    with running_engine(tmp_path / "data", store_url=url) as engine:
        engine.collections.create("made", pa.schema([("x", pa.float64())]))
        engine.collections.create_keyed("typed", key, schema)
        write_all(engine, 1)
        with LocalSession(engine) as session:
            session.send(pa.record_batch({"id": pa.array([1]), "name": pa.array(["x"])}))
            wait_until(lambda: session.acks)
        check(engine)
        engine.flush(Tier.OBJECT_STORAGE, DEADLINE_SECONDS)
    with running_engine(tmp_path / "data", store_url=url) as engine:
        check(engine)
    shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store_url=url) as engine:
        check(engine)


# Sessions come and go.


def test_a_session_that_is_gone_leaves_nothing_behind(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path) as engine:
        for number in range(5):
            with LocalSession(engine, options={"producer": f"p{number}"}) as session:
                session.write(number, seq=1)
        wait_until(lambda: not engine.sessions())
        assert engine.statistics().disconnects == 5
        assert engine.statistics().writes == 5


def test_a_client_that_is_done_is_told_everything_before_the_stream_ends(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    with running_engine(tmp_path) as engine:
        session = LocalSession(engine)
        lsns = [session.write(number) for number in range(3)]
        session.done()
        assert session.error is None
        for tier in Tier:
            assert session.lsns(tier.name) == lsns


def test_closing_ends_sessions_that_wait_and_says_that_all_is_synced(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.problem = EndpointUnavailable("so that the session waits")
    engine = Engine(settings_for(tmp_path))
    engine.start()
    with LocalSession(engine) as session:
        lsn = session.write(1)
        session.end()
        assert engine.close()
        assert isinstance(session.join(), ServerUnavailable)
        assert session.lsns(LOCAL_DISK) == [lsn]
    with pytest.raises(flight.FlightUnavailableError):
        LocalSession(engine)


def test_an_engine_that_was_never_started_can_be_closed(tmp_path: Path, iceberg: FakeIceberg) -> None:
    assert Engine(settings_for(tmp_path)).close()
    with running_engine(tmp_path):
        pass


def test_a_folder_that_no_catalog_can_name_is_refused_and_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="has \\?, # or %"):
            Engine(settings_for(tmp_path / "100%"))


@pytest.mark.parametrize("tier", list(Tier))
def test_flushing_waits_for_its_level_and_for_no_more(
    tmp_path: Path, iceberg: FakeIceberg, tier: Tier
) -> None:
    store = Store(tmp_path / "objects")
    if tier <= Tier.LOCAL_DISK:
        store.broken = "the store is down"
    if tier <= Tier.OBJECT_STORAGE:
        iceberg.problem = EndpointUnavailable("the catalog is down")
    # Neither a segment nor a commit comes by itself.
    with running_engine(
        tmp_path / "data", store=store, log=LogLimits(segment_seconds=3600), commit_interval=3600.0
    ) as engine:
        [lsn] = write_all(engine, 1)
        engine.flush(tier, DEADLINE_SECONDS)
        assert Tier[engine.tier_of(lsn)] >= tier


def test_what_a_token_may_not_see_is_not_shown(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.problems["bad"] = SchemaError("collection 'bad' has no such type")
    reader = Identity("reader", Roles(read=("good",)))
    writer = Identity("writer", Roles(write=("bad",)))
    with running_engine(tmp_path, stuck=PATIENT) as engine:
        write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        good = write_all(engine, 1, collection="good", level=Tier.COMMITTED)
        actions = Actions(engine)

        def ask(identity: Identity, action: str, **body: Any) -> Any:
            return json.loads(actions.run(action, json.dumps(body).encode(), identity))

        assert ask(reader, "watermarks")["watermarks"][COMMITTED] >= good[-1]
        assert ask(writer, "watermarks")["watermarks"][COMMITTED] == 0
        assert ask(reader, "watermarks", lsns=good)["lsns"] == {str(good[-1]): COMMITTED}
        shown = ask(reader, "health")
        # That something is wrong is no secret, or it would be called well.
        assert (shown["status"], shown["problems"]) == ("degraded", [])
        assert ask(writer, "health")["problems"] == ["collection 'bad' has no such type"]
        for name in ("bad", "nowhere"):
            with pytest.raises(Unauthorized, match=f"may not read collection '{name}'"):
                ask(reader, "watermarks", collection=name)


def test_a_server_that_reads_no_stream_is_not_ready(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.problem = EndpointUnavailable("the catalog is down")
    with running_engine(tmp_path, most_log_bytes=1) as engine:
        assert engine.health()["accepts_writes"]
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
        wait_until(lambda: not engine.health()["accepts_writes"])
        assert engine.health()["status"] == "degraded"
        iceberg.problem = None
        wait_until(lambda: engine.health()["accepts_writes"])


def test_a_clock_that_jumps_ahead_lets_nobody_be_forgotten(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"producer": "till-1"}
    with running_engine(tmp_path) as engine, LocalSession(engine, options=options) as session:
        session.await_level(session.write(1, seq=1), COMMITTED)
    seconds, nanoseconds = time.time, time.time_ns
    for ahead in (30 * 24 * 3600, 0):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: seconds() + ahead)
        monkeypatch.setattr(time, "time_ns", lambda ahead=ahead: nanoseconds() + ahead * 10**9)
        with running_engine(tmp_path) as engine:
            for number in range(3):
                write_all(engine, number, collection="others", level=Tier.COMMITTED)
            with LocalSession(engine, options=options) as session:
                assert session.greeting["last_seq"] == 1


def test_a_producer_is_forgotten_for_good_or_not_at_all(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was told that nobody knows it counts from 1: a crash must not bring the old numbers back."""
    options, clock = {"producer": "till"}, tmp_path / "clock"
    monkeypatch.setattr(seeded, "clock", clock)

    def last_seq(engine: Engine) -> int | None:
        with LocalSession(engine, options=options) as session:
            last: int | None = session.greeting["last_seq"]
            return last

    iceberg.problems["orders"] = EndpointUnavailable("no table")
    iceberg.problems["stuck"] = EndpointUnavailable("no table")  # so that no segment is removed
    with running_engine(tmp_path, stuck=PATIENT) as engine:
        write_all(engine, 0, collection="stuck", level=Tier.OBJECT_STORAGE)
        with LocalSession(engine, options=options) as session:
            lsn = session.write(1, seq=1)
            session.await_level(lsn, Tier.LOCAL_DISK.name)  # weeks before the clock jumps
        clock.write_text(f"0 {2 * PRODUCER_SILENCE_SECONDS}")
        write_all(engine, *range(20), collection="others", level=Tier.COMMITTED)
        engine._clean_up()
        assert last_seq(engine) == 1  # its write is not committed
        del iceberg.problems["orders"]
        wait_until(lambda: engine.watermarks("orders")[COMMITTED] >= lsn)
        ahead = 2
        while last_seq(engine) is not None:  # each time it is heard of again
            ahead += 2
            clock.write_text(f"0 {ahead * PRODUCER_SILENCE_SECONDS}")
            write_all(engine, 3, collection="others", level=Tier.COMMITTED)
    with running_engine(tmp_path) as again, LocalSession(again, options=options) as session:
        assert (session.greeting["last_seq"], session.greeting["forgotten_lsn"]) == (None, lsn)


class Undeleting(Store):
    """Does not answer when something is to be removed, until it is let go, or refuses to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked, self.answers = threading.Event(), threading.Event()
        self.refusal = ""

    def remove(self, number: int) -> None:
        self.asked.set()
        if self.refusal:
            raise EndpointUnavailable(self.refusal)
        assert self.answers.wait(DEADLINE_SECONDS)
        super().remove(number)


def test_a_store_that_does_not_delete_holds_up_no_commit(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Undeleting(tmp_path / "objects")
    with running_engine(tmp_path / "data", store=store) as engine:
        written = []
        while not store.asked.is_set():
            written += write_all(engine, 1, level=Tier.COMMITTED)
        written += write_all(engine, 2, level=Tier.COMMITTED)
        assert iceberg.lsns == {"orders": written}
        store.answers.set()


def test_a_store_that_refuses_to_delete_is_told_of(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Undeleting(tmp_path / "objects")
    store.answers.set()
    store.refusal = "no rights to delete"
    with running_engine(tmp_path / "data", store=store) as engine:
        while not store.asked.is_set():
            write_all(engine, 1, level=Tier.COMMITTED)
        wait_until(lambda: engine.health()["problems"] == ["no rights to delete"])
        assert engine.health()["status"] == "degraded"
        there = store.numbers()
        store.refusal = ""
        write_all(engine, 2, level=Tier.COMMITTED)
        wait_until(lambda: engine.health()["status"] == "ok")
        wait_until(lambda: there[0] not in store.numbers())


def test_the_limit_counts_all_that_a_stuck_collection_keeps_on_the_disk(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.problems["bad"] = SchemaError("no such type")
    with running_engine(tmp_path, most_log_bytes=20_000, stuck=PATIENT) as engine:
        write_all(engine, 1, collection="bad", level=Tier.OBJECT_STORAGE)
        good = 0
        while engine.health()["accepts_writes"]:
            write_all(engine, 1, collection="good", level=Tier.COMMITTED)
            good += 1
            assert good < 1000, "what is behind the stuck write cannot be removed, and counts"
        assert any("bytes of log wait for Iceberg" in said for said in engine.health()["problems"])
        iceberg.problems.clear()
        wait_until(lambda: engine.health()["accepts_writes"])


def test_an_uploader_that_fails_is_told_of(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Store, "put", fail)
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        write_all(engine, 1, level=Tier.LOCAL_DISK)
        wait_until(lambda: engine.fatal is not None)
        assert engine.health()["status"] == "refusing"
        assert "the uploader has failed (ZeroDivisionError: a defect): restart" in str(engine.fatal)


def test_what_a_write_survives_depends_on_where_it_is_kept(tmp_path: Path, iceberg: FakeIceberg) -> None:
    rest = CatalogSettings(properties={"type": "rest", "uri": "https://catalog.example"})
    with running_engine(tmp_path / "a") as engine:
        assert engine.survives == IN_FOLDERS
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "b", store=store, catalog=rest) as engine:
        store.url = "s3://bucket"
        assert engine.survives == {**IN_FOLDERS, OBJECT_STORAGE: "machine", COMMITTED: "machine"}


def test_a_server_starts_on_a_full_disk_drains_it_and_goes_on(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.problem = EndpointUnavailable("the catalog is down")
    with running_engine(tmp_path) as engine:
        written = write_all(engine, 1, 2, level=Tier.OBJECT_STORAGE)
    iceberg.problem = None
    disk = Disk(create_errors=[NO_SPACE] * 10_000)
    with running_engine(tmp_path, disk=disk) as engine:
        assert engine.health()["status"] == "refusing"
        session = LocalSession(engine)
        session.send(batch(3))
        assert isinstance(session.join(), StorageFull)
        wait_until(lambda: iceberg.lsns == {"orders": written})
        disk.create_errors.clear()
        wait_until(lambda: engine.health()["accepts_writes"])
        written += write_all(engine, 3, level=Tier.COMMITTED)
    assert iceberg.lsns == {"orders": written}


def test_a_disk_that_cannot_be_written_at_all_is_told_at_the_start(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    with pytest.raises(Terminal, match="Read-only file system"):
        Engine(settings_for(tmp_path), hooks=Disk(create_errors=[errno.EROFS]))
