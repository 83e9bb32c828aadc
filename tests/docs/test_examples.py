"""The examples of the documentation are run, and the connector of one passes the conformance suite."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.testing.conformance import ConnectorConformance, EndpointUnderTest
from headrace.testing.ingest_process import IngestProcess

ROOT = Path(__file__).parents[2]


def run_examples(
    document: str, replacing: Mapping[str, str] | None = None, **given: object
) -> types.ModuleType:
    """Runs the Python of a page, top to bottom, as one module; a block that starts indented goes on.

    Texts of it are replaced, such as the default address of `headrace serve`; names are given to it.
    """
    blocks: Sequence[str] = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    source = "\n".join(blocks)
    for old, new in (replacing or {}).items():
        assert old in source
        source = source.replace(old, new)
    module = types.ModuleType(re.sub(r"\W", "_", document))
    vars(module).update(given)
    exec(compile(source, document, "exec"), module.__dict__)
    return module


def test_readme(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    with IngestProcess(tmp_path / "data") as server:
        # Spark's workers were started in another folder.
        here = {"grpc://127.0.0.1:8815": server.url, '{"path": "': f'{{"path": "{tmp_path}/'}
        run_examples("README.md", here, spark=spark)
    said = capsys.readouterr().out
    assert re.search(r"\[\{'id': 1, 'customer': 'ann', 'amount': 12.5, '_lsn': 1, '_row': 0\}\]", said)
    assert "1 survives the machine" in said
    assert 'CREATE TABLE "main"."sales"' in said
    with contextlib.closing(sqlite3.connect("sales.db")) as database:
        rows = database.execute("SELECT customer, orders FROM sales ORDER BY customer").fetchall()
        assert rows == [("ann", 2), ("bob", 1)]
        ((checkpoint,),) = database.execute("SELECT checkpoint FROM headrace_checkpoints").fetchall()
        assert checkpoint == '{"offset":3}'
    with contextlib.closing(sqlite3.connect("payments.db")) as database:
        rows = database.execute("SELECT customer, amount FROM payments ORDER BY customer").fetchall()
        assert rows == [("ann", 7.5), ("bob", 1.0)]


example: Any = run_examples("docs/writing-a-connector.md")


class TestWritingAConnector(ConnectorConformance):
    @pytest.fixture
    def endpoint(self, tmp_path: Path) -> EndpointUnderTest:
        under_test: EndpointUnderTest = example.JsonFileUnderTest(tmp_path / "views.json")
        return under_test
