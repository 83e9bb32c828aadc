"""The endpoint's checkpoint outranks Spark's: whatever happens to the folders, the view is exactly right."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from devtools.postgres_server import PostgresServer
from headrace.errors import CheckpointMoved, ConfigError, EndpointError
from headrace.pipeline.settings import Limits
from headrace.pipeline.shards.task import run_shards
from headrace.pipeline.shards.transaction import ShardJob, ShardResult, transact
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION, Scenario
from tests.pipeline.scenarios import Documents, MakeScenario
from tests.pipeline.sink_places import ParquetPlace, assert_sink_exact

pytestmark = pytest.mark.usefixtures("spark")

NUMBER = {"type": "number", "reduce": {"strategy": "sum"}}


def run_epochs(scenario: Scenario, count: int) -> None:
    """And then some, if Spark makes more of it."""
    for _ in range(count):
        scenario.write(60)
    epochs = [epoch.epoch for epoch in scenario.run().epochs]
    assert len(epochs) >= count
    assert epochs == list(range(len(epochs)))
    scenario.last_epoch = epochs[-1]


def go_on(scenario: Scenario) -> list[int]:
    """Writes more, runs to the end, and says which epochs were run, counted from the last one before."""
    scenario.write(30)
    return [epoch.epoch - scenario.last_epoch for epoch in scenario.run().epochs]


def delete_the_checkpoint_folder(scenario: Scenario) -> None:
    shutil.rmtree(scenario.state / "checkpoint")


def roll_it_back_by_two_epochs(scenario: Scenario) -> None:
    for name in ("offsets", "commits"):
        for number in (scenario.last_epoch - 1, scenario.last_epoch):
            (scenario.state / "checkpoint" / name / str(number)).unlink()
            (scenario.state / "checkpoint" / name / f".{number}.crc").unlink(missing_ok=True)


def delete_the_last_entry_of_the_commit_log(scenario: Scenario) -> None:
    (scenario.state / f"checkpoint/commits/{scenario.last_epoch}").unlink()


def lose_the_whole_state(scenario: Scenario) -> None:
    """Removes the state but not the dead letters, which are data."""
    shutil.rmtree(scenario.state)


def torn(name: str, ahead: int, *, is_half: bool, keeps_checksum: bool) -> Callable[[Scenario], None]:
    """Returns a function that damages an entry as a loss of power does, so that Spark cannot read it."""

    def tear(scenario: Scenario) -> None:
        folder, last = scenario.state / "checkpoint" / name, scenario.last_epoch
        entry = folder / str(last + ahead)
        content = (folder / str(last)).read_bytes()
        assert entry.with_name(f".{last}.crc").exists(), "Spark has not written it as we think it does"
        entry.write_bytes(content[: len(content) // 2] if is_half else b"")
        if not keeps_checksum:
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)

    return tear


DAMAGES: dict[str, Callable[[Scenario], None]] = {
    "the checkpoint folder is rolled back by two epochs": roll_it_back_by_two_epochs,
    "the checkpoint folder is deleted": delete_the_checkpoint_folder,
    "the whole state is lost": lose_the_whole_state,
    "the last entry of the commit log is deleted": delete_the_last_entry_of_the_commit_log,
    "an entry of offsets was half planned": torn("offsets", 1, is_half=True, keeps_checksum=False),
    "an entry of offsets is empty": torn("offsets", 0, is_half=False, keeps_checksum=True),
    "an entry of commits is empty": torn("commits", 0, is_half=False, keeps_checksum=False),
    "an entry of commits is half": torn("commits", 0, is_half=True, keeps_checksum=True),
}


@pytest.mark.parametrize(
    ("source", "damages"),
    [
        pytest.param("collection", list(DAMAGES)[2:3], id="collection"),
        # The full tier has the others; tests/pipeline/test_resume.py does them to the rules alone.
        pytest.param("collection", list(DAMAGES), id="collection-all", marks=pytest.mark.full),
        pytest.param("kafka", list(DAMAGES)[:2], id="kafka", marks=pytest.mark.full),
    ],
)
def test_whatever_happens_to_the_state_the_next_epoch_is_the_next(
    make_scenario: MakeScenario, source: str, damages: list[str]
) -> None:
    """Applies one damage after another; each start repairs the folder and runs exactly one epoch."""
    scenario, view = make_scenario(source, "sqlite", 2)
    run_epochs(scenario, 3)
    for damage in damages:
        DAMAGES[damage](scenario)
        assert go_on(scenario) == [1], damage
        scenario.last_epoch += 1
        assert combine(COLLECTION, view()) == scenario.expected, damage
    scenario.assert_exact(view())


@pytest.mark.full  # test_a_database_is_restored_and_then_brought_back begins with it
def test_a_database_is_restored_from_an_older_dump(make_scenario: MakeScenario, tmp_path: Path) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(40)
    scenario.last_epoch = scenario.run().epochs[-1].epoch
    dump = tmp_path / "dump.db"
    shutil.copy(scenario.endpoint["path"], dump)
    scenario.write(40)
    scenario.run()
    shutil.copy(dump, scenario.endpoint["path"])
    assert go_on(scenario)[0] == 1, "as if the epoch after the dump had not been"
    scenario.assert_exact(view())


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule: another history
def test_a_database_is_restored_and_then_brought_back(make_scenario: MakeScenario, tmp_path: Path) -> None:
    """Its epochs have the numbers of those that came after it was restored, and are others."""
    scenario, view = make_scenario("collection", "sqlite")
    sink = ParquetPlace(scenario, "files")
    database, copies = Path(scenario.endpoint["path"]), []
    for epoch in range(3):
        scenario.write(1, seed=epoch)
        scenario.run()
        copies.append(shutil.copy(database, tmp_path / f"copy-{epoch}.db"))
    shutil.copy(copies[0], database)
    scenario.run()
    scenario.write(1, seed=3)
    scenario.run()
    right = shutil.copy(database, tmp_path / "right.db")
    before = sink.rows()
    shutil.copy(copies[2], database)
    with pytest.raises(ConfigError, match="the endpoint stands at epoch 2 of another history"):
        scenario.run()
    assert sink.rows() == before
    shutil.copy(right, database)
    scenario.write(1, seed=4)
    scenario.run()
    scenario.assert_exact(view())
    assert_sink_exact(scenario, sink)


@pytest.mark.full
def test_a_postgres_database_is_restored_from_an_older_dump(
    make_scenario: MakeScenario, postgres_server: PostgresServer
) -> None:
    scenario, view = make_scenario("kafka", "postgres", 3)
    scenario.write(60)
    scenario.last_epoch = scenario.run().epochs[-1].epoch
    url = scenario.endpoint["url"]
    name = url.rsplit("/", 1)[1].split("?")[0]
    postgres_server.copy_database(name, f"{name}_dump")
    scenario.write(60)
    scenario.write(60)
    scenario.run()
    postgres_server.drop_database(name)
    postgres_server.copy_database(f"{name}_dump", name)
    assert go_on(scenario)[0] == 1
    scenario.assert_exact(view())
    postgres_server.drop_database(f"{name}_dump")


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule: the endpoint was emptied
def test_a_database_is_lost_and_the_view_is_made_anew(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    run_epochs(scenario, 1)
    Path(scenario.endpoint["path"]).unlink()
    assert go_on(scenario)[0] == -scenario.last_epoch
    scenario.assert_exact(view())


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule
def test_the_checkpoint_of_another_materialization_in_the_endpoint(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    run_epochs(scenario, 1)
    before = sorted(view(), key=str)
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database, database:
        database.execute(
            "UPDATE headrace_checkpoints SET checkpoint = replace(checkpoint, '\"view\"', '\"stock\"')"
        )
    with pytest.raises(ConfigError, match="is that of materialization 'stock' and not of 'view': restore"):
        go_on(scenario)
    assert sorted(view(), key=str) == before


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule
def test_the_endpoint_of_another_lineage(make_scenario: MakeScenario) -> None:
    """Two deployments under one name: the second has run, and the first is pointed to its database."""
    scenario, _ = make_scenario("collection", "sqlite", 2)
    run_epochs(scenario, 1)
    mine = scenario.state.with_name("mine")
    shutil.move(scenario.state, mine)
    database = Path(scenario.endpoint["path"])
    shutil.move(database, database.with_name("mine.db"))
    shutil.rmtree(scenario.data / "state/dead-letters")
    scenario.run()
    shutil.rmtree(scenario.state)
    shutil.move(mine, scenario.state)
    with pytest.raises(ConfigError, match=r"is of lineage .*, and the recovery log is of .*: point `state`"):
        go_on(scenario)


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule
def test_the_checkpoint_folder_of_another_materialization(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    run_epochs(scenario, 1)
    metadata = scenario.state / "checkpoint/metadata"
    metadata.write_text('{"id":"11111111-1111-1111-1111-111111111111"}')
    (metadata.parent / ".metadata.crc").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="belongs to another materialization; move it away"):
        go_on(scenario)
    shutil.rmtree(metadata.parent)
    scenario.run()
    scenario.assert_exact(view())


def test_other_sources_under_the_same_name(
    make_scenario: MakeScenario, tmp_path: Path, spark: SparkSession
) -> None:
    scenario, view = make_scenario("collection", "sqlite", 1)
    run_epochs(scenario, 1)
    before: Documents = view()
    scenario.bootstrap, scenario.topic, scenario.rows_per_epoch = "127.0.0.1:1", "orders", 10
    with pytest.raises(
        ConfigError, match=r"stands in collection headrace\.orders to main\.orders and the file"
    ):
        scenario.run()
    assert view() == before


def test_a_task_of_one_who_was_replaced_wakes_up_while_the_epoch_is_run_otherwise(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver, on a host that knows nothing of how the first one planned the epoch, took over."""
    scenario, view = make_scenario("collection", "postgres", 2)
    late: list[ShardJob] = []

    def die(job: ShardJob, _: list[DataFrame]) -> list[ShardResult]:
        late.append(job)
        raise EndpointError("its driver is gone before any task has opened a shard")

    monkeypatch.setattr("headrace.pipeline.connector_sink.run_shards", die)
    scenario.write(30)
    with pytest.raises(EndpointError):
        scenario.run()
    shutil.rmtree(scenario.state / "checkpoint")
    scenario.write(30)

    def overtaken(job: ShardJob, combined: list[DataFrame]) -> list[ShardResult]:
        assert job.target["epoch"] == late[0].target["epoch"]
        assert job.target != late[0].target, "it is planned otherwise"
        with pytest.raises(CheckpointMoved):
            transact(late[0], 1, iter(()))
        return run_shards(job, combined)

    monkeypatch.setattr("headrace.pipeline.connector_sink.run_shards", overtaken)
    (epoch,) = scenario.run(limits=Limits()).epochs
    assert epoch.epoch == 0
    scenario.assert_exact(view())


