"""A process that prepares or commits an epoch, and is killed or frozen at one step of it.

    python -m tests.sinks.killed_sink JOB

JOB is JSON: the format, the place, the step, and the handle to commit if there is one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Place, RowSink
from headrace.sinks.staging import Attempt
from headrace.testing.faults import freeze_here

ROOT = Path(__file__).parents[2]


def run_killed(form: str, place: Place, step: str, handle: JsonObject | None = None) -> None:
    """Returns when the process was killed at the step; fails if it was not."""
    with _child(form, place, step, handle) as child:
        _, said = child.communicate()
        assert child.returncode == -signal.SIGKILL, said


@contextmanager
def frozen(form: str, place: Place, step: str, handle: JsonObject) -> Iterator[Callable[[], str]]:
    """A process that is frozen at the step; what is given lets it go on, and returns its errors."""
    with _child(form, place, f"frozen {step}", handle) as child:

        def thaw() -> str:
            child.send_signal(signal.SIGCONT)
            return child.communicate()[1]

        try:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield thaw
        finally:
            child.kill()


def _child(form: str, place: Place, step: str, handle: JsonObject | None) -> subprocess.Popen[str]:
    job = {"format": form, "place": asdict(place), "step": step, "handle": handle}
    command = [sys.executable, "-m", "tests.sinks.killed_sink", json.dumps(job)]
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def killing(step: str, real: Callable[..., Any], applies: Callable[..., bool]) -> Callable[..., Any]:
    """`real`, before or after which the process ends, if what it is called with is what is meant."""
    is_thawed = False

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal is_thawed
        if not applies(*arguments, **named) or is_thawed:
            return real(*arguments, **named)
        if step.startswith("frozen"):
            is_thawed = True
            freeze_here()
            return real(*arguments, **named)
        if step.startswith("after"):
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    return call


def _patch(form: str, step: str) -> None:
    from deltalake import DeltaTable
    from deltalake.table import TableMerger

    from headrace.objects import ObjectStore
    from headrace.sinks import delta, parquet_objects

    patched: Any
    if "staging" in step:
        patched = delta if form == "delta" else parquet_objects
        patched.stage = killing(step, patched.stage, lambda *_, **__: True)
    elif "merge" in step:
        patched = TableMerger
        patched.execute = killing(step, TableMerger.execute, lambda _: True)
    elif "log entry" in step:
        patched = DeltaTable
        real = DeltaTable.create_write_transaction
        patched.create_write_transaction = killing(step, real, lambda _, actions, *__, **___: bool(actions))
    elif "manifest" in step:
        patched = ObjectStore
        patched.create = killing(step, ObjectStore.create, lambda _, path, *__: path.startswith("_manifests"))


def main(raw: str) -> None:
    from headrace.sinks.registry import find_sink

    job = json.loads(raw)
    lists = {name: tuple(job["place"][name]) for name in ("keys", "partitions")}
    place = Place(**{**job["place"], **lists})
    _patch(job["format"], job["step"])
    spark: Any = None
    if not job["handle"]:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    sink: RowSink = find_sink(job["format"]).open("orders", place, spark)
    if job["handle"]:
        attempt = Attempt.named(job["handle"]["staged"])
        assert attempt is not None
        sink.commit(attempt.epoch, job["handle"])
        return
    from tests.sinks.conftest import an_epoch

    sink.start(None, None, 1)
    sink.prepare(an_epoch(0), spark.range(3).selectExpr("0L as epoch", "id as key", "id as value"))
    if job["step"] == "after prepare":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
