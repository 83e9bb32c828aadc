"""What streams left behind that are no more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.testing import MemoryLog, Runtime
from tests.connectors.files.driving import CLIENT, applied, ids, open_again, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest

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
    deadline = time.monotonic() + 20
    while any_endpoint.files("things", "_staged"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
