"""Delta tables, read by a replay of the log of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import unquote

import orjson

from headrace.certify.targets.stored import Stored
from headrace.certify.targets.stored_sinks import StoredTarget
from headrace.errors import EndpointError

_ENTRY = re.compile(r"_delta_log/(\d{20})\.json")
_STAGED = re.compile(r"_headrace/[^/]+/(staged|rows)/.*")


class DeltaTarget(StoredTarget):
    format: ClassVar[str] = "delta"

    def rows(self, stored: Stored) -> list[dict[str, Any]]:
        files: dict[str, None] = {}
        for action in _actions(stored):
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            elif "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
        return stored.rows(files)

    def unpublished(self, stored: Stored) -> Iterator[str]:
        yield from filter(_STAGED.fullmatch, stored.paths("_headrace"))
        added = {unquote(action["add"]["path"]) for action in _actions(stored) if "add" in action}
        for path in stored.paths(""):
            if path.endswith(".parquet") and not path.startswith("_") and path not in added:
                yield path


def _actions(stored: Stored) -> Iterator[dict[str, Any]]:
    """Of the whole log; nobody has cleaned it up as young as it is."""
    entries = [found for path in stored.paths("_delta_log") if (found := _ENTRY.fullmatch(path))]
    for version, entry in enumerate(entries):
        if int(entry[1]) != version:
            raise EndpointError(f"the log of {stored.url} has no entry {version}, and has later ones")
        for line in stored.get(entry[0]).splitlines():
            yield orjson.loads(line)
