"""Tables are compacted and cleaned, again and again, while another process writes epochs to them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import Transient
from headrace.pipeline.maintenance import maintain
from headrace.pipeline.places import open_recovery_log
from headrace.pipeline.verification import verify
from tests.crash.pipeline.killing import Driver
from tests.pipeline.scenario import Scenario
from tests.pipeline.sink_places import DeltaPlace, IcebergPlace, assert_sink_exact


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_repeated_by_maintenance_meanwhile(tmp_path: Path, spark: object) -> None:
    scenario = Scenario(tmp_path, "", {})
    places = IcebergPlace(scenario, "table", "view"), DeltaPlace(scenario, "files")
    for _ in range(5):
        scenario.write(60)
    scenario.run()
    for _ in range(10):
        scenario.write(60)
    settings = scenario.settings()
    (one,) = settings.materializations
    recovery_log = open_recovery_log(settings, one.name)
    said: list[tuple[str, str]] = []
    epochs: set[int] = set()
    with Driver(scenario) as driver:
        while driver.process.poll() is None:
            decision = recovery_log.read().decision
            assert decision is not None
            epochs.add(decision.epoch)
            try:
                said += maintain(settings, timedelta(days=1))
            except Transient:
                continue  # the pipeline was quicker, and the next round has its turn
        ran = driver.end()
    assert ran.returncode == 0, ran.output
    assert len(epochs) > 1, "they must have been at it at the same time"
    said += maintain(settings, timedelta(days=1))  # a pipeline that was quicker each time is so no more
    compacted = {sink for sink, sentence in said if "files became" in sentence or "small files" in sentence}
    assert compacted == {"view, table.orders", "view, files.orders"}, said
    for place in places:
        assert_sink_exact(scenario, place)
    assert [problem for verdict in verify(settings, one) for problem in verdict.problems] == []
