"""Epochs of Parquet files in a folder of this machine.

    folder/epoch=00000000000000000012/part-....parquet    what readers see: a partitioned dataset
    folder/_staged/00000000000000000013-2-5f0c.../        prepared under fence 2, and seen by nobody
    folder/_openings/                                     who may take something back

A folder is filled under `_staged`, synced, and gets its final name by one rename.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.durable import sync_path
from headrace.errors import EndpointError, EndpointUnavailable, HeadraceError
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.columns import Columns, arrow_type, columns_of, grown
from headrace.sinks.contract import Epoch, Sink
from headrace.sinks.file_reading import read_file
from headrace.sinks.openings import Opening, Openings, replaced
from headrace.sinks.parquet_layout import Label, Layout
from headrace.sinks.roots import Root
from headrace.sinks.staging import Attempt
from headrace.spark.errors import spark_failures
from headrace.spark.session import setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGED = "_staged"
_OPENINGS = "_openings"
_REWOUND = "_rewound"
# In each published folder; by its underscore no reader takes it for data.
_LABEL = "_headrace.json"


class FolderRows(Sink):
    """Appends each epoch's rows."""

    def __init__(self, name: str, layout: Layout) -> None:
        folder = layout.root.folder
        assert folder is not None, "object storage has manifests"
        self.name = name
        self.folder = folder
        self._layout = layout
        self._is_rooted = False
        self._opened: Opening | None = None  # None: not started
        self._claimed: Owner | None = None  # of a folder that was not there to be claimed
        self._known: Columns | None = None

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._opened = Opening(fence=fence)
        if not self.folder.exists():
            return
        self._opened = self._openings().start(decided, fence)
        if self._opened.number:
            self._remove_staged(fence, handle.get("staged") if handle else None)

    def inspect(self) -> Target:
        with self._speaking("be inspected"):
            if not self.folder.exists():
                return Target(False)
            has_rows = next(self._published(), None) is not None
            last = self._openings(writes=False).last()
            return Target(True, has_rows, last.owner_beside(self._layout.place.owner("")))

    def claim(self, owner: Owner, *, adopts: bool) -> None:
        if not self.folder.exists():
            self._claimed = owner
            return
        is_taken_over = adopts and self._layout.is_taken_over(self.name, self.inspect(), owner)
        openings = self._openings()
        self._opened = openings.claim(self._opened or openings.last(), owner, adopts=adopts)
        if is_taken_over:
            self._remove_staged(sys.maxsize, None)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        target = self.folder / self._layout.folder(epoch.number)
        if target.exists():
            raise EndpointError(
                f"{target} is there already, and epoch {epoch.number} was never decided "
                "here: another pipeline writes to this folder, or the state of this one was removed; choose "
                "another folder, or move this one away"
            )
        if rows is None:
            return {}
        if self.folder.exists():
            self._open()  # before anything is staged in a folder that is another's
        columns = self._grown(rows)
        attempt = Attempt.new(epoch.number, epoch.fence)
        staged = self.folder / _STAGED / attempt.name
        try:
            self._write(rows, staged)
        except HeadraceError:
            with self._cleaning_up("an attempt that failed"):
                self._remove(staged)  # otherwise it would stay until the next start
            raise
        with self._speaking(f"prepare epoch {epoch.number}"):
            files = self._data_files(staged)
            count = sum(pq.read_metadata(file).num_rows for file in files)
            if not count:
                with self._cleaning_up("an epoch without rows"):
                    self._remove(staged)
                return {}
            self._open()
            label = Label(attempt.name, epoch.number, count, epoch.runtime_checkpoint, columns)
            (staged / _LABEL).write_text(json.dumps(asdict(label), default=dict))
            folders = {folder for file in files for folder in file.parents if folder.is_relative_to(staged)}
            for path in (*files, staged / _LABEL, *folders):
                sync_path(path)
            self._sync_parents(staged)
        return {
            "folder": str(self.folder),
            "staged": attempt.name,
            "files": len(files),
            "rows": count,
        }

    def commit(self, epoch: int, handle: JsonObject) -> None:
        folder, name = Path(handle["folder"]), handle["staged"]
        staged, target = folder / _STAGED / name, folder / self._layout.folder(epoch)
        with self._speaking(f"publish epoch {epoch}"):
            try:
                staged.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
                    raise
                if not self._is_published(target, name):  # before, or by somebody else at this moment
                    raise self._missing(epoch, staged, target) from None
            # Also for one that was published before: whoever did so may have died before this.
            sync_path(folder)
            with suppress(FileNotFoundError):
                sync_path(staged.parent)
        with self._cleaning_up("what was taken back and has come again"):
            self._release(folder / _REWOUND, epoch)

    def _release(self, rewound: Path, epoch: int) -> None:
        for generation in self._list(rewound):
            numbers = [self._layout.epoch_of(path.name) for path in self._list(generation)]
            if all(number is None or number <= epoch for number in numbers):
                self._remove(generation)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        with self._speaking(f"abort epoch {epoch}"):
            self._remove(Path(handle["folder"]) / _STAGED / handle["staged"])

    def rewind(self, epoch: int) -> None:
        """Readers lose what was published an epoch at a time, the last one first.

        It is kept where nobody reads, until as many epochs have come again (`_release`).
        """
        if not self.folder.exists():
            return
        openings = self._openings()
        self._opened = openings.rewind(self._opened, epoch)
        with self._speaking(f"go back to epoch {epoch}"):
            for number, path in sorted(self._published(), reverse=True):
                if number <= epoch:
                    break
                expected = read_label(path).id
                if openings.last() != self._opened:
                    raise replaced(self.name)
                hidden = self.folder / _REWOUND / str(self._opened.generation) / path.name
                hidden.parent.mkdir(parents=True, exist_ok=True)
                try:
                    path.rename(hidden)
                except FileNotFoundError:
                    raise replaced(self.name) from None  # by one who has taken it back, or let ours go
                if read_label(hidden).id != expected:  # somebody took over between the two lines above
                    hidden.rename(path)
                    raise replaced(self.name)
                sync_path(hidden.parent)
                sync_path(self.folder)

    def read(self, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        published = sorted(self._published())
        types = self._types(published[-1][1]) if published else {}
        for number, folder in published:
            if epoch not in (None, number):
                continue
            wanted = self._layout.wanted(columns, types)
            try:
                for file in sorted(folder.rglob("*.parquet")):
                    path = file.relative_to(self.folder)
                    partition = dict(_partition(part) for part in path.parts[1:-1])
                    constants = self._layout.constants(number, partition)
                    yield from read_file(Root(self.folder.as_uri()), str(path), constants, wanted)
            except FileNotFoundError:
                continue  # the pipeline went back to an earlier epoch meanwhile

    def committed(self) -> JsonObject | None:
        published = sorted(self._published())
        return read_label(published[-1][1]).runtime_checkpoint if published else None

    def undone(self, epoch: int, handle: JsonObject) -> str:
        """As in `RowSink.undone`; epochs before files were counted have at least one."""
        folder = self.folder / self._layout.folder(epoch)
        with self._speaking("tell what it has"):
            if not (folder / _LABEL).exists():
                return f"has no epoch {epoch} any more: {folder.name}/{_LABEL} is not there"
            if read_label(folder).id != handle["staged"]:
                return f"has other rows of epoch {epoch} than were committed, in {folder.name}"
            expected, found = handle.get("files", 1), sum(1 for _ in folder.rglob("*.parquet"))
            return f"has {found} of {expected} files of epoch {epoch}" if found < expected else ""

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        """What whoever started last has staged is his, however old it is: he may wait for other sinks."""
        before = datetime.now(UTC) - age
        needed = kept.get("staged") if kept else None
        with self._speaking("be cleaned up"):
            # Before it is asked who started last, or he could have begun since.
            staged = self._list(self.folder / _STAGED)
            last = self._openings().last() if staged else Opening()
            for path in staged:
                attempt = Attempt.named(path.name)
                if attempt is None or attempt.fence >= last.fence or path.name == needed:
                    continue
                if attempt.began_at < before:
                    self._remove(path)
                    yield f"removed {path}, which was never committed"

    def _open(self) -> None:
        """Notes in a folder that the start has left alone who has started, and whose it is."""
        if self._opened is None or self._opened.number:
            return
        if self._claimed is None:
            self._opened = self._openings().take(None, self._opened.fence)
        else:  # if somebody has made it since, that is no place that anybody wanted to be taken over
            self._opened = self._openings().claim(self._opened, self._claimed, adopts=False)

    def _remove_staged(self, fence: int, kept: str | None) -> None:
        """Removes what was staged under fences before this one."""
        with self._cleaning_up("what was never decided"):
            for path in self._list(self.folder / _STAGED):
                attempt = Attempt.named(path.name)
                # Those of a later fence belong to somebody who took over from us while we slept.
                if attempt and attempt.fence < fence and path.name != kept:
                    self._remove(path)

    def _types(self, folder: Path) -> dict[str, pa.DataType]:
        columns: Columns = {}
        with suppress(FileNotFoundError):  # the pipeline went back to an earlier epoch meanwhile
            columns = read_label(folder).columns
        if columns:
            return {name: arrow_type(kind) for name, kind in columns.items()}
        files = sorted(folder.rglob("*.parquet"))  # of an older version, whose labels said less
        return {field.name: field.type for field in pq.read_schema(files[0])} if files else {}

    def _grown(self, rows: DataFrame) -> Columns:
        if self._known is None:
            published = sorted(self._published())
            self._known = read_label(published[-1][1]).columns if published else {}
        return grown(self._known, columns_of(rows), str(self.folder))

    def _write(self, rows: DataFrame, staged: Path) -> None:
        with self._speaking("be written"):
            staged.parent.mkdir(parents=True, exist_ok=True)
        writer = rows.drop(*self._layout.not_written).write
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if self._layout.place.partitions:
            writer = writer.partitionBy(*self._layout.place.partitions)
        # By default Spark writes a kind of time that others call deprecated, and that has no zone.
        instants = setting(rows.sparkSession, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        with spark_failures(f"sink {self.name}: Spark cannot write {staged}"), instants:
            # Not as_uri: Hadoop's paths are not quoted.
            writer.parquet(f"file://{staged}")

    def _data_files(self, staged: Path) -> list[Path]:
        """Removes Hadoop's own files, which would stay behind for good."""
        files = []
        for path in sorted(staged.rglob("*")):
            if path.is_file() and path.name.startswith((".", "_")):
                path.unlink()
            elif path.is_file():
                files.append(path)
        return files

    def _published(self) -> Iterator[tuple[int, Path]]:
        for path in self._list(self.folder):
            number = self._layout.epoch_of(path.name)
            if number is not None:
                yield number, path

    def _is_published(self, target: Path, name: str) -> bool:
        if not target.exists():
            return False
        label = read_label(target)
        if label.id == name:
            return True
        raise EndpointError(
            f"{target} is there already, with other rows than epoch {label.epoch} has here: another "
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

    def _cleaning_up(self, what: str) -> AbstractContextManager[None]:
        return cleaning_up(f"remove {what} of sink {self.name} from {self.folder}")

    def _openings(self, *, writes: bool = True) -> Openings:
        store = Root(self.folder.as_uri()).objects(writes=writes)
        return Openings(store, _OPENINGS, self.name, self._layout.place.writer)

    def _sync_parents(self, staged: Path) -> None:
        """The first time all the way up: any of them may have been made just now."""
        sync_path(staged.parent)
        sync_path(self.folder)
        if not self._is_rooted:
            for folder in self.folder.parents:
                with suppress(PermissionError):  # not ours, and so not made by us
                    sync_path(folder)
            self._is_rooted = True

    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EndpointUnavailable(
                f"sink {self.name}: the folder {self.folder} cannot {what}: {error.strerror or error}"
            ) from error


def read_label(folder: Path) -> Label:
    """What a published folder says of itself."""
    return Label.of(json.loads((folder / _LABEL).read_text()))


def _partition(folder: str) -> tuple[str, str | None]:
    name, _, value = folder.partition("=")
    return unquote(name), None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
