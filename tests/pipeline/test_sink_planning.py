"""Which sinks a materialization has, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.model.collections import Collection
from headrace.pipeline import runner
from headrace.pipeline.plan import plan, planned_sinks
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    DeadLetterSettings,
    MaterializationSettings,
    PipelineSettings,
    SinkSettings,
    SinkTarget,
)
from headrace.pipeline.state_paths import is_folder, refuse_folders
from tests.pipeline.scenario import Recorder

CLUSTER = "spark://spark.example:7077"


def collection(**properties: Mapping[str, Any]) -> Collection:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, **properties},
        "required": ["id"],
    }
    return Collection("orders", ("/id",), schema)


def settings_of(
    *sinks: SinkSettings, orders: Collection | None = None, connector: str = ""
) -> MaterializationSettings:
    binding = BindingSettings(orders or collection(), CollectionSource("orders"), {"table": "orders"})
    return MaterializationSettings("sales", connector, {}, (binding,), sinks=sinks)


def sink(
    name: str, location: str, format_name: str = "parquet", *, is_view: bool = False, shared: bool = False
) -> SinkSettings:
    return SinkSettings(name, format_name, (SinkTarget(location, is_view),), shared=shared)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://lake/x", "s3://lake/x"),
        ("s3://lake/x", "s3://lake/x/"),
        ("s3://lake/x", "s3a://lake/x"),
        ("s3://lake/a/../x", "s3://lake/x"),
        ("file:///lake/x", "file:///lake/x/"),
        ("file:///lake/x", "/lake//x"),
        ("file:///lake/x", "file://localhost/lake/x"),
        ("file:///lake/x%20y", "/lake/x y"),
    ],
)
def test_two_sinks_go_to_one_place_however_it_is_written(one: str, other: str) -> None:
    with pytest.raises(ConfigError, match=r"sinks a\.orders and b\.orders both go to .*: give each its own"):
        plan(settings_of(sink("a", one), sink("b", other)))
    with pytest.raises(ConfigError, match="both go to"):
        plan(settings_of(sink("a", one), sink("b", other, "delta")))


def test_two_sinks_go_to_two_places() -> None:
    assert len(plan(settings_of(sink("a", "s3://lake/x"), sink("b", "s3://lake/X"))).sinks) == 2
    assert len(plan(settings_of(sink("a", "s3://lake/x"), sink("b", "gs://lake/x"))).sinks) == 2


@pytest.mark.parametrize("name", ["_epoch", "_EPOCH"])
def test_a_field_with_the_name_of_the_epochs_column_is_refused(name: str) -> None:
    orders = collection(**{name: {"type": "integer"}})
    with pytest.raises(ConfigError, match=f"sink a: the field '{name}' has the name of a column of its own"):
        plan(settings_of(sink("a", "s3://lake/x"), orders=orders))
    assert plan(settings_of(sink("a", "s3://lake/x", "delta", is_view=True), orders=orders)).sinks


def test_a_field_with_the_name_of_what_a_view_is_reduced_with_is_refused() -> None:
    orders = collection(_Stored={"type": "integer"}, total={"type": "integer", "reduce": {"strategy": "sum"}})
    orders = replace(orders, schema={**orders.schema, "reduce": {"strategy": "merge"}})
    with pytest.raises(ConfigError, match="the field '_Stored' has the name of a column of its own"):
        plan(settings_of(sink("a", "s3://lake/x", "delta", is_view=True), orders=orders))
    assert plan(settings_of(sink("a", "s3://lake/x"), orders=orders)).sinks


def test_sinks_are_planned_without_asking_the_connector(tmp_path: Path) -> None:
    """Its endpoint may be away."""
    settings = settings_of(sink("a", "s3://lake/x"), connector="sqlite")
    with pytest.raises(ConfigError):
        plan(settings)
    (planned,) = planned_sinks(settings)
    assert (planned.name, planned.place.key) == ("a.orders", ("id",))


@pytest.mark.parametrize(
    ("format_name", "location", "expected"),
    [
        ("parquet", "file:///lake", True),
        ("delta", "/lake", True),
        ("hudi", "hdfs://lake/x", False),
        ("parquet", "s3://lake/x", False),
        ("iceberg", "views.sales", False),
        ("kafka", "sales", False),
        ("of-another-package", "file:///lake", True),
    ],
)
def test_a_folder_of_one_machine(format_name: str, location: str, expected: bool) -> None:
    assert is_folder(format_name, location) is expected


def test_on_a_cluster_a_folder_has_to_be_shared() -> None:
    """Each of Spark's workers would write to a disk of its own."""
    folder = settings_of(sink("a", "file:///lake/x"))
    with pytest.raises(ConfigError, match=r"'sales': sink a goes to file:///lake/x, .* write `shared: true`"):
        refuse_folders(CLUSTER, folder)
    for master in ("local[*,4]", "local", "local-cluster[2,1,1024]"):
        refuse_folders(master, folder)
    refuse_folders(CLUSTER, settings_of(sink("a", "file:///lake/x", shared=True)))
    refuse_folders(CLUSTER, settings_of(sink("a", "s3://lake/x")))
    dead = DeadLetterSettings("parquet", "file:///dead")
    with pytest.raises(ConfigError, match="'sales': dead letters go to file:///dead"):
        refuse_folders(CLUSTER, replace(settings_of(), dead_letters=dead))
    refuse_folders(CLUSTER, replace(settings_of(), dead_letters=replace(dead, shared=True)))


def test_a_runner_on_a_cluster_refuses_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=CLUSTER))
    monkeypatch.setattr(runner, "make_session", lambda *_: session)
    settings = PipelineSettings((settings_of(sink("a", "file:///lake/x")),), tmp_path.as_uri())
    with pytest.raises(ConfigError, match=f"a folder, and Spark runs on {CLUSTER}"):
        runner.Runner(settings, Recorder()).run()
