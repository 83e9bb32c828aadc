"""The log in object storage: who owns it, and what is put only once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from headrace.errors import ConfigError, EndpointUnavailable, Fenced
from headrace.ingest.store import SegmentStore
from headrace.wal.segments import CorruptLog, Segment
from tests.wal.support import OpenLog


def store_in(folder: Path) -> SegmentStore:
    return SegmentStore(folder.absolute().as_uri())


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return store_in(tmp_path / "objects")


def sealed_segment(folder: Path, term: int = 0, *ids: int) -> Segment:
    with OpenLog(folder, term=term) as log:
        log.synced_write(*(ids or (1,)))
        return log.seal()


def test_a_log_has_one_id_for_ever(store: SegmentStore, tmp_path: Path) -> None:
    assert store.log_id() == store.log_id() == store_in(tmp_path / "objects").log_id()
    assert store_in(tmp_path / "others").log_id() != store.log_id()


def test_an_term_is_claimed_by_one(store: SegmentStore) -> None:
    claimed: list[int] = []
    claimers = [threading.Thread(target=lambda: claimed.append(store.claim_term())) for _ in range(8)]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join()
    assert sorted(claimed) == list(range(8))


def test_the_owner_is_who_claimed_last(store: SegmentStore) -> None:
    first = store.claim_term()
    store.check_owner(first)
    second = store.claim_term()
    store.check_owner(second)
    with pytest.raises(Fenced, match="another server took over"):
        store.check_owner(first)


def test_what_is_put_can_be_fetched_and_put_again(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    assert not store.has(segment)
    for _ in range(2):  # the answer to the first may have been lost
        store.put(segment, term=0)
        assert store.has(segment)
    assert store.numbers() == [1]
    (tmp_path / "fetched").mkdir()
    store.fetch(1, tmp_path / "fetched")
    assert (tmp_path / "fetched" / segment.path.name).read_bytes() == segment.path.read_bytes()[
        : segment.length
    ]
    store.remove(1)
    store.remove(1)
    assert store.numbers() == []


def test_only_what_was_synced_is_put(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    with segment.path.open("ab") as file:
        file.write(b"never synced")
    store.put(segment, term=0)
    (tmp_path / "fetched").mkdir()
    store.fetch(1, tmp_path / "fetched")
    assert (tmp_path / "fetched" / segment.path.name).stat().st_size == segment.length


def test_a_segment_of_the_same_term_and_number_is_never_overwritten(
    store: SegmentStore, tmp_path: Path
) -> None:
    """Two servers with copies of one folder: all but the content is the same."""
    ours, theirs = sealed_segment(tmp_path / "a", 0, 1), sealed_segment(tmp_path / "b", 0, 2)
    assert ours.length == theirs.length
    store.put(theirs, term=0)
    assert not store.has(ours)
    with pytest.raises(Fenced, match="already has another segment 1"):
        store.put(ours, term=0)
    assert store.has(theirs)


def test_a_segment_of_an_earlier_term_gives_way_and_one_of_a_later_does_not(
    store: SegmentStore, tmp_path: Path
) -> None:
    old, new = sealed_segment(tmp_path / "a", 0), sealed_segment(tmp_path / "b", 1)
    store.put(old, term=0)
    store.put(new, term=1)
    assert store.has(new)
    with pytest.raises(Fenced):
        store.put(old, term=0)
    assert store.has(new)


def test_an_object_that_a_stopped_machine_left_unfinished_gives_way(
    store: SegmentStore, tmp_path: Path
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    (tmp_path / "objects/wal").mkdir()
    for content in (b"", b"\0" * 200):
        store.remove(1)
        (tmp_path / "objects/wal" / segment.path.name).write_bytes(content)
        store.put(segment, term=0)
        assert store.has(segment)


def test_a_put_of_a_replaced_server_is_not_reported_as_done(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    term = store.claim_term()
    store.claim_term()
    with pytest.raises(Fenced):
        store.put(segment, term)


def test_a_file_store_syncs_what_it_puts(
    store: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    synced: list[Path] = []
    monkeypatch.setattr("headrace.objects._sync", synced.append)
    store.put(segment, term=0)
    wal = tmp_path / "objects/wal"
    assert synced == [segment.path, wal / segment.path.name, wal, wal.parent]


def test_an_old_copy_is_found_out_by_what_its_term_has_put(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal", 1)
    store.put(segment, term=1)
    assert not store.has_later(newest=1, term=1)
    assert not store.has_later(newest=0, term=2)  # what a replaced server left behind
    assert store.has_later(newest=0, term=1)


def test_a_store_that_cannot_be_reached_may_come_back(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    shutil.rmtree(tmp_path / "objects")
    (tmp_path / "objects").write_text("not a folder")
    for call in (store.log_id, store.claim_term, store.numbers, lambda: store.put(segment, 0)):
        with pytest.raises(EndpointUnavailable, match="objects cannot"):
            call()


def test_a_segment_whose_file_cannot_be_read_may_be_tried_again(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    segment.path.unlink()
    with pytest.raises(EndpointUnavailable, match="cannot put segment 1"):
        store.put(segment, 0)


@pytest.mark.parametrize("url", ["nonsense://x", "s3://bucket?x=1", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        SegmentStore(url, {"no_such_option": 1})


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another folder"):
        store_in(tmp_path / "file/objects")


def test_names_that_are_not_of_the_log_are_ignored(
    store: SegmentStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(sealed_segment(tmp_path / "wal"), store.claim_term())
    foreign = ["wal/.DS_Store", "wal/1.wal", "wal/00000000000000000007.wal.tmp", "epochs/note.txt"]
    for name in foreign:
        (tmp_path / "objects" / name).write_text("not ours")
    for _ in range(2):
        assert store.numbers() == [1]
    assert store.claim_term() == 1
    said = [record.getMessage() for record in caplog.records]
    assert sorted(line.split()[3].rstrip(",") for line in said) == sorted(foreign)  # each is said once


def damaged(data: bytes) -> bytes:
    return data[:-8] + bytes(8)


def test_what_is_damaged_on_the_disk_is_not_put(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    whole = segment.path.read_bytes()
    for data, said in (
        (whole[: segment.length // 2], "bytes, and"),
        (damaged(whole[: segment.length]), "is damaged at offset"),
        (bytes(len(whole)), "is damaged at offset"),
    ):
        segment.path.write_bytes(data)
        with pytest.raises(CorruptLog, match=said):
            store.put(segment, term=0)
        assert store.numbers() == []
    segment.path.write_bytes(whole)
    store.put(segment, term=0)


def test_an_object_that_is_damaged_is_not_taken_for_the_segment(store: SegmentStore, tmp_path: Path) -> None:
    segment = sealed_segment(tmp_path / "wal")
    store.put(segment, term=0)
    there = tmp_path / "objects" / "wal" / segment.path.name
    whole = there.read_bytes()
    there.unlink()  # it is another name of the segment's file
    there.write_bytes(damaged(whole))
    assert not store.has(segment)
    with pytest.raises(Fenced, match="the object was damaged: compare it with"):
        store.put(segment, term=0)
    assert there.read_bytes() == damaged(whole)
    there.write_bytes(whole)
    assert store.has(segment)


def test_in_a_folder_on_the_same_disk_an_object_is_another_name_of_the_file(
    store: SegmentStore, tmp_path: Path
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    store.put(segment, term=0)
    there = tmp_path / "objects" / "wal" / segment.path.name
    assert there.samefile(segment.path)
    assert store.has(segment)
    segment.path.unlink()
    store.fetch(1, tmp_path / "wal")
    assert not there.samefile(segment.path)
    assert store.has(segment)


def test_what_is_fetched_over_a_file_leaves_the_object_that_is_another_name_of_it(
    store: SegmentStore, tmp_path: Path
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    store.put(segment, term=0)
    whole = segment.path.read_bytes()
    store.fetch(1, tmp_path / "wal")
    assert segment.path.read_bytes() == whole
    assert store.has(segment)


def test_a_damaged_file_is_not_taken_for_whole_because_its_object_is_the_same_file(
    store: SegmentStore, tmp_path: Path
) -> None:
    segment = sealed_segment(tmp_path / "wal")
    store.put(segment, term=0)
    segment.path.write_bytes(damaged(segment.path.read_bytes()))
    with pytest.raises(CorruptLog, match="is damaged at offset"):
        store.has(segment)
