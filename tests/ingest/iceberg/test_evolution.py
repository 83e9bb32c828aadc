"""Tables whose schema changes, or is not what we would have made."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from headrace.errors import SchemaError
from headrace.ingest.iceberg.tables import Tables
from tests.ingest.iceberg.scenario import ORDERS, Scenario
from tests.ingest.iceberg.test_commit import decisive, once

WIDER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.int32())),
    ]
)
NARROWER = pa.schema([pa.field("id", pa.int16(), nullable=False)])


def test_the_schema_widens_in_the_middle_of_the_log(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.write_segment(schema=WIDER)
    scenario.write_segment(schema=NARROWER)

    scenario.commit(scenario.job(schema=WIDER))

    scenario.assert_exactly_once()


def test_the_schema_widens_with_the_commit_that_needs_it(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment(schema=WIDER)
    seen: list[Any] = []

    scenario.commit(
        scenario.job(schema=WIDER), observe=once("committing", lambda: seen.append(scenario.table().schema()))
    )

    assert [field.name for field in seen[0].fields] == ["id", "name", "_lsn", "_row"]
    names = [field.name for field in scenario.table().schema().fields]
    assert names == ["id", "name", "_lsn", "_row", "note", "tags"]
    assert str(scenario.table().schema().find_type("id")) == "long"
    scenario.assert_exactly_once()
    # An old job still knows the narrow schema only.
    scenario.write_segment(schema=NARROWER)
    scenario.commit()
    scenario.assert_exactly_once()


@pytest.mark.parametrize("step", decisive(["evolved", "written", "committing"], "committing"))
def test_two_committers_widen_the_schema(scenario: Scenario, step: str) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment(schema=WIDER)
    job = scenario.job(schema=WIDER)

    scenario.commit(job, observe=once(step, lambda: scenario.commit(job)))

    scenario.assert_exactly_once()
    scenario.assert_no_litter()


@pytest.mark.parametrize("step", decisive(["evolved", "written", "committing"], "committing"))
def test_somebody_else_adds_a_column_at_the_same_time(scenario: Scenario, step: str) -> None:
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment(schema=WIDER)

    def add_column() -> None:
        with scenario.table().update_schema() as update:
            update.union_by_name(pa.schema([("theirs", pa.string())]))

    scenario.commit(scenario.job(schema=WIDER), observe=once(step, add_column))

    assert {"theirs", "note"} < set(scenario.table().schema().column_names)
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


def make(scenario: Scenario, schema: pa.Schema) -> Table:
    catalog = Tables(scenario.settings)._catalog
    catalog.create_namespace_if_not_exists("headrace")
    return catalog.create_table("headrace.orders", schema)


def test_a_table_that_cannot_hold_the_collection_is_refused(scenario: Scenario) -> None:
    make(scenario, pa.schema([("id", pa.string())]))
    scenario.write_segment()

    outcome = scenario.committer().commit(scenario.job())["orders"]

    assert isinstance(outcome, SchemaError)
    assert "column 'id' is string and the write has int32" in str(outcome)
    scenario.assert_no_litter()


def test_a_table_with_a_column_in_the_place_of_ours_is_refused(scenario: Scenario) -> None:
    make(scenario, pa.schema([("id", pa.int32()), ("_lsn", pa.string())]))
    scenario.write_segment()

    outcome = scenario.committer().commit(scenario.job())["orders"]

    assert isinstance(outcome, SchemaError)
    assert "'_lsn' is large_string and has to be int64" in str(outcome)


def test_a_table_that_was_there_is_taken(scenario: Scenario) -> None:
    theirs = make(scenario, pa.schema([("name", pa.string()), ("id", pa.int64()), ("more", pa.float64())]))
    theirs.append(pa.table({"name": ["theirs"], "id": [7], "more": [1.0]}))
    scenario.write_segment()

    scenario.commit()

    scenario.written[None, None, 7, "theirs"] += 1  # type: ignore[index]
    assert scenario.rows() == scenario.written


def test_a_table_may_be_partitioned(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    with scenario.table().update_spec() as update:
        update.add_field("name", IdentityTransform())
    scenario.write_segment()

    scenario.commit()

    scenario.assert_exactly_once()
    assert len(scenario.data_files()) == 1 + 6


def test_every_storable_type_arrives(scenario: Scenario) -> None:
    kinds = [
        *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(20, 0)),
        *(pa.string(), pa.binary(), pa.binary(4)),
        *(pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        pa.map_(pa.string(), pa.int64()),
    ]
    schema = pa.schema([*ORDERS, *(pa.field(f"c{number}", kind) for number, kind in enumerate(kinds))])
    scenario.write_segment(schema=schema)

    scenario.commit(scenario.job(schema=schema))

    scenario.assert_exactly_once()


@pytest.mark.parametrize("name", ["a b", "a/b", "a.b", "ü", "select", "1st", 'quo"te'])
def test_columns_may_have_any_name(scenario: Scenario, name: str) -> None:
    schema = pa.schema([*ORDERS, (name, pa.int32())])
    scenario.write_segment()
    scenario.commit()
    scenario.write_segment(schema=schema)

    scenario.commit(scenario.job(schema=schema))

    scenario.assert_exactly_once()
    assert name in scenario.table().scan().to_arrow().column_names
