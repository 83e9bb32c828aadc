"""Rows as Parquet files in a folder of this machine, an epoch at a time.

    folder/epoch=00000000000000000012/part-....parquet    what readers see: a partitioned dataset
    folder/_staged/00000000000000000013-2-5f0c.../        prepared under fence 2, and seen by nobody

A folder is filled under `_staged`, synced, and gets its final name by one rename.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, HeadraceError
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.spark_calls import setting, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGED = "_staged"
_STAGED_NAME = re.compile(r"(\d{20})-(\d+)-[0-9a-f]{32}")
_PUBLISHED_NAME = re.compile(r"epoch=(\d{20})")
# In each published folder; by its underscore no reader takes it for data.
_LABEL = "_headrace.json"
EPOCH_COLUMN = "epoch"
"""Read from the folder's name; a column of this name is not written into the files."""


def local_folder(url: str) -> Path:
    """The folder of a file:// URL, or of a path; any other place is refused."""
    parts = urlsplit(url)
    if not parts.scheme and url:
        return Path(url).absolute()
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigError(
            f"{url!r} is not a folder of this machine (file:///folder), and Parquet files are published by a "
            "rename, which object storage does not have: use the format iceberg there"
        )
    return Path(unquote(parts.path))


class ParquetSink(RowSink):
    """Appends each epoch's rows. `partitions` are columns that the folder's own path tells, as `epoch` is."""

    def __init__(self, name: str, location: str, partitions: Sequence[str] = ()) -> None:
        self.name = name
        self.folder = local_folder(location)
        self._not_written = (EPOCH_COLUMN, *partitions)
        self._is_rooted = False

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:  # noqa: ARG003 - rows bring theirs
        return cls(name, str(_folder_of(place)), [place.owned] if place.owned else [])

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        folder = _folder_of(place)
        written = {name: ds.field(name) for name in columns if name != EPOCH_COLUMN}
        for published in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = _PUBLISHED_NAME.fullmatch(published.name)
            if name is None or epoch not in (None, int(name[1])):
                continue
            # Named one by one: what is found by looking is left out where a folder above begins with _.
            files = [str(file) for file in sorted(published.glob("*.parquet"))]
            try:
                for batch in ds.dataset(files, format="parquet").to_batches(columns=written):
                    epochs = pa.array([int(name[1])] * batch.num_rows, pa.int64())
                    yield batch.append_column(EPOCH_COLUMN, epochs).select(columns)
            except FileNotFoundError:
                continue  # the pipeline went back to an earlier epoch meanwhile

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        kept = handle.get("staged") if handle else None
        with self._speaking("remove what was never decided"):
            for path in self._list(self.folder / _STAGED):
                name = _STAGED_NAME.fullmatch(path.name)
                # Those of a later fence belong to somebody who took over from us while we slept.
                if name and int(name[2]) < fence and path.name != kept:
                    self._remove(path)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        target = _target(self.folder, epoch.number)
        if target.exists():
            raise EndpointError(
                f"{target} is there already, and epoch {epoch.number} was never decided "
                "here: another pipeline writes to this folder, or the state of this one was removed; choose "
                "another folder, or move this one away"
            )
        if rows is None:
            return {}
        name = f"{epoch.number:020}-{epoch.fence}-{uuid4().hex}"
        staged = self.folder / _STAGED / name
        try:
            self._write(rows, staged)
        except HeadraceError:
            self._remove(staged)  # nobody would before the next start
            raise
        with self._speaking(f"prepare epoch {epoch.number}"):
            files = self._data_files(staged)
            count = sum(pq.read_metadata(file).num_rows for file in files)
            if not count:
                self._remove(staged)
                return {}
            label = {"id": name, "epoch": epoch.number, "rows": count}
            (staged / _LABEL).write_text(json.dumps(label))
            for file in (*files, staged / _LABEL, staged):
                _sync(file)
            self._sync_parents(staged)
        return {"folder": str(self.folder), "staged": name, "rows": count}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if not handle:
            return
        folder, name = Path(handle["folder"]), handle["staged"]
        staged, target = folder / _STAGED / name, _target(folder, epoch)
        with self._speaking(f"publish epoch {epoch}"):
            try:
                staged.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
                    raise
                if not self._is_published(target, name):  # before, or by somebody else at this moment
                    raise self._missing(epoch, staged, target) from None
            # Also for one that was published before: whoever did so may have died before this.
            _sync(folder)
            with suppress(FileNotFoundError):
                _sync(staged.parent)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            with self._speaking(f"abort epoch {epoch}"):
                self._remove(Path(handle["folder"]) / _STAGED / handle["staged"])

    def rewind(self, epoch: int) -> None:
        """Readers lose what was published an epoch at a time, the last one first."""
        with self._speaking(f"go back to epoch {epoch}"):
            for path in sorted(self._list(self.folder), reverse=True):
                name = _PUBLISHED_NAME.fullmatch(path.name)
                if name and int(name[1]) > epoch:
                    hidden = self.folder / _STAGED / f"{int(name[1]):020}-0-{uuid4().hex}"
                    hidden.parent.mkdir(exist_ok=True)
                    path.rename(hidden)  # so that nobody reads half of it
                    _sync(self.folder)
                    self._remove(hidden)

    def _write(self, rows: DataFrame, staged: Path) -> None:
        with self._speaking("be written"):
            staged.parent.mkdir(parents=True, exist_ok=True)
        writer = rows.drop(*self._not_written).write
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        # By default Spark writes a kind of time that others call deprecated, and that has no zone.
        instants = setting(rows.sparkSession, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        with spark_failures(f"sink {self.name}: Spark cannot write {staged}"), instants:
            # Not as_uri: Hadoop's paths are not quoted.
            writer.parquet(f"file://{staged}")

    def _data_files(self, staged: Path) -> list[Path]:
        """Removes Hadoop's own files, which would stay behind for good."""
        files = []
        for path in sorted(self._list(staged)):
            if path.name.startswith((".", "_")):
                self._remove(path)
            else:
                files.append(path)
        return files

    def _is_published(self, target: Path, name: str) -> bool:
        if not target.exists():
            return False
        label = read_label(target)
        if label["id"] == name:
            return True
        raise EndpointError(
            f"{target} is there already, with other rows than epoch {label['epoch']} has here: another "
            "pipeline writes to this folder; choose another one for it, and move this epoch away"
        )

    def _missing(self, epoch: int, staged: Path, target: Path) -> EndpointError:
        return EndpointError(
            f"epoch {epoch} was prepared in {staged} and is neither there nor in {target}: restore it from a "
            "backup of the folder"
        )

    def _list(self, folder: Path) -> list[Path]:
        try:
            return list(folder.iterdir())
        except FileNotFoundError:
            return []

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            # A task that was given up may still put a file there; the next start finds it.
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _sync_parents(self, staged: Path) -> None:
        """The first time all the way up: any of them may have been made just now."""
        _sync(staged.parent)
        _sync(self.folder)
        if not self._is_rooted:
            for folder in self.folder.parents:
                with suppress(PermissionError):  # not ours, and so not made by us
                    _sync(folder)
            self._is_rooted = True

    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EndpointUnavailable(
                f"sink {self.name}: the folder {self.folder} cannot {what}: {error.strerror or error}"
            ) from error


def _folder_of(place: Place) -> Path:
    """Several may write to one location; each has a partition of it."""
    own = f"{place.owned}={quote(place.writer, safe=' ')}" if place.owned else ""
    return local_folder(place.location) / own


def _target(folder: Path, epoch: int) -> Path:
    return folder / f"epoch={epoch:020}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_label(folder: Path) -> dict[str, Any]:
    """What a published folder says of itself: epoch, rows and the id that it was prepared under."""
    label: dict[str, Any] = json.loads((folder / _LABEL).read_text())
    return label
