"""Materializations with two-phase-commit sinks, beside a connector or alone."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, HeadraceError, SchemaError
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.committing import EpochCommitter
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.runner import Runner
from headrace.pipeline.sinks import BindingSink
from headrace.sinks.iceberg import IcebergSink
from tests.pipeline.scenario import Recorder, Scenario
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.sink_places import (
    PLACES,
    DeltaPlace,
    FolderPlace,
    IcebergPlace,
    ParquetPlace,
    SinkPlace,
    assert_sink_exact,
)

pytestmark = pytest.mark.usefixtures("spark")


def alone(
    folder: Path, kind: str, mode: str, request: pytest.FixtureRequest | None = None
) -> tuple[Scenario, SinkPlace]:
    scenario = Scenario(folder, "", {})
    return scenario, PLACES[kind](scenario, "lake", mode, request.getfixturevalue if request else None)


class GivesUp(Recorder):
    """Ends a runner when it would try again."""

    runner: Runner

    def state(self, name: str, text: str) -> None:
        super().state(name, text)
        if text.startswith("failed"):
            self.runner.stop()


def failure_of(scenario: Scenario, **changes: Any) -> HeadraceError:
    """Why it stopped for good; fails if it would have been tried again."""
    recorder = GivesUp()
    recorder.runner = Runner(scenario.settings(**changes), recorder)
    recorder.runner.run()
    assert "view" in recorder.runner.failures, recorder.states
    return recorder.runner.failures["view"]


@pytest.mark.full  # tests/certify/test_decisive_faults.py runs all of them, with more done to them
@pytest.mark.parametrize(
    ("kind", "with_view"),
    [
        pytest.param("iceberg", True, id="iceberg"),
        pytest.param("parquet", False, id="parquet"),
        pytest.param("kafka", False, id="kafka"),
        pytest.param("delta", True, id="delta"),
        pytest.param("hudi", False, id="hudi"),
        pytest.param("hudi", True, id="hudi-view"),
    ],
)
def test_each_epoch_is_appended_once_and_a_view_has_one_row_for_each_key(
    tmp_path: Path, kind: str, with_view: bool, request: pytest.FixtureRequest
) -> None:
    """Runs both modes at once, if the format supports views."""
    scenario, place = alone(tmp_path, kind, "append", request)
    places = [place]
    if with_view:
        places.append(PLACES[kind](scenario, "view", "view"))
    scenario.write(60)
    scenario.write(60)
    recorder = scenario.run()
    assert [epoch.epoch for epoch in recorder.epochs] == [0, 1]
    for one in places:
        assert_sink_exact(scenario, one)
    rows = place.rows()
    for epoch in recorder.epochs:
        written = [row for row in rows if row["_epoch"] == epoch.epoch]
        assert len(written) == epoch.sinks["lake.orders"] == epoch.keys
        assert epoch.stored == sum(epoch.sinks.values()) == len(places) * epoch.keys
        assert epoch.good == epoch.documents
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [2]
    for one in places:
        assert_sink_exact(scenario, one)


def test_a_format_that_keeps_no_views_says_so(tmp_path: Path) -> None:
    scenario, _ = alone(tmp_path, "parquet", "view")
    scenario.write(10)
    with pytest.raises(ConfigError, match="parquet keeps no views: write `mode: append`"):
        scenario.run()


INVALID = ({"note": None}, "a row of collection 'orders'.*schema:/note")
OVERFLOW = ({"cents": 2**63 - 1}, 'documents cannot be combined: at "/cents"')


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        pytest.param("parquet", INVALID, id="parquet-invalid"),
        pytest.param("parquet", OVERFLOW, id="parquet-overflow", marks=pytest.mark.full),
        pytest.param("delta", INVALID, id="delta-invalid", marks=pytest.mark.full),
        pytest.param("delta", OVERFLOW, id="delta-overflow"),
    ],
)
def test_a_row_that_is_wrong_stops_it_though_a_sink_was_the_first_to_see_it(
    tmp_path: Path, kind: str, row: tuple[dict[str, Any], str]
) -> None:
    """Without rules no job runs before those of the sinks. To try again is no use."""
    wrong, said = row
    scenario, place = alone(tmp_path, kind, "append")
    order = {"customer": "ann", "orders": 1, "cents": 1, "largest": 1, "note": "x", **wrong}
    scenario._append([order, order])
    (one,) = scenario.settings().materializations
    (binding,) = one.bindings
    schema = {**binding.collection.schema, "required": ["customer", "note"]}
    strict = replace(binding, collection=replace(binding.collection, schema=schema), rules=())
    failure = failure_of(scenario, bindings=(strict,))
    assert isinstance(failure, SchemaError)
    assert re.search(said, failure.message)
    assert place.rows() == []


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param("parquet", "hudi"), pytest.param("delta", "iceberg", marks=pytest.mark.full)],
)
def test_a_sink_that_gets_another_format_is_refused_before_it_is_opened(
    tmp_path: Path, before: str, after: str
) -> None:
    scenario, place = alone(tmp_path, before, "append")
    scenario.write(10)
    scenario.run()
    PLACES[after](scenario, "lake", "append")
    failure = failure_of(scenario)
    assert isinstance(failure, ConfigError)
    assert f"stands in collection headrace.orders to {before}" in failure.message
    assert f"and the file now says collection headrace.orders to {after}" in failure.message
    PLACES[before](scenario, "lake", "append")
    scenario.write(10)
    scenario.run()
    assert_sink_exact(scenario, place)


@pytest.mark.full
@pytest.mark.parametrize("source", ["collection", "kafka"])
def test_a_connector_and_two_sinks_commit_as_one(make_scenario: MakeScenario, source: str) -> None:
    scenario, view = make_scenario(source, "sqlite", 2)
    places = [ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")]
    scenario.write(60)
    scenario.write(60)
    recorder = scenario.run()
    assert all(len(epoch.sinks) == 2 for epoch in recorder.epochs)
    scenario.assert_exact(view())
    for place in places:
        assert_sink_exact(scenario, place)


@pytest.mark.full  # tests/certify/test_decisive_faults.py does it to real processes
@pytest.mark.parametrize(
    ("part", "step"),
    [(Coordinator, "_decide"), (EpochCommitter, "commit")],
    ids=["before", "after"],
)
def test_a_crash_before_and_after_the_decision(
    make_scenario: MakeScenario, part: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, view = make_scenario("collection", "sqlite")
    places = [ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")]
    scenario.write(60)

    def interrupted(*_: object) -> None:
        raise ConfigError("as if the process had been killed here")

    with monkeypatch.context() as patch:
        patch.setattr(part, step, interrupted)
        with pytest.raises(ConfigError, match="been killed here"):
            scenario.run()
    assert not any(place.rows() for place in places)
    scenario.write(60)
    scenario.run()
    scenario.assert_exact(view())
    for place in places:
        assert_sink_exact(scenario, place)


def test_one_sink_that_fails_is_tried_again_while_the_other_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path, "", {})
    slow, quick = ParquetPlace(scenario, "slow"), ParquetPlace(scenario, "quick")
    scenario.write(60)
    commit = BindingSink.commit
    tries: list[bool] = []

    def failing(self: BindingSink, epoch: int, handle: JsonObject) -> None:
        if self.name.startswith("slow") and len(tries) < 3:
            tries.append(bool(quick.rows()))
            raise EndpointUnavailable("it is not there now")
        commit(self, epoch, handle)

    monkeypatch.setattr(BindingSink, "commit", failing)
    scenario.run()
    assert tries == [True, True, True]
    assert_sink_exact(scenario, slow)
    assert_sink_exact(scenario, quick)


def test_a_lost_log_is_made_anew_from_what_the_sinks_have(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "", {})
    places = [IcebergPlace(scenario, "rows"), IcebergPlace(scenario, "view", "view")]
    scenario.write(60)
    scenario.run()
    shutil.rmtree(scenario.state)
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [1]
    for place in places:
        assert_sink_exact(scenario, place)


def test_a_lost_log_is_not_made_anew_where_a_sink_was_about_to_commit_its_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path, "", {})
    broken, whole = ParquetPlace(scenario, "broken"), ParquetPlace(scenario, "whole")
    scenario.write(60)
    commit = BindingSink.commit

    def failing(self: BindingSink, epoch: int, handle: JsonObject) -> None:
        if self.name.startswith("broken"):
            raise EndpointError("its folder is not there any more")
        commit(self, epoch, handle)

    with monkeypatch.context() as patch:
        patch.setattr(BindingSink, "commit", failing)
        with pytest.raises(EndpointError, match="its folder is not there"):
            scenario.run()
    assert (bool(broken.rows()), bool(whole.rows())) == (False, True)
    state = scenario.state.with_name("backup")
    shutil.move(scenario.state, state)
    with pytest.raises(ConfigError, match=r"one epoch \(broken\.orders at none, whole\.orders at 0, dead"):
        scenario.run()
    shutil.rmtree(scenario.state)
    shutil.move(state, scenario.state)
    scenario.run()
    for place in (broken, whole):
        assert_sink_exact(scenario, place)


def test_a_start_with_an_older_log_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the right log has decided is still staged, and is committed when that log is back."""
    scenario = Scenario(tmp_path, "", {})
    places = [ParquetPlace(scenario, "broken"), ParquetPlace(scenario, "whole")]
    scenario.write(60)
    scenario.run()
    old, right = scenario.state.with_name("old"), scenario.state.with_name("right")
    shutil.copytree(scenario.state, old)
    scenario.write(60)
    commit = BindingSink.commit

    def failing(self: BindingSink, epoch: int, handle: JsonObject) -> None:
        if self.name.startswith("broken"):
            raise EndpointError("its folder is not there any more")
        commit(self, epoch, handle)

    with monkeypatch.context() as patch:
        patch.setattr(BindingSink, "commit", failing)
        with pytest.raises(EndpointError, match="its folder is not there"):
            scenario.run()
    scenario.state.rename(right)
    old.rename(scenario.state)
    for _ in range(3):  # each start would have a higher fence
        with pytest.raises(ConfigError, match=r"whole\.orders has epoch 1, and the recovery log ends with 0"):
            scenario.run()
    shutil.rmtree(scenario.state)
    right.rename(scenario.state)
    scenario.run()
    for place in places:
        assert_sink_exact(scenario, place)


