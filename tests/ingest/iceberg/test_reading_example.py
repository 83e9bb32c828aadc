"""The documentation's way to read a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.ingest.iceberg import embedded_catalog
from tests.ingest.iceberg.scenario import Scenario

PAGE = Path(__file__).parents[3] / "docs/collections.md"


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    scenario = Scenario(embedded_catalog(data), data)
    last = scenario.write_segment()
    scenario.commit()
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    exec(compile(example, str(PAGE), "exec"), {})

    printed = capsys.readouterr().out
    assert f"all writes up to {last}" in printed
    assert "_lsn: int64 not null" in printed
