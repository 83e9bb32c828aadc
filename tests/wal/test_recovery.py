"""What recovery makes of a log that was cut, torn or damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from headrace.errors import Terminal
from headrace.ingest.engine_settings import LogLimits
from headrace.wal.records import (
    SEGMENT_HEADER_BYTES,
    Kind,
    Mark,
    Record,
    SegmentHeader,
    Writes,
    frame,
)
from headrace.wal.recovery import Recovered, recover
from headrace.wal.segments import CorruptLog, map_segment, records_of, segment_files, segment_name
from headrace.wal.state import CollectionState
from tests.wal.frames import frame_mark
from tests.wal.support import SCHEMA_MESSAGE, OpenLog, lsns_in, record_ends

PRODUCER = "till-1"


@pytest.fixture(scope="module")
def three_segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose last segment has three groups of records, each synced for itself.

    LSNs are reserved a few at a time, so that the marks of that segment say different things.
    """
    folder = tmp_path_factory.mktemp("log") / "wal"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.ingest.log.RESERVED_AT_ONCE", 2)
        _write_three_segments(folder)
    last = segment_files(folder)[-1].read_bytes()
    assert naive_reserved(last) > SegmentHeader.decode(last).reserved_until
    return folder


def _write_three_segments(folder: Path) -> None:
    with OpenLog(folder) as log:
        log.synced_write(1)
        log.seal()
        log.synced_write(2)
        log.synced_write(3, producer=PRODUCER, seq=7)
        log.seal()
        log.synced_write(4)
        log.log.declare(CollectionState("later", SCHEMA_MESSAGE))
        log.synced_write(5, producer=PRODUCER, seq=8)


@dataclass
class Copies:
    """Copies of a log, each changed in its own way, in one folder one after the other."""

    source: Path
    folder: Path

    def changed(self, number: int, data: bytes | None) -> Path:
        """With other bytes in a segment, always the same one in a test, or without the segment."""
        if not self.folder.exists():
            shutil.copytree(self.source, self.folder)
        path = self.folder / segment_name(number)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        return self.folder

    def bytes_of(self, number: int) -> bytes:
        return (self.source / segment_name(number)).read_bytes()


