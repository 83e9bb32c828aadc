"""Whose a Delta table is: it says so itself, and lets nobody else write."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.errors import EndpointError, Fenced
from headrace.model.ownership import Mode, Owner, Target
from headrace.sinks.delta import DeltaSink
from headrace.sinks.delta_table import Table
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.delta.conftest import Pairs, World

MARK = "headrace.owner"
APPENDS = Owner("wächter's", "lineage-1", ("key",), Mode.APPEND)
VIEW = replace(APPENDS, mode=Mode.VIEW)


def started(world: World, owner: Owner, fence: int = 1) -> DeltaSink:
    keys = owner.key if owner.mode is Mode.VIEW else ()
    sink = world.sink(writer=owner.materialization, keys=keys, key=owner.key)
    sink.start(None, None, fence)
    return sink


def claimed(world: World, owner: Owner, *, adopts: bool = False, fence: int = 1) -> DeltaSink:
    sink = started(world, owner, fence)
    sink.claim(owner, adopts=adopts)
    return sink


def mark(world: World) -> str | None:
    return world.table.metadata().configuration.get(MARK)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_table_says_whose_it_is_before_it_has_rows(world: World, pairs: Pairs) -> None:
    sink = claimed(world, VIEW)
    assert world.sink().inspect() == Target(exists=False)
    handle = sink.prepare(an_epoch(0), pairs({1: 10}))
    assert mark(world) == VIEW.encode()
    assert world.sink().inspect() == Target(True, has_rows=False, owner=VIEW)
    sink.commit(0, handle)
    sink.commit(1, sink.prepare(an_epoch(1), pairs({1: 11}, "'new' as more")))
    assert world.sink().inspect() == Target(True, has_rows=True, owner=VIEW)
    sink.rewind(0)
    assert (world.view(), mark(world)) == ({1: 10}, VIEW.encode())
    sink.rewind(-1)
    assert world.sink().inspect() == Target(True, has_rows=False, owner=VIEW)


def test_a_look_before_the_start_changes_nothing(folder_world: World, rows: Rows) -> None:
    sink = folder_world.sink()
    assert (sink.inspect(), sink.committed()) == (Target(exists=False), None)
    assert not folder_world.folder.exists()
    folder_world.folder.mkdir()
    assert (sink.inspect(), sink.committed(), files(folder_world.folder)) == (Target(exists=False), None, [])
    folder_world.run(0, rows(0))
    before = files(folder_world.folder)
    for look in (sink, folder_world.sink(writer="other"), folder_world.sink(keys=("value",))):
        assert look.inspect() == Target(True, has_rows=True)
        look.committed()
    assert files(folder_world.folder) == before


def test_a_second_materialization_is_refused_and_nothing_of_the_first_is_lost(
    folder_world: World, rows: Rows
) -> None:
    world, theirs = folder_world, replace(APPENDS, materialization="other")
    first, second = claimed(world, APPENDS), claimed(world, theirs)  # neither has found a table
    for epoch in range(2):
        first.commit(epoch, first.prepare(an_epoch(epoch), rows(epoch, 1)))
    refused = r"written by materialization \"wächter's\": write to another table, or take .* with --adopt"
    with pytest.raises(EndpointError, match=refused):
        second.prepare(an_epoch(2), rows(2))
    assert [path for path in world.staged() if "other" in path] == []
    with pytest.raises(EndpointError, match=refused):
        claimed(world, theirs)
    for going_back in (second.refuse_rewind, second.rewind):
        with pytest.raises(EndpointError, match=refused):
            going_back(-1)
    assert (world.values(), mark(world)) == ([0, 10], APPENDS.encode())


def test_another_key_or_mode_is_refused_and_a_person_may_adopt_it(folder_world: World, pairs: Pairs) -> None:
    world = folder_world
    first = claimed(world, VIEW)
    first.commit(0, first.prepare(an_epoch(0), pairs({1: 10})))
    with pytest.raises(EndpointError, match=r"has the key \(key\), and would get \(value\)"):
        claimed(world, replace(VIEW, key=("value",)))
    with pytest.raises(EndpointError, match="is written as a view, and would be as appended rows"):
        claimed(world, APPENDS)
    other = replace(APPENDS, materialization="other", lineage="lineage-2")
    second = claimed(world, other, adopts=True)
    second.commit(0, second.prepare(an_epoch(0), pairs({2: 20})))
    assert world.sink().inspect() == Target(True, has_rows=True, owner=other)
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        first.prepare(an_epoch(1), pairs({1: 11}))
    with pytest.raises(EndpointError, match="is written as appended rows, and would be as a view"):
        claimed(world, replace(other, mode=Mode.VIEW))
    assert world.view() == {1: 10, 2: 20}


def test_a_table_of_the_version_before_gets_a_mark_and_keeps_it(folder_world: World, pairs: Pairs) -> None:
    world, ours = folder_world, replace(VIEW, materialization="view")
    for epoch in range(2):
        world.run(epoch, pairs({1: epoch}), keys=("key",))
    assert world.sink().inspect() == Target(True, has_rows=True)
    for lineage in ("lineage-1", "lineage-2"):
        sink = claimed(world, replace(ours, lineage=lineage))
        assert world.sink().inspect().owner == replace(ours, lineage=lineage)
    before = world.table.version()
    sink.claim(replace(ours, lineage="lineage-2"))
    assert world.table.version() == before  # it says so already
    sink.rewind(0)  # to a version that had no mark
    assert (world.view(), mark(world)) == ({1: 0}, replace(ours, lineage="lineage-2").encode())


def test_a_table_that_was_removed_and_made_again_says_nothing(folder_world: World, rows: Rows) -> None:
    world = folder_world
    sink = claimed(world, APPENDS)
    sink.commit(0, sink.prepare(an_epoch(0), rows(0)))
    shutil.rmtree(world.folder)
    assert (world.sink().inspect(), world.sink().committed()) == (Target(exists=False), None)
    write_deltalake(str(world.folder), pa.table({"value": [1]}))
    assert world.sink().inspect() == Target(True, has_rows=True)
    sink.prepare(an_epoch(1), rows(1))
    assert mark(world) == APPENDS.encode()


def test_rows_that_carry_their_owner_share_a_table(folder_world: World, rows: Rows) -> None:
    for writer in ("one", "two"):
        sink = folder_world.sink(writer=writer, owned="who")
        sink.start(None, None, 1)
        sink.claim(replace(APPENDS, materialization=writer))
        sink.commit(0, sink.prepare(an_epoch(0), rows(0).selectExpr("*", f"'{writer}' as who")))
        assert sink.inspect() == Target(True, has_rows=True)
    assert mark(folder_world) is None


def test_of_two_who_claim_at_once_the_second_finds_it_done(
    folder_world: World, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_world.run(0, rows(0))
    second = started(folder_world, replace(APPENDS, materialization="other"))
    set_mark = Table.set_mark

    def overtaken(*how: object) -> None:
        monkeypatch.setattr(Table, "set_mark", set_mark)
        claimed(folder_world, APPENDS)
        set_mark(*how)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "set_mark", overtaken)
    with pytest.raises(EndpointError, match='is written by materialization "wächter\'s"'):
        second.claim(replace(APPENDS, materialization="other"))
    assert mark(folder_world) == APPENDS.encode()


def test_who_was_replaced_claims_nothing(folder_world: World, rows: Rows) -> None:
    sink = claimed(folder_world, APPENDS)
    sink.commit(0, sink.prepare(an_epoch(0), rows(0)))
    late = started(folder_world, APPENDS)
    claimed(folder_world, APPENDS, fence=2)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        late.claim(replace(APPENDS, lineage="lineage-0"))
    assert mark(folder_world) == APPENDS.encode()


@pytest.mark.parametrize("owner", [APPENDS, VIEW])
def test_a_rewind_takes_no_rows_of_the_owner_before(
    folder_world: World, rows: Rows, pairs: Pairs, owner: Owner
) -> None:
    """A person has adopted them; rows tell their epoch, and not who has written them."""
    world, is_view = folder_world, owner.mode is Mode.VIEW
    for writer, key in (("one", 1), ("two", 2)):
        sink = claimed(world, replace(owner, materialization=writer), adopts=True)
        sink.commit(0, sink.prepare(an_epoch(0), pairs({key: key}) if is_view else rows(key, 1)))
    before = world.view() if is_view else world.values()
    for going_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(EndpointError, match="since it has later epochs of one from before it was taken"):
            going_back(-1)
    assert (world.view() if is_view else world.values()) == before
