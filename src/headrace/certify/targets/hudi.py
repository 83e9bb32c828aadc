"""Hudi tables, read by the Rust library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from headrace.certify.targets.stored import Stored
from headrace.certify.targets.stored_sinks import StoredTarget

_INSTANT = re.compile(r"\.hoodie/timeline/(?P<instant>\d+)(?:_\d+)?\.(?P<rest>[^/]+)")
_NOTE = re.compile(r"\.hoodie/headrace/[^/]+/\d+-\d+-\d+")


class HudiTarget(StoredTarget):
    format: ClassVar[str] = "hudi"
    keeps_copies: ClassVar[bool] = False

    def rows(self, stored: Stored) -> list[dict[str, Any]]:
        from hudi import HudiTableBuilder

        if not any(_is_completed(path) for path in stored.paths(".hoodie/timeline")):
            return []
        table = HudiTableBuilder.from_base_uri(stored.url).build()
        return [row for batch in table.read() for row in pa.record_batch(batch).to_pylist()]

    def unpublished(self, stored: Stored) -> Iterator[str]:
        timeline = stored.paths(".hoodie/timeline")
        completed = {_instant(path) for path in timeline if _is_completed(path)}
        yield from (path for path in timeline if (found := _instant(path)) and found not in completed)
        yield from filter(_NOTE.fullmatch, stored.paths(".hoodie/headrace"))


def _instant(path: str) -> str:
    found = _INSTANT.fullmatch(path)
    return found["instant"] if found else ""


def _is_completed(path: str) -> bool:
    found = _INSTANT.fullmatch(path)
    return found is not None and not found["rest"].endswith((".inflight", ".requested", "inflight"))
