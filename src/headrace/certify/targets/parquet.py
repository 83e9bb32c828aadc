"""Parquet files, read as `docs/sinks/parquet.md` tells those to who have none of our code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import orjson

from headrace.certify.targets.stored import Stored
from headrace.certify.targets.stored_sinks import StoredTarget
from headrace.certify.targets.target import APPEND

_EPOCH_FOLDER = re.compile(r"epoch-\d{20}/.*\.parquet")
_MANIFEST = re.compile(r"_manifests/(\d{20})-(\d+)\.json")


class ParquetTarget(StoredTarget):
    format: ClassVar[str] = "parquet"
    modes: tuple[str, ...] = (APPEND,)

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        super().__init__(root, options)
        self.can_roll_back = self.can_restore

    def roll_back(self, lane: str) -> Callable[[], None]:
        """Moves the last epoch's folder away."""
        folder = self.stored(lane, APPEND).folder
        assert folder is not None, "only a folder has epochs as folders"
        last = max(folder.glob("epoch-*"))
        away = folder.with_name(f"{folder.name}-{last.name}")
        last.rename(away)

        def put_back() -> None:
            away.rename(last)

        return put_back

    def rows(self, stored: Stored) -> list[dict[str, Any]]:
        if stored.folder is not None:
            return stored.rows(path for path in stored.paths("") if _EPOCH_FOLDER.fullmatch(path))
        rewinds = _rewinds(stored)
        counting = (path for path in stored.paths("_manifests") if _counts(path, rewinds))
        return stored.rows(file for manifest in counting for file in _files(stored, manifest))

    def unpublished(self, stored: Stored) -> Iterator[str]:
        yield from stored.paths("_staged")
        if stored.folder is None:
            # Also files of what was taken back: those were published once.
            named = {file for manifest in stored.paths("_manifests") for file in _files(stored, manifest)}
            yield from (path for path in stored.paths("data") if path not in named)


def _files(stored: Stored, manifest: str) -> list[str]:
    return [file["path"] for file in orjson.loads(stored.get(manifest))["files"]]


def _rewinds(stored: Stored) -> list[Mapping[str, int]]:
    openings = stored.paths("_openings")
    rewinds: list[Mapping[str, int]] = orjson.loads(stored.get(openings[-1]))["rewinds"] if openings else []
    return rewinds


def _counts(manifest: str, rewinds: Sequence[Mapping[str, int]]) -> bool:
    found = _MANIFEST.fullmatch(manifest)
    assert found is not None, f"{manifest} is no manifest"
    epoch, generation = int(found[1]), int(found[2])
    return not any(rewind["generation"] > generation and rewind["after"] < epoch for rewind in rewinds)
