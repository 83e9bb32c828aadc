"""Streams are not read while too much of theirs waits."""

from __future__ import annotations

from pathlib import Path

from pyarrow import flight

from headrace.errors import (
    EndpointUnavailable,
)
from headrace.ingest.engine_settings import LogLimits, SessionLimits
from headrace.model.tiers import Tier
from headrace.wal.segments import segment_files
from tests.ingest.support import FakeIceberg, LocalSession, Store, batch, running_engine, write_all
from tests.waiting import wait_until
from tests.wal.support import Disk

MEMORY, LOCAL_DISK, OBJECT_STORAGE, COMMITTED = (tier.name for tier in Tier)


# Backpressure.


def test_a_stream_waits_while_too_much_log_waits_for_the_store(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    store.broken = "the store is down"
    log = LogLimits(segment_seconds=0.001, segment_bytes=1)
    with (
        running_engine(tmp_path / "data", store=store, most_log_bytes=2_000, log=log) as engine,
        LocalSession(engine, options={"levels": ["MEMORY"]}) as session,
    ):
        wait_until(lambda: session.send(batch(1)) and any(one.throttled for one in engine.sessions()))
        assert "bytes of log wait for object storage" in str(engine.sessions()[0].throttled)
        wait_until(lambda: "wait for object storage" in str(session.messages), "word of it")
        assert engine.health()["status"] == "degraded"
        taken = engine.statistics().writes
        session.send(batch(2))
        wait_until(lambda: engine.upload_failures > 1)
        assert engine.statistics().writes == taken
        store.broken = None
        wait_until(lambda: {"throttled": None} in session.messages)
        wait_until(lambda: engine.statistics().writes > taken)


def test_log_that_is_only_kept_for_its_state_does_not_stop_a_stream(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    with running_engine(tmp_path, most_log_bytes=1) as engine, LocalSession(engine) as session:
        for number in range(3):
            session.await_level(session.write(number), COMMITTED)
        assert sum(path.stat().st_size for path in segment_files(tmp_path / "wal")) > 1


def test_a_session_does_not_wait_for_what_is_synced(tmp_path: Path, iceberg: FakeIceberg) -> None:
    limits = SessionLimits(unsynced_bytes=10_000)  # to which each message adds a KiB of its own
    with running_engine(tmp_path, session=limits) as engine, LocalSession(engine) as session:
        for number in range(20):
            session.await_level(session.write(number), LOCAL_DISK)
        assert engine.statistics().throttled == 0


def test_a_session_waits_for_the_disk_and_others_do_not(tmp_path: Path, iceberg: FakeIceberg) -> None:
    disk = Disk()
    limits = SessionLimits(unsynced_bytes=1_000)
    with running_engine(tmp_path, disk=disk, session=limits) as engine:
        write_all(engine, 1, level=Tier.LOCAL_DISK)
        disk.hold()
        options = {"levels": ["MEMORY"]}
        with LocalSession(engine, options=options) as greedy, LocalSession(engine) as modest:
            for number in range(20):
                greedy.send(batch(number))
            wait_until(lambda: any(one.throttled for one in engine.sessions()))
            wait_until(lambda: "the disk is slower than the writers" in str(greedy.messages))
            lsn = modest.write(1)
            disk.let_go()
            modest.await_level(lsn, LOCAL_DISK)
            wait_until(lambda: len(greedy.lsns(MEMORY)) == 20)
            wait_until(lambda: {"throttled": None} in greedy.messages)


def test_a_session_waits_while_the_log_is_full(tmp_path: Path, iceberg: FakeIceberg) -> None:
    disk = Disk()
    log = LogLimits(segment_seconds=0.001, waiting_bytes=1_000)
    with running_engine(tmp_path, disk=disk, log=log) as engine, LocalSession(engine) as session:
        session.await_level(session.write(0), LOCAL_DISK)
        disk.hold()
        for number in range(20):
            session.send(batch(number))
        wait_until(lambda: any(one.throttled for one in engine.sessions()))
        assert len(session.lsns(MEMORY)) < 20
        disk.let_go()
        wait_until(lambda: len(session.lsns(LOCAL_DISK)) == 21)


def test_a_session_waits_while_too_many_writes_are_not_announced(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.problem = EndpointUnavailable("so that nothing is announced at its last tier")
    with running_engine(tmp_path, session=SessionLimits(ranges=4)) as engine:
        with LocalSession(engine) as session, LocalSession(engine) as other:
            for number in range(4):  # in turn, so that no two are neighbours
                session.write(number)
                other.write(number)
            wait_until(lambda: session.send(batch(5)) and any(one.throttled for one in engine.sessions()))
            session.hang_up()
            assert isinstance(session.join(), flight.FlightCancelledError)
        wait_until(lambda: not engine.sessions())
        assert engine.statistics().disconnects == 2