@pytest.mark.full
def test_an_endpoint_that_was_restored_takes_the_sinks_back(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "sqlite")
    places = [ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")]
    two_dumps(scenario)
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [1, 2, 3]
    scenario.assert_exact(view())
    for place in places:
        assert_sink_exact(scenario, place)


@pytest.mark.parametrize("kind", [ParquetPlace, pytest.param(DeltaPlace, marks=pytest.mark.full)])
def test_a_sink_that_was_restored_from_an_older_copy_is_refused(
    tmp_path: Path, kind: type[FolderPlace]
) -> None:
    """One that had no rows in the last epoch is not taken for such."""
    scenario = Scenario(tmp_path, "", {})
    place = kind(scenario, "lake")
    scenario.write(60)
    scenario.run()
    old, right = tmp_path / "old", tmp_path / "right"
    shutil.copytree(place.folder, old)
    scenario.write(60)
    scenario.run()
    dead = [{**scenario.good[0], "cents": -1}]
    scenario._append(dead)
    scenario.written += dead
    assert [epoch.epoch for epoch in scenario.run().epochs] == [2]
    shutil.move(place.folder, right)
    shutil.move(old, place.folder)
    with pytest.raises(ConfigError, match=r"lake\.orders stands at epoch 0, and by .* up to epoch 1: it was"):
        scenario.run()
    shutil.rmtree(place.folder)
    with pytest.raises(ConfigError, match=r"lake\.orders has nothing, and by .* up to epoch 1: restore it"):
        scenario.run()
    shutil.move(right, place.folder)
    if kind is ParquetPlace:
        file = min(place.folder.glob("epoch-*1/*.parquet"))
        file.rename(tmp_path / "moved.parquet")
        with pytest.raises(
            ConfigError, match=r"has \d+ of \d+ files of epoch 1, and had the rows of epoch 1"
        ):
            scenario.run()
        (tmp_path / "moved.parquet").rename(file)
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [3]
    assert_sink_exact(scenario, place)


class Dumps:
    """Copies of a database of SQLite that nobody uses meanwhile."""

    def __init__(self, database: Path) -> None:
        self._database = database

    def take(self, name: str) -> None:
        shutil.copy(self._database, self._database.with_suffix(f".{name}"))

    def restore(self, name: str) -> None:
        for left in self._database.parent.glob(f"{self._database.name}-*"):
            left.unlink()
        shutil.copy(self._database.with_suffix(f".{name}"), self._database)


def two_dumps(scenario: Scenario) -> Dumps:
    """Of epoch 0 and of epoch 2, the last one; the endpoint is restored from the first."""
    dumps = Dumps(Path(scenario.endpoint["path"]))
    scenario.write(60)
    scenario.run()
    dumps.take("old")
    scenario.write(60)
    scenario.write(60)
    scenario.run()
    dumps.take("right")
    dumps.restore("old")
    return dumps


@pytest.mark.full  # test_rewind_invariants.py has the shortest case
def test_a_sink_that_cannot_go_back_keeps_all_others_from_it(make_scenario: MakeScenario) -> None:
    """The wrong dump was restored. With the right one all is as if nothing had happened."""
    scenario, view = make_scenario("collection", "sqlite")
    files, table = ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")
    dumps = two_dumps(scenario)
    before = files.rows(), scenario.dead_letters()
    table.expire_snapshots()
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot go back to epoch 0, since its snapshot has expired"):
            scenario.run()
        assert (files.rows(), scenario.dead_letters()) == before
    dumps.restore("right")
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [3]
    scenario.assert_exact(view())
    for place in (files, table):
        assert_sink_exact(scenario, place)


@pytest.mark.full  # the refusal and the rewind itself are tested each for itself
def test_a_way_back_that_was_cut_off_is_gone_to_its_end(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, view = make_scenario("collection", "sqlite")
    places = [ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")]
    dumps = two_dumps(scenario)

    def interrupted(*_: object) -> None:
        raise EndpointError("as if the process had been killed here")

    with monkeypatch.context() as patch:
        patch.setattr(IcebergSink, "rewind", interrupted)
        with pytest.raises(EndpointError, match="been killed here"):
            scenario.run()
    dumps.restore("right")
    with pytest.raises(ConfigError, match=r"endpoint stands at epoch 2, and the recovery log .* epoch 0"):
        scenario.run()
    dumps.restore("old")
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [1, 2, 3]
    scenario.assert_exact(view())
    for place in places:
        assert_sink_exact(scenario, place)