@pytest.fixture
def copies(three_segments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    # Thousands of recoveries: the disk would be most of the time.
    monkeypatch.setattr("headrace.wal.recovery.os", UnsyncedOs)
    return Copies(three_segments, tmp_path / "copy")


class UnsyncedOs:
    O_RDWR = os.O_RDWR
    open = staticmethod(os.open)
    close = staticmethod(os.close)

    @staticmethod
    def fdatasync(_descriptor: int) -> None:
        pass


def told(data: bytes) -> Iterator[tuple[int, Kind, Record]]:
    return records_of(memoryview(data))


def naive_last_lsn(data: bytes, before: int) -> int:
    return max([before, *(record.last_lsn for _, _, record in told(data) if isinstance(record, Writes))])


def naive_reserved(data: bytes) -> int:
    marks = [record.reserved_until for _, _, record in told(data) if isinstance(record, Mark)]
    return max([SegmentHeader.decode(data).reserved_until, *marks])


def naive_last_seq(data: bytes) -> int:
    records = [record for _, _, record in told(data)]
    return max([7, *(one.first_seq for one in records if isinstance(one, Writes) and one.producer)])


def check_whole_records_only(recovered: Recovered, whole: bytes) -> None:
    """The last segment counts up to the end of these bytes, and the state is what they say."""
    state = recovered.state
    assert recovered.segments[-1].length == len(whole)
    assert state.last_lsn == naive_last_lsn(whole, before=3)
    assert state.reserved_until == naive_reserved(whole)
    assert state.producers["orders", "till-1"].last_seq == naive_last_seq(whole)
    assert ("later" in state.collections) == any(kind is Kind.COLLECTION for _, kind, _ in told(whole))
    reserved = state.reserved_until
    recovered.start_term(0)
    assert state.lost == ([(state.last_lsn + 1, reserved - 1)] if reserved > state.last_lsn + 1 else [])


@pytest.mark.parametrize("tail", ["nothing", "zeros", pytest.param("noise", marks=pytest.mark.full)])
def test_a_log_cut_anywhere_keeps_exactly_the_records_that_are_whole(copies: Copies, tail: str) -> None:
    data = copies.bytes_of(3)
    ends = [SEGMENT_HEADER_BYTES, *record_ends(copies.source / segment_name(3))]
    for cut in range(SEGMENT_HEADER_BYTES, len(data) + 1):
        missing = len(data) - cut
        rest = {"nothing": b"", "zeros": bytes(missing), "noise": b"\xa5" * missing}[tail]
        torn = data[:cut] + rest
        same = next((at for at, byte in enumerate(torn) if byte != data[at]), len(torn))
        recovered = recover(copies.changed(3, torn))
        check_whole_records_only(recovered, data[: max(end for end in ends if end <= same)])


def test_a_segment_cut_inside_its_header_was_never_begun(copies: Copies) -> None:
    data = copies.bytes_of(3)
    for cut in range(SEGMENT_HEADER_BYTES):
        folder = copies.changed(3, data[:cut])
        recovered = recover(folder)
        assert recovered.next_number == 3
        assert recovered.state.last_lsn == 3
        assert not (folder / segment_name(3)).exists()


def test_a_log_goes_on_after_a_cut_as_if_the_cut_part_had_never_been(copies: Copies) -> None:
    data = copies.bytes_of(3)
    folder = copies.changed(3, data[:-1])
    with OpenLog(folder) as log:
        assert log.recovered.state.last_lsn == 4
        lsn = log.synced_write(6)
    assert lsns_in(folder) == [1, 2, 3, 4, lsn]


def test_what_is_only_in_an_empty_folder_is_nothing(tmp_path: Path) -> None:
    recovered = recover(tmp_path)
    recovered.start_term(0)
    assert (recovered.segments, recovered.next_number, recovered.state.lost) == ([], 1, [])
    assert recovered.state.reserved_until == 1


def test_names_that_are_not_of_the_log_are_left_alone(copies: Copies) -> None:
    folder = copies.changed(3, copies.bytes_of(3))
    before = recover(folder)
    foreign = [folder / name for name in (".DS_Store", "1.wal", "00000000000000000099.wal.tmp", "notes")]
    for path in foreign:
        path.write_text("of somebody else")
    assert recover(folder).state == before.state
    assert all(path.exists() for path in foreign)


def test_damage_in_a_place_that_was_synced_is_refused(copies: Copies) -> None:
    data = copies.bytes_of(3)
    *_, last_mark = [end for end, kind, _ in told(data) if kind is Kind.MARK]
    last_mark -= len(frame_mark(Mark(0, 0, nonce=0)))
    for offset in range(last_mark):
        damaged = data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :]
        with pytest.raises(CorruptLog):
            recover(copies.changed(3, damaged))


def test_damage_in_what_may_not_have_been_synced_is_cut_off(copies: Copies) -> None:
    data = copies.bytes_of(3)
    ends = record_ends(copies.source / segment_name(3))
    for offset in range(ends[-2], len(data)):
        damaged = data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :]
        check_whole_records_only(recover(copies.changed(3, damaged)), data[: ends[-2]])


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.full)])
def test_damage_in_a_segment_before_the_last_is_refused(copies: Copies, number: int) -> None:
    data = copies.bytes_of(number)
    for offset in range(len(data)):
        damaged = data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1 :]
        with pytest.raises(CorruptLog):
            recover(copies.changed(number, damaged))


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_before_the_last_that_was_cut_is_refused(copies: Copies, number: int) -> None:
    data = copies.bytes_of(number)
    with pytest.raises(CorruptLog, match="had been synced"):
        recover(copies.changed(number, data[:-8]))


def test_a_missing_segment_in_the_middle_is_refused_by_its_number(copies: Copies) -> None:
    with pytest.raises(CorruptLog, match="no segment 2"):
        recover(copies.changed(2, None))


