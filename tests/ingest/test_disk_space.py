"""Nothing more is taken before the log's disk is full, and what was taken still gets to its table."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.errors import EndpointUnavailable, StorageFull
from headrace.ingest.disk_space import DiskSpace, shares_disk
from headrace.model.tiers import Tier
from tests.ingest.support import FakeIceberg, LocalSession, batch, running_engine, write_all
from tests.waiting import wait_until
from tests.wal.support import Disk


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ingest.disk_space._LOOK_SECONDS", 0.01)


class Room:
    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self.error: OSError | None = None

    def __call__(self, _folder: Path) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        return self.free, self.size


def refuses(space: DiskSpace) -> bool:
    space.look()
    return space.problem is not None


def test_room_that_is_short_is_told_once_and_there_has_to_be_some_more_before_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room, owed = Room(1_000_000), 500
    space = DiskSpace(Path("/data/wal"), 400, lambda: owed, room, lambda _: None)
    for free, expected in ((900, False), (899, True), (850, True), (999, True), (1000, False), (900, False)):
        room.free = free
        assert refuses(space) is expected, free
    assert (space.free, space.needed) == (900, 900)
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "the disk of /data/wal is almost full",
        "the disk of /data/wal has room again",
    ]
    owed = 501
    assert refuses(space)


def test_of_a_small_disk_no_more_than_a_tenth_is_kept_free() -> None:
    room = Room(1000)
    space = DiskSpace(Path("/data/wal"), 1 << 30, lambda: 0, room, lambda _: None)
    room.free = 100
    assert not refuses(space)
    room.free = 99
    assert refuses(space)


def test_a_disk_that_does_not_answer_takes_nothing() -> None:
    room = Room(1000)
    space = DiskSpace(Path("/data/wal"), 10, lambda: 0, room, lambda _: None)
    room.error = OSError(errno.EIO, "Input/output error")
    assert refuses(space)
    assert "does not say how much room it has (Input/output error)" in str(space.problem)
    room.error = None
    assert not refuses(space)


def test_what_is_on_the_disk_of_the_log(tmp_path: Path) -> None:
    assert shares_disk(tmp_path, f"file://{tmp_path}/not/yet")
    assert shares_disk(tmp_path, str(tmp_path))
    assert not shares_disk(tmp_path, "file:///proc/self")
    assert not shares_disk(tmp_path, "s3://bucket/warehouse")
    assert not shares_disk(tmp_path, "")


def test_a_disk_that_fills_up_takes_no_more_writes_and_drains_what_it_took(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    disk = Disk(free_bytes=1 << 30)
    iceberg.problem = EndpointUnavailable("no catalog")
    with running_engine(tmp_path, disk=disk) as engine:
        written = write_all(engine, 1, 2, level=Tier.OBJECT_STORAGE)
        # As much as is to be free, and not as much as it takes to commit what there is besides.
        disk.free_bytes = 256 << 20
        wait_until(lambda: not engine.health()["accepts_writes"])
        health = engine.health()
        assert health["status"] == "refusing"
        assert "is almost full" in health["problems"][0]
        assert health["disk_needed_bytes"] > health["disk_free_bytes"] == 256 << 20
        for refused in (LocalSession(engine), LocalSession(engine, options={"producer": "till"})):
            refused.send(batch(3))
            assert isinstance(refused.join(), StorageFull)
        iceberg.problem = None
        wait_until(lambda: iceberg.lsns == {"orders": written})
        disk.free_bytes = 1 << 30
        wait_until(lambda: engine.health()["accepts_writes"])
        written += write_all(engine, 3, level=Tier.COMMITTED)
    assert iceberg.lsns == {"orders": written}


def test_who_is_done_writing_is_told_the_rest_though_the_disk_is_almost_full(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    disk = Disk(free_bytes=1 << 30)
    iceberg.hold()
    with running_engine(tmp_path, disk=disk) as engine:
        session = LocalSession(engine)
        lsn = session.write(1)
        disk.free_bytes = 0
        wait_until(lambda: not engine.health()["accepts_writes"])
        session.end()
        iceberg.let_go()
        assert session.join() is None
        assert session.lsns("COMMITTED") == [lsn]


def test_a_warehouse_elsewhere_takes_no_room_of_the_log(tmp_path: Path, iceberg: FakeIceberg) -> None:
    disk = Disk(free_bytes=256 << 20)
    iceberg.problem = EndpointUnavailable("no catalog")
    with running_engine(tmp_path, disk=disk) as engine:
        engine._commits_here = False
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
        assert engine._owed_bytes() == 0
        engine._commits_here = True
        assert engine._owed_bytes() == engine.health()["log_bytes"] > 0
