"""Formats that take part in two-phase commit: a lane is a materialization of sinks alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from headrace.certify.targets.target import APPEND, VIEW, Place, Target


class SinkTarget(Target):
    """One sink for each way in which the format keeps rows; `LANE-append` and `LANE-view` are their names."""

    format: ClassVar[str]
    modes: tuple[str, ...] = (APPEND, VIEW)

    @abstractmethod
    def location(self, lane: str, mode: str) -> str: ...

    def options(self, lane: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def place(self, lane: str) -> Place:
        names = {mode: f"{lane}-{mode}" for mode in self.modes}
        sink = {"format": self.format, "options": dict(self.options(lane))}
        targets = {
            name: {"location": self.location(lane, mode), "mode": mode} for mode, name in names.items()
        }
        return Place({"sinks": dict.fromkeys(names.values(), sink)}, {"sinks": targets})
