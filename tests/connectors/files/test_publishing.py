"""What Acknowledge does, once however often it comes, and whoever else does it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from headrace.connectors.files import bucket
from headrace.connectors.files.checkpoint import Checkpoint
from headrace.connectors.files.folder import Folder
from headrace.connectors.files.publishing import Publisher
from headrace.errors import EndpointError, ProtocolError
from headrace.model.checkpoints import merge_patch
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.protocol.messages import Acknowledge, Load, Open, Opened
from headrace.testing import MemoryLog, UncheckedStream
from tests.connectors.files.driving import (
    CLIENT,
    applied,
    ids,
    open_again,
    things,
    with_checkpoint,
    write,
)
from tests.connectors.files_endpoint import FilesEndpointUnderTest
from tests.waiting import DEADLINE_SECONDS

LOWER, UPPER = KeyRange(0, 0x7FFFFFFF), KeyRange(0x80000000, 0xFFFFFFFF)


def test_a_transaction_is_published_by_the_acknowledge_that_follows(
    any_endpoint: FilesEndpointUnderTest,
) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, [1, 2], [3])
    assert ids(any_endpoint) == [[1, 2]]
    open_again(view, log)
    assert ids(any_endpoint) == [[1, 2], [3]]


def test_publishing_again_changes_nothing(any_endpoint: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, [1, 2])
    state = log.read()
    for _ in range(3):
        log.commit(state)  # as if what came after had not reached the log
        open_again(view, log)
    assert ids(any_endpoint) == [[1, 2]]


def test_a_file_that_a_reader_took_away_does_not_come_back(any_endpoint: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, [1])
    state = log.read()
    open_again(view, log)
    (path,) = any_endpoint.files("things")
    any_endpoint.filesystem.delete_file(path)
    log.commit(state)
    open_again(view, log)
    assert ids(any_endpoint) == []


def test_a_staged_object_that_somebody_removed_is_an_error(any_endpoint: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, [1])
    (path,) = any_endpoint.files("things", "_staged")
    any_endpoint.filesystem.delete_file(path)
    with pytest.raises(EndpointError, match="is gone before it was published: bring it back"):
        open_again(view, log)


def test_nothing_but_the_last_marker_is_left(any_endpoint: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, [1], [2], [3], [])
    (marker,) = any_endpoint.files("things", "_staged")
    assert marker.endswith(".published")


def test_it_reads_on_while_it_publishes(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    released, publish = threading.Event(), Folder.publish

    def publish_late(self: Folder, source: str, target: str, size: int) -> bool:
        assert released.wait(DEADLINE_SECONDS)
        return publish(self, source, target, size)

    monkeypatch.setattr(Folder, "publish", publish_late)
    stream = UncheckedStream(CLIENT.transactions())
    try:
        stream.send(Open(view, "1", FULL_RANGE, log.read().connector_checkpoint))
        assert isinstance(stream.receive(), Opened)
        stream.send(Acknowledge())
        # A load is what it must not get for delta updates; that it says so shows that it has read it.
        stream.send(Load(0, pa.RecordBatch.from_pydict({"id": [1]})))
        with pytest.raises(ProtocolError, match="Load"):
            stream.receive()
        assert ids(folder) == []
    finally:
        released.set()


def test_two_who_publish_at_once(any_endpoint: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    write(view, log, list(range(100)))
    storage = any_endpoint.connector.open_storage(any_endpoint.config)  # type: ignore[attr-defined]
    checkpoint = Checkpoint(log.read().connector_checkpoint, FULL_RANGE)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(Publisher(storage, checkpoint).publish) for _ in range(8)]:
            done.result()
    assert ids(any_endpoint) == [list(range(100))]


def test_an_object_too_large_to_be_copied_is_read_and_written(
    s3_endpoint: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_MOST_COPIED_BYTES", 10)
    log, view = MemoryLog(), applied(s3_endpoint.config, things())
    write(view, log, list(range(1000)))
    open_again(view, log)
    assert ids(s3_endpoint) == [list(range(1000))]


def test_ranges_split_and_join_and_lose_nothing(folder: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1], [2])  # the second is not published yet
    parts = {LOWER: with_checkpoint(log.read().connector_checkpoint), UPPER: MemoryLog()}
    parts[UPPER].commit(parts[LOWER].read())
    write(view, parts[LOWER], [3], [4], key_range=LOWER)
    assert ids(folder) == [[1], [2], [3]]
    open_again(view, parts[UPPER], key_range=UPPER)  # long after, and from the same checkpoint
    write(view, parts[UPPER], [5], key_range=UPPER)
    together = merge_patch(parts[LOWER].read().connector_checkpoint, parts[UPPER].read().connector_checkpoint)
    joined = with_checkpoint(together)
    write(view, joined, [6])
    open_again(view, joined)
    assert sorted(ids(folder)) == [[1], [2], [3], [4], [5], [6]]
    names = [path.rpartition("/")[2].split("-")[0] for path in folder.files("things")]
    assert names[-1] == max(names), "numbers go up across splits and joins"
    assert list(joined.read().connector_checkpoint or {}) == [str(FULL_RANGE)]


def test_a_part_that_never_wrote_joins_with_one_that_did(folder: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    lower = with_checkpoint(log.read().connector_checkpoint)
    write(view, lower, [2], [3], key_range=LOWER)
    together = merge_patch(log.read().connector_checkpoint, lower.read().connector_checkpoint)
    (path,) = [path for path, found in zip(folder.files("things"), ids(folder), strict=True) if found == [1]]
    folder.filesystem.delete_file(path)  # a reader took it away
    open_again(view, with_checkpoint(together))
    assert ids(folder) == [[2], [3]]


def test_a_log_that_was_lost_overwrites_nothing(folder: FilesEndpointUnderTest) -> None:
    view = applied(folder.config, things())
    for number in (1, 2):
        log = MemoryLog()
        write(view, log, [number])
        open_again(view, log)
    assert sorted(ids(folder)) == [[1], [2]]


def test_a_checkpoint_of_another_connector_is_refused(folder: FilesEndpointUnderTest) -> None:
    view = applied(folder.config, things())
    with pytest.raises(EndpointError, match="'staged' was not written by the files connector"):
        open_again(view, with_checkpoint({"staged": "x"}))
