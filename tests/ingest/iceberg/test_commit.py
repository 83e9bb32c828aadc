"""Commits: exactly once, whoever else commits, and however a commit ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from headrace.errors import ConfigError
from headrace.ingest.iceberg import CommitConflict
from headrace.ingest.iceberg.collection_commit import MOST_TRIES
from headrace.ingest.iceberg.errors import TableMoved
from headrace.ingest.iceberg.tables import Tables
from headrace.wal.position import LogPosition, SegmentMark
from headrace.wal.records import SegmentHeader
from headrace.wal.state import CollectionState, Committed
from tests.ingest.iceberg.scenario import ORDERS, Scenario

STEPS = ["read", "created", "evolved", "written", "committing", "committed"]
LATER_STEPS = [step for step in STEPS if step != "created"]


def decisive(steps: list[str], *chosen: str) -> list[Any]:
    """Returns the steps as parameters and leaves those that are not chosen to the full tier."""
    return [step if step in chosen else pytest.param(step, marks=pytest.mark.full) for step in steps]


def once(step: str, action: Callable[[], Any]) -> Callable[[str], None]:
    """An observer that does something at the first occurrence of a step."""
    left = [action]

    def observe(happened: str) -> None:
        if happened == step and left:
            left.pop()()

    return observe


def test_rows_arrive_with_their_writes(scenario: Scenario) -> None:
    last = scenario.write_segment()

    committed = scenario.commit()

    table = scenario.table()
    assert committed == Committed(last, table.metadata.current_snapshot_id)
    scenario.assert_exactly_once()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["headrace.first-lsn"] == "1"
    assert snapshot.summary["headrace.last-lsn"] == str(last)
    assert snapshot.summary["headrace.committed-lsn"] == str(last)
    assert table.properties["headrace.key"] == '["/id"]'
    assert [(field.name, field.required) for field in table.schema().columns] == [
        ("id", True),
        ("name", False),
        ("_lsn", True),
        ("_row", True),
    ]


def test_a_job_can_be_repeated(scenario: Scenario) -> None:
    scenario.write_segment()
    first = scenario.commit()

    assert scenario.commit() == first

    scenario.assert_exactly_once()
    assert len(scenario.table().snapshots()) == 1


def test_jobs_may_overlap_and_end_within_a_segment(scenario: Scenario) -> None:
    for _ in range(3):
        scenario.write_segment()

    for through in (2, 5, 4, 9, scenario.last_lsn):
        scenario.commit(scenario.job(through))
        scenario.assert_exactly_once(max(through, 5) if through == 4 else through)


def test_a_collection_without_new_rows_is_as_far_without_a_commit(scenario: Scenario) -> None:
    last = scenario.write_to("others", pa.record_batch([[1]], names=["x"]))

    assert scenario.commit() == Committed(last)
    assert scenario.committer().watermarks(["orders"]) == {"orders": Committed(0)}


@pytest.mark.parametrize("step", decisive(STEPS, "created", "committing", "committed"))
def test_another_committer_is_faster_with_the_same_rows(scenario: Scenario, step: str) -> None:
    scenario.write_segment()

    scenario.commit(observe=once(step, scenario.commit))

    scenario.assert_exactly_once()
    scenario.assert_no_litter()


@pytest.mark.parametrize("step", decisive(LATER_STEPS, "written", "committing"))
def test_another_committer_is_faster_with_some_of_the_rows(scenario: Scenario, step: str) -> None:
    first = scenario.write_segment()
    scenario.commit()
    some = scenario.write_segment() - 1
    assert some > first
    scenario.write_segment()

    scenario.commit(observe=once(step, lambda: scenario.commit(scenario.job(some))))

    scenario.assert_exactly_once()
    scenario.assert_no_litter()


@pytest.mark.parametrize("step", decisive(STEPS, "read", "committing", "committed"))
def test_a_late_committer_changes_nothing(scenario: Scenario, step: str) -> None:
    late = scenario.write_segment()
    old_job = scenario.job()
    scenario.write_segment()

    scenario.commit(old_job, observe=once(step, scenario.commit))

    assert scenario.last_lsn > late
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


def test_committers_race(scenario: Scenario) -> None:
    for _ in range(4):
        scenario.write_segment()
    start = threading.Barrier(3)
    outcomes: list[Any] = []

    def run() -> None:
        start.wait()
        for through in (*range(1, scenario.last_lsn, 2), scenario.last_lsn):
            outcomes.extend(scenario.committer().commit(scenario.job(through)).values())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # Where a catalog was locked or the tries were used up a committer has failed, and done no harm.
    assert any(outcome == scenario.commit() for outcome in outcomes)
    scenario.assert_exactly_once()


def others_row(lsn: int) -> pa.Table:
    schema = pa.schema([*ORDERS, pa.field("_lsn", pa.int64(), False), pa.field("_row", pa.int32(), False)])
    return pa.table({"id": [7], "name": ["theirs"], "_lsn": [lsn], "_row": [0]}, schema=schema)


@pytest.mark.parametrize("step", decisive(LATER_STEPS, "written", "committing"))
def test_somebody_else_appends(scenario: Scenario, step: str) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment()

    scenario.commit(observe=once(step, lambda: scenario.table().append(others_row(0))))

    scenario.written[0, 0, 7, "theirs"] += 1
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


def test_somebody_else_rewrites_and_deletes(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment()

    def rewrite() -> None:
        table = scenario.table()
        table.overwrite(table.scan().to_arrow())
        table.delete("id = 10")

    scenario.commit(observe=once("committing", rewrite))

    del scenario.written[1, 0, 10, "name 10"]
    scenario.assert_exactly_once()


def test_files_are_not_written_again_for_somebody_elses_commit(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment()
    before: list[set[str]] = []

    def look() -> None:
        before.append(scenario.data_files())
        scenario.table().append(others_row(0))

    scenario.commit(observe=once("committing", look))

    assert before[0] < set(scenario.table().inspect.files()["file_path"].to_pylist())


def test_the_tries_are_bounded(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    last = scenario.last_lsn
    scenario.write_segment()
    tries: list[int] = []

    def append_always(step: str) -> None:
        if step == "committing":
            tries.append(1)
            scenario.table().append(others_row(0))

    outcome = scenario.committer(append_always).commit(scenario.job())["orders"]

    assert isinstance(outcome, CommitConflict)
    assert len(tries) == MOST_TRIES
    scenario.written[0, 0, 7, "theirs"] += MOST_TRIES
    scenario.assert_exactly_once(last)
    scenario.assert_no_litter()


class Unclear(Exception):
    """A time-out, say."""


@pytest.mark.parametrize(
    "error", [Unclear("timed out"), CommitFailedException("answer to a repeated request")]
)
def test_a_commit_that_landed_is_not_repeated(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scenario.write_segment()
    do_commit = Table._do_commit

    def commit_and_fail(self: Table, *args: Any) -> None:
        do_commit(self, *args)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", commit_and_fail)
        committed = scenario.commit()

    assert committed == Committed(scenario.last_lsn, scenario.table().metadata.current_snapshot_id)
    assert len(scenario.table().snapshots()) == 1
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


@pytest.mark.parametrize(
    "error", [Unclear("timed out"), CommitFailedException("answer to a repeated request")]
)
def test_a_commit_that_landed_is_recognised_without_its_snapshot(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scenario.write_segment()
    do_commit = Table._do_commit

    def commit_and_fail(self: Table, *args: Any) -> None:
        monkeypatch.setattr(Table, "_do_commit", do_commit)
        do_commit(self, *args)
        ours = self.metadata.current_snapshot_id
        assert ours is not None
        scenario.table().append(others_row(0))
        scenario.table().maintenance.expire_snapshots().by_id(ours).commit()
        raise error

    monkeypatch.setattr(Table, "_do_commit", commit_and_fail)
    scenario.commit()

    scenario.written[0, 0, 7, "theirs"] += 1
    scenario.assert_exactly_once()


def test_a_commit_that_did_not_land_is_repeated(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario.write_segment()
    do_commit = Table._do_commit
    failures = [Unclear("timed out"), Unclear("timed out")]

    def fail_first(self: Table, *args: Any) -> None:
        if failures:
            raise failures.pop()
        do_commit(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", fail_first)
        scenario.commit()

    scenario.assert_exactly_once()


def test_a_request_that_was_stuck_cannot_land_as_well(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.write_segment()
    do_commit = Table._do_commit
    stuck: list[tuple[Any, ...]] = []

    def get_stuck(self: Table, *args: Any) -> None:
        if stuck:
            do_commit(self, *args)
        else:
            stuck.append((self, *args))
            raise Unclear("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", get_stuck)
        scenario.commit()

    with pytest.raises(CommitFailedException):
        do_commit(*stuck[0])
    scenario.assert_exactly_once()


def test_a_request_that_is_stuck_may_land_after_we_gave_up(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.write_segment()
    do_commit = Table._do_commit
    stuck: list[tuple[Any, ...]] = []

    def get_stuck(self: Table, *args: Any) -> None:
        stuck.append((self, *args))
        raise Unclear("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", get_stuck)
        outcome = scenario.committer().commit(scenario.job())["orders"]
    assert isinstance(outcome, CommitConflict)
    assert "Unclear: timed out" in str(outcome)

    do_commit(*stuck[0])

    scenario.assert_exactly_once()
    for other in stuck[1:]:
        with pytest.raises(CommitFailedException):
            do_commit(*other)
    scenario.commit()
    scenario.assert_exactly_once()


def test_another_committer_makes_and_fills_the_table_first(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario.write_segment()
    create = Tables.create

    def be_late(self: Tables, *args: Any) -> Table:
        monkeypatch.setattr(Tables, "create", create)
        scenario.commit()
        return create(self, *args)

    monkeypatch.setattr(Tables, "create", be_late)
    scenario.commit()

    scenario.assert_exactly_once()
    assert len(scenario.table().snapshots()) == 1


def test_the_watermark_never_falls(scenario: Scenario) -> None:
    last = scenario.write_record(writes=9)
    scenario.commit(scenario.job(6))
    for through in (3, 6):
        assert scenario.commit(scenario.job(through)).lsn == 6
        scenario.assert_exactly_once(6)
    scenario.commit()
    scenario.assert_exactly_once(last)


def test_writes_without_rows_need_no_commit(scenario: Scenario) -> None:
    scenario.write_segment()
    before = scenario.commit()
    scenario.write_segment(rows=0)

    assert scenario.commit() == Committed(scenario.last_lsn, before.snapshot_id)
    scenario.assert_exactly_once(before.lsn)
    scenario.assert_no_litter()


def test_each_collection_is_for_itself(scenario: Scenario) -> None:
    scenario.write_segment()
    good = scenario.job()
    bad = CollectionState("../etc", ORDERS.serialize().to_pybytes())
    job = type(good)(good.segments, good.through, (bad, *good.collections))

    outcomes = scenario.committer().commit(job)

    assert "cannot be a table" in str(outcomes["../etc"])
    assert isinstance(outcomes["orders"], Committed)
    scenario.assert_exactly_once()


def test_a_table_of_another_log_is_refused(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit(scenario.job(log_id="one"))
    scenario.commit(scenario.job(log_id="one"))

    outcome = scenario.committer().commit(scenario.job(log_id="two"))["orders"]

    assert "written from another log (one; this one is two)" in str(outcome)
    assert "another log" in str(scenario.committer().watermarks(["orders"], "two")["orders"])


def test_a_table_records_where_in_the_log_its_last_commit_ended(scenario: Scenario) -> None:
    last = scenario.write_segment()
    committed = scenario.commit(replace(scenario.job(), term=3, boot="b0b0"))

    position = committed.position
    assert (position.lsn, position.term, position.boot) == (last, 3, "b0b0")
    header = SegmentHeader.decode(scenario.segments[-1].path.read_bytes())
    assert position.segment == SegmentMark(header.number, header.nonce, scenario.segments[-1].length)
    found = scenario.committer().watermarks(["orders"])["orders"]
    assert isinstance(found, Committed)
    assert found.position == position
    assert scenario.commit().position == position  # nothing new: it stays


def test_a_commit_goes_on_from_where_the_server_saw_the_table_and_from_nowhere_else(
    scenario: Scenario,
) -> None:
    scenario.write_segment()
    job = replace(scenario.job(), after={"orders": LogPosition()})
    first = scenario.commit(job)
    assert scenario.commit(job) == first  # it is done
    scenario.write_segment()

    outcome = scenario.committer().commit(replace(scenario.job(), after=job.after))["orders"]

    assert isinstance(outcome, TableMoved)
    scenario.assert_exactly_once(first.lsn)
    scenario.commit(replace(scenario.job(), after={"orders": first.position}))
    scenario.assert_exactly_once()


def test_a_table_that_was_dropped_under_way_is_not_made_anew(scenario: Scenario) -> None:
    scenario.write_segment()
    first = scenario.commit()
    scenario.write_segment()
    table = scenario.table()
    table.catalog.drop_table(table.name())

    job = replace(scenario.job(first=1), after={"orders": first.position})
    assert isinstance(scenario.committer().commit(job)["orders"], TableMoved)
    assert Tables(scenario.settings).load("orders") is None


@pytest.mark.parametrize(
    ("name", "value"), [("headrace.committed-lsn", "x"), ("headrace.segment", "1/2"), ("headrace.term", "y")]
)
def test_properties_that_say_nothing_are_refused(scenario: Scenario, name: str, value: str) -> None:
    scenario.write_segment()
    scenario.commit()
    with scenario.table().transaction() as change:
        change.set_properties({name: value})
    scenario.write_segment()

    outcome = scenario.committer().commit(scenario.job())["orders"]

    assert isinstance(outcome, ConfigError)
    assert "do not say how far it is" in outcome.message


def test_properties_of_the_user_stay(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    theirs = {"commit.retry.num-retries": "7", "write.target-file-size-bytes": "1000", "owner": "ann"}
    with scenario.table().transaction() as change:
        change.set_properties(theirs)
    scenario.write_segment()

    scenario.commit(observe=once("committing", lambda: scenario.table().append(others_row(0))))

    assert theirs.items() <= scenario.table().properties.items()


def test_old_metadata_and_manifests_do_not_pile_up(scenario: Scenario) -> None:
    scenario.settings = scenario.settings.model_copy(
        update={
            "table_properties": {
                "write.metadata.previous-versions-max": "3",
                "commit.manifest.min-count-to-merge": "4",
            }
        }
    )
    for _ in range(9):
        scenario.write_segment(writes=1)
        scenario.commit(scenario.job(first=len(scenario.segments) - 1))

    assert len([name for name in scenario.files() if name.endswith(".metadata.json")]) == 4
    table = scenario.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) <= 4
    scenario.assert_exactly_once()


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_interleaving_of_jobs(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Committers with any jobs, each started at any step of another one."""
    from headrace.ingest.iceberg import embedded_catalog

    folder = tmp_path_factory.mktemp("interleaved")
    scenario = Scenario(embedded_catalog(folder), folder)
    for _ in range(3):
        scenario.write_segment(writes=2, rows=1)
    furthest = [0]

    def run(depth: int) -> None:
        through = data.draw(st.integers(1, scenario.last_lsn))

        def observe(step: str) -> None:
            if depth < 3 and data.draw(st.integers(0, 5)) == 0:
                run(depth + 1)

        assert scenario.commit(scenario.job(through), observe).lsn >= through
        furthest[0] = max(furthest[0], through)

    for _ in range(data.draw(st.integers(1, 3))):
        run(0)

    expected = scenario.expected(furthest[0])
    if expected:
        assert scenario.rows() == expected