def test_a_log_without_the_segment_that_has_its_state_is_refused(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        for _ in range(3):
            log.synced_write(1)
            log.seal()
    files = segment_files(tmp_path)
    kept = next(path for path in files[1:] if not _has_state(path))
    for path in files:
        if path != kept:
            path.unlink()
    with pytest.raises(CorruptLog, match="needs the ones before it"):
        recover(tmp_path)


def test_a_log_whose_removal_was_cut_short_is_the_log_that_it_was(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        for _ in range(6):
            log.synced_write(1)
            log.seal()
    files = segment_files(tmp_path)
    whole = recover(tmp_path)
    left = next(path for path in files[1:] if not _has_state(path))
    assert any(_has_state(path) for path in files[files.index(left) :])
    for path in files[: files.index(left)]:
        path.unlink()
    assert recover(tmp_path).state == whole.state


def _has_state(path: Path) -> bool:
    return any(kind is Kind.STATE for _, kind, _ in records_of(map_segment(path)))


def test_a_segment_under_another_name_is_refused(copies: Copies) -> None:
    folder = copies.changed(3, None)
    (folder / segment_name(3)).write_bytes(copies.bytes_of(1))
    with pytest.raises(CorruptLog, match="renamed"):
        recover(folder)


def test_a_segment_of_a_newer_format_is_not_removed_as_stillborn(copies: Copies) -> None:
    header = bytearray(copies.bytes_of(3))
    header[8] = 3
    folder = copies.changed(3, bytes(header))
    with pytest.raises(Terminal):
        recover(folder)
    assert (folder / segment_name(3)).exists()


def test_a_mark_among_a_clients_data_is_not_taken_for_one_of_the_logs(tmp_path: Path) -> None:
    """A log that is itself written as data must not make a tear look like damage."""
    forged = frame_mark(Mark(durable=1 << 40, reserved_until=0)) * 3
    with OpenLog(tmp_path) as log:
        log.synced_write(1)
        log.synced_write(*[int.from_bytes(forged[i : i + 8], "little") for i in range(0, len(forged), 8)])
    path = segment_files(tmp_path)[-1]
    data = path.read_bytes()
    assert data.count(forged) == 1
    path.write_bytes(data[:-8])
    assert lsns_in(tmp_path) == [1]


def torn_among(folder: Path, forge: Callable[[int, int], bytes]) -> None:
    """Leaves a log whose last write is torn, and full of frames, each made for the place where it stands."""
    with OpenLog(folder) as log:
        log.synced_write(1)
        log.synced_write(*range(1000))
    path = segment_files(folder)[-1]
    data = bytearray(path.read_bytes())
    nonce, size = SegmentHeader.decode(bytes(data)).nonce, len(forge(0, 0))
    *_, began, _ = record_ends(path)
    for place in range(began + 512, len(data) - size, size):
        data[place : place + size] = forge(place, nonce)
    path.write_bytes(data[:-64])


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda place, _: frame_mark(Mark(place, 0)), id="mark of version 1"),
        pytest.param(lambda place, nonce: frame_mark(Mark(place, 0, nonce ^ 1)), id="mark"),
        pytest.param(lambda *_: frame(cast(Kind, 99), b"from nowhere"), id="unknown kind"),
        pytest.param(lambda *_: frame(Kind.MARK, b"too short"), id="mark of another length"),
    ],
)
def test_nothing_that_a_client_sends_makes_a_tear_look_like_damage(
    tmp_path: Path, forge: Callable[[int, int], bytes]
) -> None:
    torn_among(tmp_path, forge)
    assert lsns_in(tmp_path) == [1]


def test_a_mark_with_the_nonce_shows_damage(tmp_path: Path) -> None:
    torn_among(tmp_path, lambda place, nonce: frame_mark(Mark(place, 0, nonce)))
    with pytest.raises(CorruptLog, match="which had been synced"):
        recover(tmp_path)


def test_the_last_segment_is_synced_before_it_is_relied_on(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(UnsyncedOs, "fdatasync", synced.append)
    recover(copies.changed(3, copies.bytes_of(3)))
    assert len(synced) == 1


def test_state_and_writes_are_the_same_however_often_the_log_was_sealed(tmp_path: Path) -> None:
    """The first record of a segment says what all segments before it do."""
    with OpenLog(tmp_path, limits=LogLimits(segment_seconds=0.0)) as log:
        for number in range(12):
            log.synced_write(number, producer=PRODUCER, seq=number * 2 + 1)
    whole = recover(tmp_path)
    starts = [segment for segment in whole.segments if segment.has_state]
    assert len(starts) > 3
    for start in starts:
        for path in segment_files(tmp_path):
            if path < start.path:
                path.unlink()
        assert recover(tmp_path).state == whole.state
