"""Invariant 3 of docs/invariants.md: before sinks roll back to an endpoint's older checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.pipeline.recovery_log import Recovered, RecoveryLog
from headrace.sinks.parquet import ParquetSink
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.sink_places import ParquetPlace
from tests.pipeline.test_lost_history import copy_of, restore

pytestmark = pytest.mark.usefixtures("spark")


def test_every_sink_may_refuse_before_the_log_says_that_all_roll_back(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 3. Once it is in the log, the next start rolls back the other sinks even if one refuses."""
    scenario, _ = make_scenario("collection", "sqlite")
    for name in ("able", "unable"):
        ParquetPlace(scenario, name)
    scenario.write(10)
    scenario.run()
    database = Path(scenario.endpoint["path"])
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()  # the endpoint is created again and starts from the beginning

    effects: list[str] = []
    start, decide, rewind = RecoveryLog.open, RecoveryLog.decide, ParquetSink.rewind

    def record_question(self: ParquetSink, _epoch: int) -> None:
        effects.append(f"ask {self.name}")
        if self.name.startswith("unable"):
            raise ConfigError("it cannot go back")

    def record_rewind(self: ParquetSink, epoch: int) -> None:
        effects.append(f"rewind {self.name}")
        rewind(self, epoch)

    def record_start(self: RecoveryLog, *args: Any) -> Recovered:
        effects.append("open")
        return start(self, *args)

    def record_decision(self: RecoveryLog, *args: Any) -> None:
        effects.append("decide")
        decide(self, *args)

    monkeypatch.setattr(ParquetSink, "refuse_rewind", record_question)
    monkeypatch.setattr(ParquetSink, "rewind", record_rewind)
    monkeypatch.setattr(RecoveryLog, "open", record_start)
    monkeypatch.setattr(RecoveryLog, "decide", record_decision)
    with pytest.raises(ConfigError, match="it cannot go back"):
        scenario.run()
    assert "ask unable.orders" in effects
    assert [effect for effect in effects if not effect.startswith("ask")] == []


def test_a_sink_that_lost_its_rows_is_refused_however_far_the_endpoint_rolls_back(
    make_scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log knows the last epoch that brought it rows, and not any more whether earlier ones did."""
    scenario, _ = make_scenario("collection", "sqlite")
    place = ParquetPlace(scenario)
    scenario.write(10)
    scenario.run()
    database = Path(scenario.endpoint["path"])
    old = copy_of(database, "old")
    for _ in range(2):
        scenario.write(10)
    scenario.run()
    restore(database, old)
    kept = place.folder.rename(tmp_path / "kept")
    with monkeypatch.context() as patch:
        patch.setattr(RecoveryLog, "recent", lambda *_: [])
        with pytest.raises(ConfigError, match=r"has nothing, and by the recovery log .* up to epoch 2"):
            scenario.run()
    kept.rename(place.folder)
    scenario.run()
    assert combine(COLLECTION, place.documents()) == scenario.expected
