"""A pytest plugin that runs all tests on the Spark session in one process and the others in the rest.

Each test file runs in one process. All files that use the fixture `spark` run in the same process, because
processes cannot share a session; they start first, because they take longest. (We do not use the groups of
pytest-xdist: it appends them to the test ids, and pytest 9.2 does not read them there.)
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
"""Name of the fixture, and of the scope that all files using it belong to."""
_NICENESS = 5
ORDER_VARIABLE = "HEADRACE_TEST_ORDER"
"""Environment variable with the seed that shuffles the files."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, and all files on the Spark session together."""

    def __init__(self, config: pytest.Config, log: Any, on_spark: Path) -> None:
        super().__init__(config, log)
        self._on_spark = on_spark

    def schedule(self) -> None:
        """Reads which files are on Spark; every worker has collected its tests and written that by now."""
        self._files = set(json.loads(self._on_spark.read_text()))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file in self._files else file


def put_in_order(items: list[pytest.Item]) -> list[str]:
    """Puts the slowest tests first, so that no process is left alone with one of them at the end.

    These are the tests on the Spark session, then the files with a raised time-out, then those that start
    processes. Shuffles the files within these groups if a seed is given. Returns the files on Spark.
    """
    files = list(dict.fromkeys(map(_file_of, items)))
    if seed := os.environ.get(ORDER_VARIABLE):
        random.Random(seed).shuffle(files)  # noqa: S311 - must be reproducible
    position = {file: number for number, file in enumerate(files)}
    on_spark = {_file_of(item) for item in items if SPARK in getattr(item, "fixturenames", ())}
    long = {_file_of(item) for item in items if item.get_closest_marker("timeout")}
    slow = {_file_of(item) for item in items if item.get_closest_marker("processes")}

    def rank(item: pytest.Item) -> tuple[bool, bool, bool, int]:
        file = _file_of(item)
        return file not in on_spark, file not in long, file not in slow, position[file]

    items.sort(key=rank)
    return sorted(on_spark)


class Priority:
    """Lets the process with the Spark session go first: its tests take longest, so the others have time.

    A worker whose first test is in a file on the session has all of those files.
    """

    def __init__(self, on_spark: Collection[Path]) -> None:
        """`on_spark` has the files once all tests are collected."""
        self._on_spark = on_spark
        self._is_set = "PYTEST_XDIST_WORKER" not in os.environ

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not self._is_set:
            self._is_set = True
            if item.path not in self._on_spark:
                os.nice(_NICENESS)


def report_spark_files(files: list[str], path: Path) -> None:
    """Writes the list for the scheduling process. All workers write the same list."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(files))
    unfinished.replace(path)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
