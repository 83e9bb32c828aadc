"""What the README shows is run from top to bottom in one folder."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.config import load_config
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import Trigger
from headrace.testing.ingest_process import IngestProcess
from tests.docs.running import ROOT, run_examples
from tests.pipeline.scenario import Recorder


def test_readme(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
) -> None:
    monkeypatch.chdir(tmp_path)
    with IngestProcess(tmp_path / "data") as server:
        # Spark's workers were started in another folder.
        here = {"grpc://127.0.0.1:8815": server.url, '{"path": "': f'{{"path": "{tmp_path}/'}
        run_examples("README.md", here, spark=spark)
    said = capsys.readouterr().out
    assert re.search(r"\[\{'id': 1, 'customer': 'ann', 'amount': 12.5, '_lsn': 1, '_row': 0\}\]", said)
    assert "1 is in object storage" in said
    assert 'CREATE TABLE "main"."totals"' in said
    with contextlib.closing(sqlite3.connect("totals.db")) as database:
        rows = database.execute("SELECT customer, orders FROM totals ORDER BY customer").fetchall()
        assert rows == [("ann", 2), ("bob", 1)]
        ((checkpoint,),) = database.execute("SELECT checkpoint FROM headrace_checkpoints").fetchall()
        assert checkpoint == '{"offset":3}'
    with contextlib.closing(sqlite3.connect("payments.db")) as database:
        rows = database.execute("SELECT customer, amount FROM payments ORDER BY customer").fetchall()
        assert rows == [("ann", 7.5), ("bob", 1.0)]
    run_file("headrace.yaml", tmp_path)
    run_file(
        "sinks.yaml", tmp_path, {"127.0.0.1:9092": kafka_broker.bootstrap, "customer-changes": uuid4().hex}
    )
    for database_name, table in (("sales.db", "sales"), ("customers.db", "customers")):
        with contextlib.closing(sqlite3.connect(database_name)) as database:
            assert database.execute(f"SELECT customer, amount, id FROM {table}").fetchall() == [
                ("ann", 12.5, 1)
            ]


def run_file(name: str, folder: Path, here: Mapping[str, str] = MappingProxyType({})) -> None:
    """As `headrace run --once` would, in this process and on its Spark session."""
    text = (ROOT / "examples" / name).read_text()
    for there, instead in {"path: ": f"path: {folder}/", **here}.items():
        text = text.replace(there, instead)
    (folder / name).write_text(text)
    settings = load_config(folder / name).pipeline_settings()
    once = tuple(replace(one, trigger=Trigger(once=True)) for one in settings.materializations)
    runner = Runner(replace(settings, materializations=once), Recorder())
    runner.run()
    assert not runner.failures
