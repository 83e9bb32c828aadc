"""Whose an Iceberg table is: it says so itself, and lets nobody else write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.exceptions import NoSuchTableError

from headrace.errors import EndpointError, Fenced, SchemaError
from headrace.model.ownership import Mode, Owner, Target
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_tables import JavaTable
from tests.sinks.conftest import an_epoch
from tests.sinks.iceberg_world import World, catalog, settings, world

__all__ = ["catalog", "settings", "world"]

MARK = "headrace.owner"
APPENDS = Owner("wächter's", "lineage-1", ("id",), Mode.APPEND)
VIEW = replace(APPENDS, mode=Mode.VIEW)


def claimed(world: World, owner: Owner, *, adopts: bool = False, fence: int = 1) -> IcebergSink:
    """A sink of a materialization that has started."""
    writer = owner.materialization
    is_view = owner.mode is Mode.VIEW
    sink = world.view(*owner.key, writer=writer, name="dead") if is_view else world.sink(writer)
    sink.start(None, None, fence)
    sink.claim(owner, adopts=adopts)
    return sink


def write(world: World, sink: IcebergSink, epoch: int, **values: int) -> None:
    sink.commit(epoch, sink.prepare(an_epoch(epoch), world.rows(**values)))


def test_a_table_says_whose_it_is_from_its_first_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = claimed(world, APPENDS)
    monkeypatch.delattr(IcebergSink, "_mark")  # for tables that are there already
    assert world.sink().inspect() == Target(exists=False)
    handle = sink.prepare(an_epoch(0), world.rows(k1=10))
    assert world.table.properties[MARK] == APPENDS.encode()
    assert world.sink().inspect() == Target(True, has_rows=False, owner=APPENDS)
    sink.commit(0, handle)
    assert world.sink().inspect() == Target(True, has_rows=True, owner=APPENDS)


def test_a_look_before_the_start_changes_nothing(world: World) -> None:
    sink = world.sink()
    assert (sink.inspect(), sink.committed()) == (Target(exists=False), None)
    with pytest.raises(NoSuchTableError):
        _ = world.table
    write(world, world.sink(), 0, k1=10)
    before = world.table.metadata_location
    for look in (world.sink(), world.view(), world.sink(owned="value")):  # views need other properties
        assert look.inspect() == Target(True, has_rows=True)
        look.committed()
    assert world.table.metadata_location == before
    assert not any(name.startswith("headrace.fence") for name in world.table.properties)


def test_a_second_materialization_is_refused_and_nothing_of_the_first_is_lost(world: World) -> None:
    first, theirs = claimed(world, APPENDS), replace(APPENDS, materialization="other")
    second = claimed(world, theirs)  # neither has found a table
    for epoch in range(2):
        write(world, first, epoch, k1=10 + epoch)
    refused = r"written by materialization \"wächter's\": write to another table, or take .* with --adopt"
    with pytest.raises(EndpointError, match=refused):
        second.prepare(an_epoch(2), world.rows(k2=20))
    with pytest.raises(EndpointError, match=refused):
        claimed(world, theirs)
    for going_back in (second.refuse_rewind, second.rewind):
        with pytest.raises(EndpointError, match=refused):
            going_back(-1)
    assert (world.values(), world.view().inspect().owner) == ([10, 11], APPENDS)


def test_another_key_or_mode_is_refused_and_a_person_may_adopt_it(world: World) -> None:
    first = claimed(world, APPENDS)
    write(world, first, 0, k1=10)
    with pytest.raises(EndpointError, match=r"has the key \(id\), and would get \(value\)"):
        claimed(world, replace(APPENDS, key=("value",)))
    with pytest.raises(EndpointError, match="is written as appended rows, and would be as a view"):
        claimed(world, VIEW)
    other = replace(APPENDS, materialization="other", lineage="lineage-2")
    claimed(world, other, adopts=True)
    assert world.sink().inspect() == Target(True, has_rows=True, owner=other)
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        first.prepare(an_epoch(1), world.rows(k1=11))
    write(world, claimed(world, VIEW, adopts=True), 1, k1=11)
    with pytest.raises(EndpointError, match="is written as a view, and would be as appended rows"):
        claimed(world, APPENDS)
    assert world.state() == [(1, 11)]


def test_a_table_of_the_version_before_gets_a_mark(world: World) -> None:
    write(world, world.sink(), 0, k1=10)
    assert world.sink().inspect() == Target(True, has_rows=True)
    same_name, before = world.view(name="dead"), world.table.metadata_location
    for refuse in (same_name.refuse_start, same_name.claim):
        with pytest.raises(SchemaError, match=r'by the key \[\], and the key is now \["id"\]'):
            refuse(replace(VIEW, materialization="view"))
    assert world.table.metadata_location == before
    same_name.refuse_start(replace(VIEW, materialization="view"), adopts=True)
    assert world.sink().inspect().owner is None
    for lineage in ("lineage-1", "lineage-2"):
        ours = replace(APPENDS, materialization="view", lineage=lineage)
        sink = claimed(world, ours)
        assert world.sink().inspect().owner == ours
    before = world.table.metadata_location
    sink.claim(ours)
    assert world.table.metadata_location == before  # it says so already


def test_a_table_that_was_dropped_and_made_again_says_nothing(world: World) -> None:
    sink = claimed(world, APPENDS)
    write(world, sink, 0, k1=10)
    schema = world.table.schema()
    world.catalog.drop_table(world.identifier)  # the session has not done it, and may remember the table
    assert world.sink().inspect() == Target(exists=False)
    assert world.sink().committed() is None
    world.catalog.create_table(world.identifier, schema)
    assert world.sink().inspect() == Target(True)
    write(world, sink, 1, k1=11)
    assert world.sink().inspect() == Target(True, has_rows=True, owner=APPENDS)


def test_rows_that_carry_their_owner_share_a_table(world: World) -> None:
    for writer in ("one", "two"):
        sink = world.sink(writer, owned="value")
        sink.start(None, None, 1)
        sink.claim(replace(APPENDS, materialization=writer))
        write(world, sink, 0, k1=10)
        assert sink.inspect() == Target(True, has_rows=True)
    assert MARK not in world.table.properties


def test_of_two_who_claim_at_once_the_second_finds_it_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(world, world.sink(), 0, k1=10)
    swap = JavaTable.swap

    def overtaken(table: JavaTable, state: object, *how: object, **more: object) -> bool:
        monkeypatch.setattr(JavaTable, "swap", swap)
        claimed(world, replace(APPENDS, materialization="view"), fence=0)
        return swap(table, state, *how, **more)  # type: ignore[arg-type]

    second = world.sink("other")
    second.start(None, None, 1)
    monkeypatch.setattr(JavaTable, "swap", overtaken)
    with pytest.raises(EndpointError, match="is written by materialization 'view'"):
        second.claim(replace(APPENDS, materialization="other"))


def test_who_was_replaced_claims_nothing(world: World) -> None:
    write(world, claimed(world, APPENDS), 0, k1=10)
    late = world.sink(APPENDS.materialization)
    late.start(None, None, 1)
    claimed(world, APPENDS, fence=2)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        late.claim(replace(APPENDS, lineage="lineage-0"))
    assert world.sink().inspect().owner == APPENDS


def test_a_mark_that_cannot_be_read_is_refused(world: World) -> None:
    write(world, world.sink(), 0, k1=10)
    world.sink()._load().set_properties({MARK: "nobody"})
    with pytest.raises(EndpointError, match=r"does not say whose it is: its headrace\.owner is 'nobody'"):
        world.sink().inspect()
