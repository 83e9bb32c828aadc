"""The connector `files`: staged files that are published, read by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.certify.targets.documents_of import appended
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.stored import Stored
from headrace.certify.targets.target import APPEND, Place, Rows, Target
from headrace.objects import ObjectStore


class FilesTarget(Target):
    """A prefix for each lane. Each range of keys has files of its own, so only one shard is seen at once.

    What was staged and never named stays for a day, as documented: it is not asked what is left over.
    """

    is_atomic: ClassVar[bool] = False
    is_loaded: ClassVar[bool] = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """As the connector's own configuration has them, but that a folder is a URL too."""
        self._root = Stored(url, lambda below: ObjectStore(below, options))
        self.name = self._root.named("files")
        self._config = {"url": url, "options": dict(options)}

    def place(self, lane: str) -> Place:
        return Place({"connector": "files", "config": self._config}, {"resource": {"prefix": lane}})

    def read(self, lane: str) -> Mapping[str, Rows]:
        stored = self._root.below(lane)
        return {APPEND: appended(steadily(lambda: stored.rows(stored.paths("data"))))}

    def remove(self, lane: str) -> None:
        self._root.below(lane).remove()
