"""Maintenance of several sinks, of which one fails; without Spark, which only the formats need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EndpointUnavailable, HeadraceError
from headrace.pipeline import maintenance
from headrace.pipeline.maintenance import maintain
from tests.pipeline.scenario import Scenario
from tests.pipeline.sink_places import ParquetPlace


class Sink:
    """Of any format."""

    fails: Exception

    @classmethod
    def open(cls, name: str, *_: Any) -> Sink:
        return cls(name)

    def __init__(self, name: str) -> None:
        self._name = name

    def maintain(self, *_: Any) -> Iterator[str]:
        yield "began"
        if self._name == "first.orders":
            raise self.fails
        yield "ended"


@pytest.mark.parametrize("error", [EndpointUnavailable("the store is away"), KeyError("generation")])
def test_one_sink_that_fails_keeps_no_other_from_its_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Nor does a connector whose endpoint is away."""
    scenario = Scenario(tmp_path, "postgres", {"url": "postgresql://nobody@127.0.0.1:1/none"})
    ParquetPlace(scenario, "first")
    ParquetPlace(scenario, "second")
    settings = scenario.settings(dead_letters=None)
    monkeypatch.setattr(maintenance, "make_session", lambda *_: None)
    monkeypatch.setattr(maintenance, "own_session", lambda *_: None)
    monkeypatch.setattr(maintenance, "find_sink", lambda _: Sink)
    monkeypatch.setattr(Sink, "fails", error, raising=False)
    done: defaultdict[str, list[str]] = defaultdict(list)
    said = "the store is away" if isinstance(error, EndpointUnavailable) else "generation"

    def collect() -> None:
        for name, sentence in maintain(settings, timedelta(days=1)):
            done[name].append(sentence)

    with pytest.raises(HeadraceError, match=said):
        collect()
    assert done["view, second.orders"] == ["began", "ended"]
    began, failed = done["view, first.orders"]
    assert began == "began"
    assert failed.startswith("failed: ")
    assert said in failed
