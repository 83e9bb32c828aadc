"""Rows as Parquet files, an epoch at a time: in a folder of this machine, or in object storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.parquet_folder import FolderRows
from headrace.sinks.parquet_layout import Layout
from headrace.sinks.parquet_objects import ManifestFile, ObjectRows
from headrace.sinks.roots import Root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ParquetSink(RowSink):
    """Appends each epoch's rows. How an epoch becomes visible depends on what the store can do."""

    can_keep_views: ClassVar[bool] = False
    can_tell: ClassVar[bool] = True

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._layout = Layout(place)
        self._layout.root.check()
        if place.is_view:
            raise ConfigError("Parquet files cannot be updated by key: use delta, iceberg or hudi for a view")
        self._rows = _rows(name, self._layout)

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:  # noqa: ARG003 - rows bring theirs
        return cls(name, place)

    @classmethod
    def look(cls, name: str, place: Place) -> Owner | None:
        return cls(name, place).inspect().owner

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        return _rows("reader", Layout(place)).read(columns, epoch)

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        rows = _rows("reader", Layout(place))
        wrong = list(rows.audit()) if isinstance(rows, ObjectRows) else []
        yield from wrong or super().audit(place, decided, last)  # rows are counted if all files are there

    def inspect(self) -> Target:
        found = self._rows.inspect()
        # A place that several may write to has a folder for each.
        return replace(found, owner=None) if self._layout.place.owned else found

    def refuse_start(self, owner: Owner, *, adopts: bool = False) -> None:
        if adopts:
            self._layout.is_taken_over(self.name, self.inspect(), owner)

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        if not self._layout.place.owned:
            self._rows.claim(owner, adopts=adopts)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._rows.start(decided, handle, fence)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        return self._rows.prepare(epoch, rows)

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            self._prepared(handle).commit(epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            self._prepared(handle).abort(epoch, handle)

    def rewind(self, epoch: int) -> None:
        self._rows.rewind(epoch)

    def committed(self) -> JsonObject | None:
        return self._rows.committed()

    def undone(self, epoch: int, handle: JsonObject) -> str:
        return self._rows.undone(epoch, handle)

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        return self._rows.maintain(age, kept)

    def _prepared(self, handle: JsonObject) -> FolderRows | ObjectRows:
        """Where it was prepared, which need not be where rows go now."""
        place = self._layout.place
        if "folder" in handle and not isinstance(self._rows, FolderRows):
            folder = replace(place, location=Path(handle["folder"]).as_uri(), owned="", options={})
            return FolderRows(self.name, Layout(folder))
        if "url" in handle and handle["url"] != self._layout.root.url:
            return ObjectRows(self.name, self._layout, Root(handle["url"], place.options))
        return self._rows


def read_manifests(url: str, options: Mapping[str, str] | None = None) -> list[ManifestFile]:
    """All files of a place in object storage that readers may trust: of epochs that are committed, once each.

    `url` and `options` are those of the binding.
    """
    layout = Layout(Place(url, "reader", options=options or {}))
    if layout.root.folder is not None:
        raise ConfigError(f"{url} is a folder, which has no manifests: every epoch in it is committed")
    return list(ObjectRows("reader", layout).files())


def _rows(name: str, layout: Layout) -> FolderRows | ObjectRows:
    return FolderRows(name, layout) if layout.root.folder else ObjectRows(name, layout)
