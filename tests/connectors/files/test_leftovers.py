"""What streams left behind that are no more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.errors import EndpointError
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.testing import MemoryLog, Runtime
from tests.connectors.files.driving import CLIENT, applied, ids, open_again, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest
from tests.waiting import wait_until

LOWER = KeyRange(0, 0x7FFFFFFF)


def make_old(endpoint: FilesEndpointUnderTest) -> None:
    for path in endpoint.files("things", "_staged"):
        os.utime(path, (time.time() - 90_000,) * 2)


def uncommitted(view: object, key_range: KeyRange = FULL_RANGE) -> None:
    """A transaction that was staged and never came to the log that counts."""
    write(view, MemoryLog(), [0], key_range=key_range)  # type: ignore[arg-type]


def test_leftovers_are_removed_when_they_are_old(folder: FilesEndpointUnderTest) -> None:
    view = applied(folder.config, things())
    uncommitted(view)
    open_again(view, MemoryLog())
    assert len(folder.files("things", "_staged")) == 1
    make_old(folder)
    open_again(view, MemoryLog())
    assert folder.files("things", "_staged") == []


def test_what_the_log_names_is_not_a_leftover(folder: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    make_old(folder)
    open_again(view, log)
    assert ids(folder) == [[1]]


@pytest.mark.parametrize(
    ("left", "opened", "removed"),
    [
        (LOWER, FULL_RANGE, True),
        (FULL_RANGE, LOWER, False),
        (KeyRange(0x80000000, 0xFFFFFFFF), LOWER, False),
    ],
)
def test_only_a_range_that_has_all_the_keys_removes(
    folder: FilesEndpointUnderTest, left: KeyRange, opened: KeyRange, removed: bool
) -> None:
    view = applied(folder.config, things())
    uncommitted(view, left)
    make_old(folder)
    open_again(view, MemoryLog(), opened)
    assert (folder.files("things", "_staged") == []) == removed


def markers(endpoint: FilesEndpointUnderTest) -> list[str]:
    return [path for path in endpoint.files("things", "_staged") if path.endswith(".published")]


def test_a_stream_for_each_transaction_leaves_no_markers_behind(
    any_endpoint: FilesEndpointUnderTest,
) -> None:
    log, view = MemoryLog(), applied(any_endpoint.config, things())
    for number in range(5):
        write(view, log, [number])
        assert len(markers(any_endpoint)) <= 2
    open_again(view, log)
    assert ids(any_endpoint) == [[number] for number in range(5)]


def test_a_stream_that_was_replaced_leaves_the_markers_of_its_successor(
    folder: FilesEndpointUnderTest,
) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    old = log.read()
    write(view, log, [2])
    current = log.read()
    open_again(view, log)  # publishes the second
    asleep = MemoryLog()
    asleep.commit(old)
    with Runtime(CLIENT, view, asleep):  # opens with what the log said before
        pass
    log.commit(current)
    open_again(view, log)  # finds that the second is published
    assert ids(folder) == [[1], [2]]


def test_what_a_marker_is_about_goes_before_it(folder: FilesEndpointUnderTest) -> None:
    """A stream may die between the two, and a reader may have taken the file away."""
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    (path,) = folder.files("things", "_staged")
    left = Path(path).read_bytes()
    old = log.read()
    write(view, log, [2])
    Path(path).write_bytes(left)
    folder.filesystem.delete_file(folder.files("things")[0])
    open_again(view, log)
    assert not Path(path).exists()
    asleep = MemoryLog()
    asleep.commit(old)
    with pytest.raises(EndpointError, match="is gone before it was published"):
        open_again(view, asleep)
    assert ids(folder) == [[2]]


def test_markers_of_ranges_that_split_and_join(folder: FilesEndpointUnderTest) -> None:
    log, view = MemoryLog(), applied(folder.config, things())
    write(view, log, [1])
    whole = log.read()
    upper = KeyRange(0x80000000, 0xFFFFFFFF)
    lower_log, upper_log = MemoryLog(), MemoryLog()
    for part_log in (lower_log, upper_log):
        part_log.commit(whole)
    for number in (2, 3, 4):  # the other part stands where the whole range did
        write(view, lower_log, [number], key_range=LOWER)
    write(view, upper_log, [5], key_range=upper)
    assert ids(folder) == [[1], [2], [3]]
    joined = {
        **(lower_log.read().connector_checkpoint or {}),
        **(upper_log.read().connector_checkpoint or {}),
    }
    log.commit(type(whole)({"n": 9}, joined))
    open_again(view, log)
    open_again(view, log)
    open_again(view, log)
    assert markers(folder) == []
    assert sorted(ids(folder)) == [[1], [2], [3], [4], [5]]


def test_what_others_put_there_stays(folder: FilesEndpointUnderTest) -> None:
    view = applied(folder.config, things())
    mine = Path(folder.root) / "things/_staged/notes.txt"
    mine.write_text("mine")
    make_old(folder)
    open_again(view, MemoryLog())
    assert mine.exists()


def test_a_transaction_that_fails_leaves_nothing_staged(any_endpoint: FilesEndpointUnderTest) -> None:
    view = applied(any_endpoint.config, things())

    def die(step: str) -> None:
        if step == "sent Store":
            raise InterruptedError

    with pytest.raises(InterruptedError), Runtime(CLIENT, view, observer=die) as runtime:
        runtime.transact([[{"id": 1}]], {"n": 1})
    wait_until(lambda: not any_endpoint.files("things", "_staged"), "a folder with nothing staged in it")
