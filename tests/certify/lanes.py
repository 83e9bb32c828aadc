"""Pipelines of several lanes in this process, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from headrace.certify.documents import CONFIGURED, NAME
from headrace.certify.feeds import CollectionFeed
from headrace.certify.oracle import look
from headrace.certify.targets.target import Target
from headrace.config import load_config
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import Trigger
from headrace.spark.lines import Needs, installed_line
from tests.pipeline.scenario import QUICK_SPARK, Recorder


def has_hudi() -> bool:
    """True if Hudi is published for the installed line of Spark."""
    return Needs.HUDI in installed_line().jars


class Lanes:
    """One for each target, of one collection."""

    def __init__(self, folder: Path, targets: Mapping[str, Target]) -> None:
        self.targets = targets
        self.catalog = embedded_catalog(folder / "data")
        (folder / "data").mkdir(exist_ok=True)
        self.feed = CollectionFeed(self.catalog)
        self._folder = folder

    def write_and_run(self, *names: str, writes: int = 1) -> None:
        """All lanes, or those of these names."""
        self.feed.write(writes)
        self.run(*names)

    def run(self, *names: str) -> None:
        settings = load_config(self._file()).pipeline_settings(names=names)
        once = tuple(replace(one, trigger=Trigger(once=True)) for one in settings.materializations)
        runner = Runner(replace(settings, materializations=once), Recorder())
        runner.run()
        for error in runner.failures.values():
            raise error

    def found(self, name: str) -> dict[str, int]:
        """How many documents a lane is the view of, once all is well with it."""
        prefixes = {}
        for kind, rows in self.targets[name].read(name).items():
            found = look(rows.documents, is_view=rows.is_view)
            assert found.problem() == "", (name, kind)
            prefixes[kind] = found.prefix
        return prefixes

    def _file(self) -> Path:
        file = self._folder / "headrace.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "data": str(self._folder / "data"),
                    "spark": {"master": "local[2]", "conf": QUICK_SPARK},
                    "collections": CONFIGURED,
                    "materializations": {
                        name: _materialization(target, name) for name, target in self.targets.items()
                    },
                }
            )
        )
        return file


def _materialization(target: Target, name: str) -> dict[str, Any]:
    place = target.place(name)
    binding = {"collection": NAME, **place.binding}
    return {**place.materialization, "limits": {"files": 1}, "bindings": [binding]}
