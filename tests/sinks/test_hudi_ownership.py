"""Whose a Hudi table is: a note beside its timeline says it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, EndpointError, SchemaError
from headrace.model.ownership import Owner, Target
from headrace.sinks.hudi import HudiSink
from headrace.sinks.hudi_tables import HudiTable
from tests.sinks.conftest import an_epoch
from tests.sinks.hudi_world import World


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def owner_of(world: World, *keys: str, lineage: str = "a", **more: Any) -> Owner:
    return world.place(*keys, key=keys, **more).owner(lineage)


def claimed(world: World, *keys: str, lineage: str = "a", adopts: bool = False, **more: Any) -> HudiSink:
    """One that has started, and has said whose the table is."""
    sink = world.sink(*keys, key=keys, **more)
    sink.start(None, None, 1)
    sink.claim(owner_of(world, *keys, lineage=lineage, **more), adopts=adopts)
    return sink


def make(world: World) -> None:
    """The table, without rows."""
    HudiTable(world.spark, world.folder.as_uri(), ("id",), (), {}).make()


def paths(world: World) -> list[str]:
    return sorted(str(path) for path in world.folder.rglob("*"))


def marks(world: World) -> list[Path]:
    return list((world.folder / ".hoodie" / "headrace" / "owner").glob("*.json"))


def test_a_table_says_whose_it_is_once_it_is_made(world: World) -> None:
    assert world.sink("id").inspect() == Target(False)
    assert not world.folder.exists()
    sink = claimed(world, "id")
    assert not world.folder.exists()
    handle = sink.prepare(an_epoch(0), world.rows(k1=10))
    assert world.sink("id").inspect() == Target(True, False, owner_of(world, "id"))
    sink.commit(0, handle)
    before = paths(world)
    assert world.sink("id").inspect() == Target(True, True, owner_of(world, "id"))
    assert world.sink("id").committed() == {"offsets": 0}
    assert paths(world) == before  # neither a fence nor anything else
    claimed(world, "id", lineage="b")
    assert world.sink("id").inspect().owner == owner_of(world, "id", lineage="b")
    assert len(marks(world)) == 1
    assert world.state() == [(1, 10)]


def test_another_materialization_key_or_mode_is_refused(world: World) -> None:
    sink = claimed(world, "id")
    sink.commit(0, sink.prepare(an_epoch(0), world.rows(k1=10)))
    mine = owner_of(world, "id")
    with pytest.raises(EndpointError, match=r"table is written by materialization 'view': .* --adopt"):
        claimed(world, "id", writer="other")
    with pytest.raises(EndpointError, match=r"table has the key \(id\), and would get \(value\)"):
        claimed(world, "value")
    with pytest.raises(EndpointError, match="table is written as a view, and would be as appended rows"):
        claimed(world)
    before = paths(world)
    refused = "has rows by the key id, and the key is now value: choose another"
    with pytest.raises(SchemaError, match=refused):
        world.sink("value").refuse_start(mine, adopts=True)
    assert paths(world) == before
    with pytest.raises(SchemaError, match=refused):
        claimed(world, "value", adopts=True)
    assert world.sink("id").inspect().owner == mine
    claimed(world, "id", writer="other", adopts=True)
    assert world.sink("id").inspect().owner == replace(mine, materialization="other")
    with pytest.raises(EndpointError, match="table is written by materialization 'other'"):
        claimed(world, "id")


def test_who_claims_a_table_at_the_same_time_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(world)
    real = HudiTable.put_note

    def late(self: HudiTable, *note: str) -> None:
        monkeypatch.setattr(HudiTable, "put_note", real)
        claimed(world, "id")
        real(self, *note)

    monkeypatch.setattr(HudiTable, "put_note", late)
    with pytest.raises(EndpointError, match="table is written by materialization 'view'"):
        claimed(world, "id", writer="other")
    assert world.sink("id").inspect().owner == owner_of(world, "id")
    assert len(marks(world)) == 1


def test_a_table_of_the_version_before_gets_a_mark_and_one_made_anew_has_none(world: World) -> None:
    world.publish(0, k1=10)
    assert world.sink("id").inspect() == Target(True, True, None)
    with pytest.raises(SchemaError, match="has rows by the key id, and the key is now value"):
        claimed(world, "value")
    assert world.sink("id").inspect().owner is None
    claimed(world, "id")
    assert world.sink("id").inspect().owner == owner_of(world, "id")
    shutil.rmtree(world.folder)
    assert world.sink("id").inspect() == Target(False)
    make(world)
    assert world.sink("id").inspect() == Target(True, False, None)


def test_who_makes_a_table_that_another_has_made_meanwhile_is_refused(world: World) -> None:
    first, second = claimed(world, "id"), claimed(world, "id", writer="other")
    first.prepare(an_epoch(0), world.rows(k1=10))
    with pytest.raises(EndpointError, match="table is written by materialization 'view'"):
        second.prepare(an_epoch(0), world.rows(k1=11))


@pytest.mark.full
def test_a_table_from_which_all_was_taken_back_has_no_rows(world: World) -> None:
    world.append(0, k1=10)
    world.sink().rewind(-1)
    assert world.sink().inspect() == Target(True, False, None)


@pytest.mark.full
def test_a_table_whose_rows_carry_their_owner_is_nobodys(world: World) -> None:
    for writer in ("view", "other"):
        sink = claimed(world, writer=writer, owned="writer")
        rows = world.rows(0, k1=10).selectExpr("*", f"'{writer}' as writer")
        sink.commit(0, sink.prepare(an_epoch(0), rows))
        assert sink.inspect() == Target(True, True, None)
    assert marks(world) == []


def test_a_mark_that_cannot_be_read_is_named(world: World) -> None:
    make(world)
    claimed(world, "id")
    mark = marks(world)[0]
    mark.with_name(f".{mark.name}.crc").unlink(missing_ok=True)
    mark.write_text("nonsense")
    with pytest.raises(
        EndpointError,
        match=rf"headrace/owner/{mark.name} is 'nonsense', .* remove it once nobody else writes",
    ):
        world.sink("id").inspect()
    mark.write_text("")
    assert world.sink("id").inspect().owner is None


def test_a_rewind_takes_no_rows_of_the_owner_before(world: World) -> None:
    """A person has adopted them; rows tell their epoch, and not who has written them."""
    for number, writer in enumerate(("on/e", "two")):
        sink = claimed(world, writer=writer, adopts=True)
        sink.commit(0, sink.prepare(an_epoch(0), world.rows(0, **{f"k{number}": number})))
    for go_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(ConfigError, match="since it has later epochs of on/e from before it was taken"):
            go_back(-1)
    assert world.state() == [(0, 0), (1, 1)]
