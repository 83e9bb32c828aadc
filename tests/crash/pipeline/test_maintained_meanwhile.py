"""Tables are compacted and cleaned, again and again, while another process writes epochs to them."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.errors import Transient
from headrace.faults import Action, Faults
from headrace.pipeline.maintenance import maintain
from headrace.pipeline.state_paths import open_recovery_log
from headrace.pipeline.verification import verify
from tests.crash.pipeline.killing import Driver
from tests.pipeline.scenario import Scenario
from tests.pipeline.sink_places import DeltaPlace, IcebergPlace, assert_sink_exact

pytestmark = [pytest.mark.full, pytest.mark.processes]

MIDWAY = "view decided"
"""A fault point that the pipeline reaches in each epoch."""


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

    def maintain_meanwhile() -> None:
        with suppress(Transient):  # the pipeline was faster; the next round tries again
            said.extend(maintain(settings, timedelta(days=1)))

    faults = Faults(tmp_path / "faults")
    faults.arm(MIDWAY, Action.PARK, occurrence=3)
    with Driver(scenario, faults=faults) as driver:
        while MIDWAY not in faults.parked:  # so that the pipeline is mid-epoch at least once
            assert driver.process.poll() is None, driver.end().output
            maintain_meanwhile()
        maintain_meanwhile()
        decision = recovery_log.read().decision
        assert decision is not None
        assert decision.epoch == 7, "of epochs 5 to 14"
        faults.release(MIDWAY)
        while driver.process.poll() is None:
            maintain_meanwhile()
        ran = driver.end()
    assert ran.returncode == 0, ran.output
    said += maintain(settings, timedelta(days=1))  # a pipeline that was quicker each time is so no more
    compacted = {sink for sink, sentence in said if "files became" in sentence or "small files" in sentence}
    assert compacted == {"view, table.orders", "view, files.orders"}, said
    for place in places:
        assert_sink_exact(scenario, place)
    assert [problem for verdict in verify(settings, one) for problem in verdict.problems] == []
