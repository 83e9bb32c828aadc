"""The JVM does not outlive an interrupted start of Spark."""

from __future__ import annotations

import signal
import subprocess

import pytest
from pyspark import SparkContext, java_gateway

from headrace.spark.session import _ended_if_interrupted, _own_interrupt

pytestmark = pytest.mark.processes


def launch_gateway(started: list[subprocess.Popen[bytes]]) -> None:
    """Is interrupted as PySpark's function of this name is while it waits."""
    proc = subprocess.Popen(["sleep", "600"])
    started.append(proc)
    raise KeyboardInterrupt


def test_an_interrupted_start_ends_java() -> None:
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(KeyboardInterrupt), _ended_if_interrupted():
        launch_gateway(started)
    (process,) = started
    assert process.returncode is not None


def test_pyspark_has_its_process_by_the_name_that_is_looked_for() -> None:
    code = java_gateway.launch_gateway.__code__
    assert "proc" in code.co_varnames + code.co_cellvars
    assert SparkContext._ensure_initialized.__globals__["launch_gateway"] is java_gateway.launch_gateway


def test_an_interrupt_is_left_to_who_handles_it() -> None:
    """PySpark would cancel the epoch under way, which is to be finished."""
    before = signal.getsignal(signal.SIGINT)
    with _own_interrupt():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before
