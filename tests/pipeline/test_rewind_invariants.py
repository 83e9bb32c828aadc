"""Invariant 3 of docs/invariants.md: before sinks roll back to an endpoint's older checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.sinks.parquet import ParquetSink
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.sink_places import ParquetPlace

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
    decide, rewind = RecoveryLog.decide, ParquetSink.rewind

    def record_question(self: ParquetSink, _epoch: int) -> None:
        effects.append(f"ask {self.name}")
        if self.name.startswith("unable"):
            raise ConfigError("it cannot go back")

    def record_rewind(self: ParquetSink, epoch: int) -> None:
        effects.append(f"rewind {self.name}")
        rewind(self, epoch)

    def record_decision(self: RecoveryLog, *args: Any) -> None:
        effects.append("decide")
        decide(self, *args)

    monkeypatch.setattr(ParquetSink, "refuse_rewind", record_question)
    monkeypatch.setattr(ParquetSink, "rewind", record_rewind)
    monkeypatch.setattr(RecoveryLog, "decide", record_decision)
    with pytest.raises(ConfigError, match="it cannot go back"):
        scenario.run()
    assert "ask unable.orders" in effects
    assert [effect for effect in effects if not effect.startswith("ask")] == []
