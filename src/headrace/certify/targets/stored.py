"""Objects in a folder or a bucket, for a reader who changes nothing there and may come before they do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.objects import ObjectStore
from headrace.sinks.roots import Root


class Stored:
    """All that is below a URL."""

    def __init__(self, url: str, open_store: Callable[[str], ObjectStore]) -> None:
        """`open_store` is for object storage: a folder is not made by looking at it."""
        self.url, self._open_store = url.rstrip("/"), open_store

    @property
    def folder(self) -> Path | None:
        """None in object storage."""
        return Root(self.url).folder

    def named(self, kind: str) -> str:
        """What is kept here, told from the same in a folder."""
        return kind if self.folder else f"{kind}-{urlsplit(self.url).scheme}"

    def below(self, name: str) -> Stored:
        return Stored(f"{self.url}/{name}", self._open_store)

    def paths(self, under: str) -> list[str]:
        """All of one moment: listed until two lists are the same, since a list is not taken at once."""
        before, found = None, self._list(under)
        while found != before:
            before, found = found, self._list(under)
        return found

    def get(self, path: str) -> bytes:
        if self.folder is not None:
            return (self.folder / path).read_bytes()
        return self._objects().get(path, f"read {path}")

    def rows(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """Of Parquet files."""
        return [
            row
            for path in paths
            for row in pq.ParquetFile(pa.BufferReader(self.get(path))).read().to_pylist()
        ]

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        store = self._objects()
        for path in self._list(""):
            store.remove(path, f"remove {path}")

    def save(self, copy: str) -> None:
        """Beside the folder; there is no way to have a bucket as it was at one moment."""
        _copy(self._here(), self._copied(copy))

    def restore(self, copy: str) -> None:
        _copy(self._copied(copy), self._here())

    def _here(self) -> Path:
        assert self.folder is not None, "only a folder has copies"
        return self.folder

    def _copied(self, copy: str) -> Path:
        return self._here().with_name(f"{self._here().name}.{copy}")

    def _objects(self) -> ObjectStore:
        return self._open_store(self.url)

    def _list(self, under: str) -> list[str]:
        if self.folder is None:
            return self._objects().list(under, "look what is there")
        below = self.folder / under
        return sorted(path.relative_to(self.folder).as_posix() for path in below.rglob("*") if path.is_file())


def _copy(source: Path, target: Path) -> None:
    """In the place of what is there; nothing, if nothing is."""
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target)
