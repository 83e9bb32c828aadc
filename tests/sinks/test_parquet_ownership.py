"""Whose a place of Parquet files is: its last record says it, in a folder as in a bucket."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from devtools.s3_server import S3Server
from headrace.errors import EndpointError
from headrace.model.ownership import Owner, Target
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.roots import root_of
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.s3_place import s3_options


class World:
    """One place, and new sinks for it, as in new processes."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.place = Place(location, "mine", key=("k",), options=options)

    def sink(self, place: Place | None = None, fence: int = 1) -> ParquetSink:
        sink = ParquetSink("orders", place or self.place)
        sink.start(None, None, fence)
        return sink

    def claim(self, place: Place | None = None, lineage: str = "a", *, adopts: bool = False) -> ParquetSink:
        sink = self.sink(place)
        sink.claim((place or self.place).owner(lineage), adopts=adopts)
        return sink

    def run(self, sink: ParquetSink, rows: DataFrame) -> None:
        sink.commit(0, sink.prepare(an_epoch(0), rows))

    def inspect(self, place: Place | None = None) -> Target:
        return ParquetSink("orders", place or self.place).inspect()

    def owner(self) -> Owner | None:
        return self.inspect().owner

    def store(self) -> ObjectStore:
        return root_of(self.place).objects(writes=False)

    def paths(self) -> list[str]:
        return self.store().list("", "look")

    def make(self) -> None:
        """An empty folder, if it is one; otherwise it is there with its first rows."""
        root_of(self.place).objects()

    def remove(self) -> None:
        for path in self.paths():
            self.store().remove(path, "remove all")
        if folder := root_of(self.place).folder:
            shutil.rmtree(folder)


EITHER = pytest.mark.parametrize(
    "world", ["folder", pytest.param("bucket", marks=pytest.mark.full)], indirect=True
)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.processes)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "folder":
        return World((tmp_path / "orders").as_uri(), {})
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("s3_bucket")
    return World(f"s3://{bucket}/orders", s3_options(server))


def test_a_place_says_whose_it_is_once_it_is_there(world: World, rows: Rows, tmp_path: Path) -> None:
    assert world.inspect() == Target(False)
    assert list(tmp_path.iterdir()) == []
    sink = world.claim()
    world.run(sink, rows(0))
    assert world.inspect() == Target(True, True, world.place.owner("a"))
    before = world.paths()
    assert (world.inspect().has_rows, ParquetSink("orders", world.place).committed()) == (
        True,
        {"offsets": 0},
    )
    assert world.paths() == before  # neither a fence nor anything else
    world.claim(lineage="b")
    assert world.owner() == world.place.owner("b")


def test_another_materialization_or_key_is_refused_unless_a_person_adopts_it(world: World) -> None:
    world.make()
    world.claim()
    other_key = replace(world.place, key=("k", "r"))
    with pytest.raises(EndpointError, match=r"orders has the key \(k\), and would get \(k, r\): .* --adopt"):
        world.claim(other_key)
    world.claim(other_key, adopts=True)
    assert world.owner() == other_key.owner("a")
    other = replace(world.place, writer="other")
    with pytest.raises(EndpointError, match=r"orders is written by materialization 'mine': .* --adopt"):
        world.claim(other)
    assert world.owner() == other_key.owner("a")
    world.claim(other, adopts=True)
    assert world.owner() == other.owner("a")
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        world.claim()


@EITHER
def test_a_place_is_not_taken_over_with_the_epochs_of_another(world: World, rows: Rows) -> None:
    """Those of the new owner would have the same numbers."""
    world.run(world.claim(), rows(0))
    other, before = replace(world.place, writer="other"), world.paths()
    refused = r"has epochs of materialization 'mine'.*move them away"
    with pytest.raises(EndpointError, match=refused):
        ParquetSink("orders", other).refuse_start(other.owner(""), adopts=True)
    assert world.paths() == before
    with pytest.raises(EndpointError, match=refused):
        world.claim(other, adopts=True)
    assert world.owner() == world.place.owner("a")


@EITHER
def test_what_was_prepared_before_a_place_was_taken_over_is_removed(world: World, rows: Rows) -> None:
    left = world.claim().prepare(an_epoch(0, fence=9), rows(0))
    other = world.claim(replace(world.place, writer="other"), adopts=True)
    assert [path for path in world.paths() if left["staged"] in path] == []
    world.run(other, rows(5))
    assert world.inspect().has_rows


@EITHER
def test_who_makes_a_place_at_the_same_time_is_refused(world: World, rows: Rows) -> None:
    first, second = world.sink(), world.sink(replace(world.place, writer="other"))
    first.claim(world.place.owner("a"))
    world.run(first, rows(0))
    with pytest.raises(EndpointError, match="is written by materialization 'mine'"):
        second.claim(replace(world.place, writer="other").owner("a"))


def test_a_place_of_the_version_before_gets_a_mark(world: World, rows: Rows) -> None:
    world.run(world.sink(), rows(0))
    last = [path for path in world.paths() if path.startswith("_openings/")][-1]
    assert "owner" not in json.loads(world.store().get(last, "look"))
    assert world.inspect() == Target(True, True, None)
    other = replace(world.place, writer="other")
    found = world.inspect(other).owner
    assert found is not None  # names were noted before
    assert found.materialization == "mine"
    with pytest.raises(EndpointError, match="is written by materialization 'mine'"):
        world.claim(other)
    world.claim()
    assert world.owner() == world.place.owner("a")


@EITHER
def test_a_place_that_was_removed_and_made_again_has_no_mark(world: World, rows: Rows) -> None:
    world.run(world.claim(), rows(0))
    world.remove()
    assert world.inspect() == Target(False)
    other = replace(world.place, writer="other")
    world.run(world.sink(other), rows(0))
    assert world.inspect(other) == Target(True, True, None)


@EITHER
def test_a_place_whose_rows_carry_their_owner_is_nobodys(world: World, rows: Rows) -> None:
    for writer in ("mine", "other"):
        shared = replace(world.place, writer=writer, owned="writer")
        sink = world.claim(shared)
        world.run(sink, rows(0))
        assert world.inspect(shared) == Target(True, True, None)
