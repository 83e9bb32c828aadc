"""A lane: one source into one endpoint, as one materialization, and the names of its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from headrace.certify.documents import CONFIGURED, NAME
from headrace.certify.feeds import Feed
from headrace.certify.targets.target import Target
from headrace.pipeline.settings import Profile

# Tasks that wait at a point keep their places, and what failed is tried again.
_SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_MASTER = "local[64,4]"


@dataclass(frozen=True)
class Lane:
    feed: Feed
    target: Target
    suffix: str = ""
    """Of its name, where an endpoint has lanes of several certifications."""

    @property
    def name(self) -> str:
        return f"{self.feed.name}-{self.target.name}{self.suffix}"

    @cached_property
    def materialization(self) -> dict[str, Any]:
        place = self.target.place(self.name)
        binding = {"collection": NAME, **self.feed.source, **place.binding}
        return {**place.materialization, "limits": dict(self.feed.limits), "bindings": [binding]}

    @property
    def sinks(self) -> list[str]:
        """As the coordinator has them, in its order; none if it goes through a connector."""
        return [f"{name}.{NAME}" for name in self.materialization.get("sinks", {})]

    @property
    def has_connector(self) -> bool:
        return "connector" in self.materialization

    @property
    def is_reached_by_network(self) -> bool:
        """Through a proxy, so that its connections can be broken."""
        return self.has_connector and self.target.proxy is not None

    def remove(self) -> None:
        """What it has left in its endpoint."""
        self.target.remove(self.name)

    def task(self, step: str) -> str:
        """A point in the tasks of a connector."""
        return f"{self.name} task {step}"

    def driver(self, step: str) -> str:
        """A point in what the driver says to a connector."""
        return f"{self.name} driver {step}"

    def did(self, step: str) -> str:
        """A point after a step of the coordinator."""
        return f"{self.name} {step}"

    def log(self, step: str) -> str:
        """A point of the recovery log."""
        return f"materializations/{self.name}/log {step}"


def configuration(
    lanes: Sequence[Lane], data: Path, profile: Profile, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A `headrace.yaml` of all lanes; `more` outranks."""
    return {
        "data": str(data),
        "profile": str(profile),
        "spark": {"master": _MASTER, "conf": _SPARK},
        "collections": CONFIGURED,
        "materializations": {lane.name: lane.materialization for lane in lanes},
        **(more or {}),
    }


def write_configuration(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False))
