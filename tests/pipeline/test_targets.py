"""Targets that have the right name and are not the right ones are refused, and nothing is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

from headrace.errors import ConfigError, EndpointError, HeadraceError
from headrace.model.ownership import Mode, Owner, Target
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.state_paths import open_recovery_log
from headrace.pipeline.targets import Asked, AskedTarget, SinkTarget, TargetRules
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION, Scenario
from tests.pipeline.scenarios import MakeScenario

OURS = Owner("view", "ours", ("k",), Mode.VIEW)
MARKED = Target(exists=True, has_rows=True, owner=OURS)
UNMARKED = Target(exists=True, has_rows=True)
MISSING = Target(exists=False)
NONE = RuntimeCheckpoint("view", "", -1)
THIRD = RuntimeCheckpoint("view", "ours", 3)
OLD = RuntimeCheckpoint("view", "ours", 3, version=1)


def problem(
    found: Target,
    *,
    logged: RuntimeCheckpoint = NONE,
    endpoint: tuple[RuntimeCheckpoint, ...] | None = None,
    is_new: bool = False,
    forgets: bool = False,
    adopts: bool = False,
    is_sink: bool = False,
    committed: RuntimeCheckpoint | None = None,
) -> str:
    rules = TargetRules("view", logged, "ours", is_new, forgets, adopts)
    wanted = Owner("view", "", ("k",), Mode.VIEW)
    asked = Asked(endpoint, [AskedTarget("main.t", found, wanted)])
    if is_sink:
        asked = Asked(endpoint, sinks=[SinkTarget("sink s", found, wanted, committed)])
    try:
        rules.check(asked)
    except ConfigError as error:
        return error.message
    return ""


def owned(**changes: Any) -> Target:
    said = {"materialization": "view", "lineage": "ours", "key": ("k",), "mode": Mode.VIEW, **changes}
    return Target(exists=True, has_rows=True, owner=Owner(**said))


@pytest.mark.parametrize("is_sink", [False, True])
@pytest.mark.parametrize(
    ("found", "told"),
    [
        (owned(materialization="other"), "is written by materialization 'other'. Restore"),
        (owned(key=("r",)), "has the key (r), and would get (k)"),
        (owned(mode=Mode.APPEND), "is written as appended rows, and would be as a view"),
    ],
)
def test_the_target_of_another_one(found: Target, told: str, is_sink: bool) -> None:
    stood: dict[str, Any] = {"logged": THIRD, "endpoint": (THIRD,), "committed": THIRD}
    for stands in ({}, stood):
        assert told in problem(found, is_sink=is_sink, **stands)
        assert problem(found, is_sink=is_sink, adopts=True, **stands) == ""


@pytest.mark.parametrize(
    ("found", "stands", "told"),
    [
        (MISSING, {"endpoint": ()}, ""),
        (Target(exists=True), {"endpoint": (), "is_new": True}, ""),
        (MARKED, {"logged": THIRD, "endpoint": (THIRD, THIRD)}, ""),
        (MARKED, {"logged": NONE, "endpoint": (THIRD,), "is_new": True}, ""),  # the log was lost
        (MARKED, {"endpoint": (THIRD, NONE)}, ""),  # some shards have committed the first epochs
        (UNMARKED, {"logged": OLD, "endpoint": (OLD,)}, ""),  # an upgrade
        (UNMARKED, {"logged": THIRD, "endpoint": (THIRD,)}, "another one than epoch 3 was written to"),
        (MISSING, {"logged": THIRD, "endpoint": (THIRD,)}, "is gone, and up to epoch 3"),
        (owned(lineage="a"), {"logged": THIRD, "endpoint": (THIRD,)}, "has rows of lineage a, and epoch 3"),
        (MARKED, {"logged": THIRD, "endpoint": ()}, "has rows, and no checkpoint says which"),
        (UNMARKED, {"endpoint": (), "is_new": True}, "has rows, and no checkpoint says which"),
        (UNMARKED, {"endpoint": (), "forgets": True}, "has rows, and no checkpoint says which"),
        # Where the endpoint keeps no checkpoints, the log tells.
        (MARKED, {"logged": THIRD}, ""),
        (MARKED, {}, ""),  # it crashed in its first epoch
        (MARKED, {"is_new": True}, "has rows, and no checkpoint says which"),
        (MARKED, {"is_new": True, "forgets": True}, ""),
        (UNMARKED, {"is_new": True, "forgets": True}, "has rows, and no checkpoint says which"),
        (UNMARKED, {"logged": THIRD}, "another one than epoch 3 was written to"),
    ],
)
def test_the_table_of_a_connector(found: Target, stands: dict[str, Any], told: str) -> None:
    said = problem(found, **stands)
    assert told in said
    assert bool(said) == bool(told)


@pytest.mark.parametrize(
    ("found", "stands", "told"),
    [
        (MISSING, {}, ""),
        (MISSING, {"logged": THIRD}, ""),  # it had no rows so far
        (MARKED, {"logged": THIRD, "committed": THIRD}, ""),
        (UNMARKED, {"logged": OLD, "committed": OLD}, ""),
        (UNMARKED, {"logged": OLD}, ""),
        (MARKED, {"is_new": True, "forgets": True}, ""),
        (MARKED, {}, ""),
        (MISSING, {"logged": THIRD, "committed": THIRD}, "is gone, and up to epoch 3"),  # a topic
        (UNMARKED, {"logged": THIRD, "committed": THIRD}, "another one than epoch 3 was written to"),
        (UNMARKED, {"is_new": True}, "has rows, and no checkpoint says which"),
        (UNMARKED, {"logged": THIRD}, "has rows, and no checkpoint says which"),
        (owned(lineage="another"), {"is_new": True}, "has rows, and no checkpoint says which"),
    ],
)
def test_the_place_of_a_sink(found: Target, stands: dict[str, Any], told: str) -> None:
    said = problem(found, is_sink=True, **stands)
    assert told in said
    assert bool(said) == bool(told)


def test_whose_epochs_come() -> None:
    theirs = RuntimeCheckpoint("view", "theirs", 3)
    assert Asked((theirs,)).lineage(THIRD, "ours") == "ours"
    assert Asked((NONE, theirs)).lineage(NONE, "new") == "theirs"
    assert Asked(None, sinks=[SinkTarget("", MARKED, OURS, theirs)]).lineage(NONE, "new") == "theirs"
    assert Asked(()).lineage(NONE, "new") == "new"


def statements(scenario: Scenario, *texts: str) -> None:
    with closing(sqlite3.connect(scenario.endpoint["path"], isolation_level=None)) as database:
        for text in texts:
            database.execute(text)


def everything(scenario: Scenario) -> list[str]:
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database:
        return list(database.iterdump())


@pytest.mark.usefixtures("spark")
def test_a_table_that_is_not_ours_any_more(make_scenario: MakeScenario) -> None:
    """Each start is refused and changes nothing; what was is put back, and it goes on."""
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(30)
    scenario.run()
    scenario.write(30)
    refused = {
        "DROP TABLE headrace_checkpoints": "main.orders has rows, and no checkpoint says which",
        "DROP TABLE orders": "main.orders is gone, and up to epoch 0 everything was written to it",
        "CREATE TABLE copy AS SELECT * FROM orders; DROP TABLE orders; ALTER TABLE copy RENAME TO orders": (
            "the table has no primary key"
        ),
    }
    path = scenario.folder / "view.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    for statement, told in refused.items():
        statements(scenario, *statement.split(";"))
        damaged = everything(scenario)
        with pytest.raises(HeadraceError) as caught:
            scenario.run()
        assert told in caught.value.message
        assert everything(scenario) == damaged
        for file in path.parent.glob("view.db*"):
            file.unlink()
        path.write_bytes(whole)
    scenario.run()
    scenario.assert_exact(view())


@pytest.mark.usefixtures("spark")
def test_another_materialization(make_scenario: MakeScenario) -> None:
    """It would count everything twice; so does a person who says that it should."""
    scenario, view = make_scenario("collection", "sqlite")
    scenario.write(30)
    scenario.run()
    with pytest.raises(EndpointError) as caught:
        scenario.run(name="other")
    assert "table main.orders is written by materialization 'view': give the binding another" in (
        caught.value.message
    )
    scenario.assert_exact(view())
    assert not (scenario.state.parent / "other").exists()
    scenario.run(name="other", adopts=["other"])
    assert combine(COLLECTION, view()) == combine(COLLECTION, scenario.good + scenario.good)
    with pytest.raises(HeadraceError, match="is written by materialization 'other'"):
        scenario.run()


@pytest.mark.usefixtures("spark")
def test_a_place_that_nobody_can_take_over_is_refused_before_anything_is_changed(
    make_scenario: MakeScenario,
) -> None:
    """Its epochs have the numbers of those that would come, whatever a person says."""
    scenario, _ = make_scenario("collection", "sqlite")
    place = scenario.folder / "lake"
    scenario.connector, scenario.sinks = "", {"lake": {"format": "parquet"}}
    scenario.targets = {"lake": {"location": place.as_uri()}}
    scenario.write(30)
    scenario.run()
    before = sorted(place.rglob("*"))
    with pytest.raises(EndpointError, match=r"has epochs of materialization 'view'.*move them away"):
        scenario.run(name="other", adopts=["other"])
    assert sorted(place.rglob("*")) == before
    assert open_recovery_log(scenario.settings(), "other").read().fence == 0


@pytest.mark.full  # the rule is tried above, and SQLite in the test before
@pytest.mark.usefixtures("spark")
def test_a_schema_for_checkpoints_is_changed_alone(make_scenario: MakeScenario) -> None:
    """The tables stay where they are, and nothing tells any more what is in them."""
    scenario, view = make_scenario("collection", "postgres")
    scenario.resource = {"table": "orders", "schema": "public"}
    scenario.write(30)
    scenario.run()
    with dbapi.connect(scenario.endpoint["url"], autocommit=True) as database, database.cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
    scenario.write(30)
    scenario.endpoint["schema"] = "elsewhere"
    with pytest.raises(ConfigError, match=r"public\.orders has rows, and no checkpoint says which"):
        scenario.run()
    del scenario.endpoint["schema"]
    scenario.run()
    scenario.assert_exact(view())
