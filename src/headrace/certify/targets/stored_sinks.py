"""Formats that are files below a URL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from headrace.certify.targets.documents_of import appended, viewed
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.stored import Stored
from headrace.certify.targets.target import SAVED, VIEW, Rows
from headrace.sinks.roots import Root


class StoredTarget(SinkTarget):
    """A folder of its own for each sink of a lane."""

    keeps_copies: ClassVar[bool] = True
    """Where it is in a folder."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        """`root` is the URL of a folder, or s3://bucket/prefix; `options` are of its storage."""
        self._root, self._options = Stored(root, lambda url: Root(url, options).objects()), options
        self.name = self._root.named(self.format)
        is_folder = self._root.folder is not None
        self.can_restore = is_folder and self.keeps_copies

    def location(self, lane: str, mode: str) -> str:
        return self.stored(lane, mode).url

    def options(self, lane: str) -> Mapping[str, str]:  # noqa: ARG002
        return self._options

    def stored(self, lane: str, mode: str) -> Stored:
        return self._root.below(f"{lane}-{mode}")

    def read(self, lane: str) -> Mapping[str, Rows]:
        found = {mode: steadily(partial(self.rows, self.stored(lane, mode))) for mode in self.modes}
        return {mode: viewed(rows) if mode == VIEW else appended(rows) for mode, rows in found.items()}

    @abstractmethod
    def rows(self, stored: Stored) -> list[dict[str, Any]]:
        """What a reader sees who has read the format's documentation."""

    def left_over(self, lane: str) -> list[str]:
        return [
            f"{lane}-{mode}/{path}"
            for mode in self.modes
            for path in self.unpublished(self.stored(lane, mode))
        ]

    @abstractmethod
    def unpublished(self, stored: Stored) -> Iterator[str]:
        """Paths of what is staged, or belongs to nothing."""

    def save(self, lane: str, copy: str = SAVED) -> None:
        for mode in self.modes:
            self.stored(lane, mode).save(copy)

    def restore(self, lane: str, copy: str = SAVED) -> None:
        for mode in self.modes:
            self.stored(lane, mode).restore(copy)

    def remove(self, lane: str) -> None:
        for mode in self.modes:
            self.stored(lane, mode).remove()
