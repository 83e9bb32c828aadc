"""A plugin of pytest by which one process runs all tests on the Spark session, and others run the rest.

A file of tests is run by one process. Those that take the fixture `spark` are run by the same one, since a
session cannot be shared by processes; with them it begins, because they take longest. (The groups of
pytest-xdist, which it writes into the ids of tests, are not read by pytest 9.2.)
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
"""The name of the fixture, and of the files that take it."""
ORDER_VARIABLE = "HEADRACE_TEST_ORDER"
"""The seed by which files are put in a random order."""
_PR_SET_PDEATHSIG = 1


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out whole files, and those on the Spark session as if they were one."""

    def __init__(self, config: pytest.Config, log: Any, on_spark: Path) -> None:
        super().__init__(config, log)
        self._on_spark = on_spark

    def schedule(self) -> None:
        """Every process has collected the tests by now, and has said which files are on Spark."""
        self._files = set(json.loads(self._on_spark.read_text()))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file in self._files else file


def put_in_order(items: list[pytest.Item]) -> list[str]:
    """Puts first the tests that take longest: on the Spark session, then in files that start processes.

    Files are shuffled within that if a seed is given. Returns the files on Spark.
    """
    files = list(dict.fromkeys(map(_file_of, items)))
    if seed := os.environ.get(ORDER_VARIABLE):
        random.Random(seed).shuffle(files)  # noqa: S311 - a seed is what is wanted
    position = {file: number for number, file in enumerate(files)}
    on_spark = {_file_of(item) for item in items if SPARK in getattr(item, "fixturenames", ())}
    slow = {_file_of(item) for item in items if item.get_closest_marker("processes")}

    def rank(item: pytest.Item) -> tuple[bool, bool, int]:
        file = _file_of(item)
        return file not in on_spark, file not in slow, position[file]

    items.sort(key=rank)
    return sorted(on_spark)


def die_with_parent() -> None:
    """Has this process killed when the one that schedules is gone, whatever test it is in."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def say_who_is_on_spark(files: list[str], path: Path) -> None:
    """Tells the process that schedules; every process that runs tests says the same."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(files))
    unfinished.replace(path)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