def commit_in_one_shard_only(scenario: Scenario, **changes: Any) -> None:
    """Runs an epoch that the second shard cannot commit, as if it had been killed between the two."""
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database, database:
        database.execute(
            "CREATE TRIGGER stop BEFORE UPDATE OF checkpoint ON headrace_checkpoints WHEN NEW.key_begin > 0 "
            f"AND NEW.checkpoint LIKE '%\"epoch\":{scenario.last_epoch + 1},%' "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
        with pytest.raises(EndpointError, match="not this one"):
            scenario.run(**changes)
        database.execute("DROP TRIGGER stop")


def declared_types(scenario: Scenario) -> list[Any]:
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database:
        return database.execute("PRAGMA table_info(orders)").fetchall()


@pytest.mark.full  # tests/pipeline/test_resume.py has the rule
def test_an_epoch_that_one_shard_committed_is_finished_by_the_rules_that_it_began_by(
    make_scenario: MakeScenario,
) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(60)
    scenario.last_epoch = scenario.run().epochs[-1].epoch
    scenario.write(60)
    commit_in_one_shard_only(scenario)
    (binding,) = scenario.settings().materializations[0].bindings
    changed = {"bindings": (replace(binding, rules=(replace(binding.rules[0], minimum=50),)),)}
    with pytest.raises(ConfigError, match=r"have committed epoch 1 by other rules.*: put those back, let"):
        scenario.run(**changed)
    schema = {**COLLECTION.schema, "properties": {**COLLECTION.schema["properties"], "cents": NUMBER}}
    before = declared_types(scenario)
    with pytest.raises(ConfigError, match="have committed epoch 1 by other rules, another schema"):
        scenario.run(bindings=(replace(binding, collection=replace(COLLECTION, schema=schema)),))
    assert declared_types(scenario) == before  # or the rules that it began by could not be put back
    (epoch,) = scenario.run().epochs
    assert epoch.is_replayed
    scenario.assert_exact(view())
    scenario.last_epoch = epoch.epoch
    scenario.write(60)
    (epoch,) = scenario.run(**changed).epochs
    assert epoch.dead == sum(order["cents"] < 50 for order in scenario.written[-60:])


@pytest.mark.full
def test_an_epoch_that_one_shard_committed_is_counted_whole_when_it_is_finished(
    make_scenario: MakeScenario,
) -> None:
    """Also where there are no rules, by which its rows would be counted before."""
    scenario, view = make_scenario("collection", "sqlite", 2)
    (binding,) = scenario.settings().materializations[0].bindings
    unruled = {"bindings": (replace(binding, rules=()),)}
    scenario.write(30)
    scenario.last_epoch = scenario.run(**unruled).epochs[-1].epoch
    scenario.write(60)
    commit_in_one_shard_only(scenario, **unruled)
    (epoch,) = scenario.run(**unruled).epochs
    assert (epoch.is_replayed, epoch.read, epoch.good) == (True, 60, 60)
    assert combine(COLLECTION, view()) == combine(COLLECTION, scenario.written)
