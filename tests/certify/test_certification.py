from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headrace.certify.certification import Certification, Options
from headrace.certify.memory import CELL
from headrace.certify.results import Cell
from headrace.certify.scenarios import HOST_LOST, SCENARIOS
from headrace.errors import ConfigError
from headrace.pipeline.settings import Guarantee, Profile

NAMES = tuple(one.name for one in [*SCENARIOS, HOST_LOST])
SINKS = ("sqlite", "sqlite-grpc", "webhook", "files", "parquet", "iceberg", "delta", "hudi")


@pytest.mark.processes
def test_what_held_everywhere_is_not_tried_again(tmp_path: Path) -> None:
    """Not even a pipeline is started."""
    cells = [
        Cell("collection", sink, str(profile), Guarantee.EXACTLY_ONCE)
        for sink, profile in itertools.product(SINKS, Profile)
    ]
    held = frozenset((cell.name, name) for cell, name in itertools.product([*cells, CELL], NAMES))
    done: list[str] = []
    options = Options(ingest=False, seeded=NAMES, held=held)
    report = Certification(tmp_path, options, lambda text, _: done.append(text)).run()
    assert (report.cells, report.seeded, report.is_good) == ((), (), False)
    assert not [text for text in done if "killed" in text or "first epochs" in text]


def test_what_other_versions_have_shown_is_not_added_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"had python 2\.7, and this one has .*: leave --add out"):
        Certification(tmp_path, Options(versions={"python": "2.7", "of nobody": "1"})).run()
