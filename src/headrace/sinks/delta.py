"""Rows in a Delta table, an epoch at a time, by the Rust library: Spark writes the files, and no more.

    data/00000000000000000012-2-019c.../....parquet    an epoch's rows, in the table once the log names them
    _headrace/<writer>/staged/                         attempts that are not committed
    _headrace/<writer>/rows/                           rows of a view that are to be merged
    _headrace/<writer>/checkpoints/                    where recent epochs end in their sources

Readers and VACUUM pass over what begins with an underscore. The commit is one entry of the log, which carries
the epoch as an application transaction: see `delta_table`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from headrace.errors import ConfigError, EndpointError, Fenced, HeadraceError
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.objects import ObjectStore
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.columns import Columns, columns_of, grown
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.delta_checkpoints import Checkpoints
from headrace.sinks.delta_commit import DATA, add_actions, merge, refuse_taking_back, take_back
from headrace.sinks.delta_reading import current_rows, data_files, has_rows, read_rows
from headrace.sinks.delta_restores import find_restore
from headrace.sinks.delta_table import Progress, Table, Tables
from headrace.sinks.delta_upkeep import OWN, audit_table, keep_up
from headrace.sinks.openings import check_fence, replaced, told
from headrace.sinks.ownership import read_mark, refuse_other, refuse_rows_of_others
from headrace.sinks.roots import Root, root_of
from headrace.sinks.staged_files import stage
from headrace.sinks.staging import Attempt, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE_PROPERTY = "delta."


class DeltaSink(RowSink):
    """Appends each epoch's rows to a table, or merges them by key. The table is made if it is not there."""

    can_tell: ClassVar[bool] = True

    def __init__(self, name: str, place: Place, spark: SparkSession, root: Root | None = None) -> None:
        """`root` is where something was prepared, if not where the place is now."""
        self.name = name
        self._place, self._spark = place, spark
        self._root = root or _root(place)
        self._root.check()
        if place.is_view and place.owned:
            raise ConfigError("a view has its table for itself: several can append to one Delta table only")
        properties = {key: value for key, value in place.options.items() if key.startswith(_TABLE_PROPERTY)}
        self._tables = Tables(self._root, place.writer, name, properties)
        self._folder = f"{OWN}/{_folder_name(self._tables.own)}"
        self._started: tuple[int | None, int] | None = None
        self._opened: int | None = None  # None: not started; 0: there was no table yet
        self._owner: Owner | None = None  # None: not claimed, or shared

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        return cls(name, place, spark)

    @classmethod
    def look(cls, name: str, place: Place) -> Owner | None:
        root = _root(place)
        table = Tables(root, place.writer, name).load()
        return None if table is None or place.owned else read_mark(name, root.url, table.mark)

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        return read_rows(place, Tables(_root(place), place.writer, "reader"), columns, epoch)

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        wrong = list(audit_table(place, Tables(_root(place), place.writer, "reader"), decided, last))
        yield from wrong or super().audit(place, decided, last)  # rows are counted if all files are there

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._started, self._opened = (decided, fence), 0
        if self._root.folder and not self._root.folder.exists():
            return
        table = self._tables.load()
        if table is not None:
            self._open()
            table = self._tables.must_load()
        kept = handle.get("staged") if handle else None
        with self._cleaning_up("what was never decided"):
            attempts = list(self._staging.attempts())
            # Attempts with a later fence belong to a successor that took over while we were frozen.
            self._remove([one for one in attempts if one.fence < fence and one.name != kept], table)

    def inspect(self) -> Target:
        table = self._tables.load()
        return Target(exists=False) if table is None else Target(True, has_rows(table), self._owner_in(table))

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        if self._place.owned:
            return
        self._owner = owner
        if self._tables.load() is not None:
            self._mark(owner, adopts=adopts)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        columns = self._columns(rows)
        table = self._tables.load()
        if table is not None:
            self._refuse(table, columns, epoch.number)
        attempt = Attempt.new(epoch.number, epoch.fence)
        self._staging.begin(attempt)
        partitions = () if self._place.is_view else self._place.partitions
        try:
            files = stage(rows, self._root, self._data(attempt.name), partitions)
        except HeadraceError:
            with self._cleaning_up("an attempt that failed"):
                self._remove_data(attempt.name)  # the next start finds what tasks still write
            raise
        count = sum(file.rows for file in files)
        if not count:
            with self._cleaning_up("an epoch without rows"):
                self._remove([attempt], None)
            return {}
        if table is None:
            table = self._tables.make(columns, self._place.partitions)
            self._refuse(table, columns, epoch.number)
        if self._opened == 0:
            self._open()
        if self._owner is not None and table.mark is None:
            self._mark(self._owner)
        staged = {
            "files": [file.to_json() for file in files],
            "columns": columns,
            "keys": self._place.keys,
            "runtime_checkpoint": epoch.runtime_checkpoint,
        }
        self._staging.finish(attempt, staged)
        opened = table.progress.opened if self._opened is None else self._opened
        return {"table": self._root.url, "staged": attempt.name, "opened": opened, "rows": count}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            self._prepared(handle)._commit(epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        if handle:
            attempt = Attempt.named(handle["staged"])
            assert attempt is not None
            sink = self._prepared(handle)
            sink._remove([attempt], sink._tables.load())

    def rewind(self, epoch: int) -> None:
        if self._root.folder and not self._root.folder.exists():
            return
        before = self._tables.load()
        if before is None:
            return

        def commit(table: Table) -> None:
            self._refuse_rows_of_others(table)
            progress = table.progress
            if self._opened is not None and self._opened != progress.opened:
                raise replaced(self.name)
            if progress.epoch <= epoch:
                return
            opened = self._opened or progress.opened + 1  # the latter for who was not started
            came_from = self._checkpoints.last(epoch)
            changes = {"epoch": epoch, "id": came_from, "opened": opened, "rewound": opened}
            take_back(self._place, table, epoch, table.properties(changes, {"epoch": epoch}))

        self._tables.change(commit)
        self._sync(epoch)
        self._keep_mark(before.mark)

    def refuse_rewind(self, epoch: int) -> None:
        table = None if self._root.folder and not self._root.folder.exists() else self._tables.load()
        if table is None:
            return
        self._refuse_rows_of_others(table)
        if table.progress.epoch > epoch:
            with self._tables.speaking("be read"):
                refuse_taking_back(self._place, self._tables, table, epoch)

    def current(self) -> DataFrame | None:
        table = self._tables.load()
        return None if table is None else current_rows(self._spark, table)

    def committed(self) -> JsonObject | None:
        table = self._tables.load()
        return None if table is None else self._checkpoints.read(table.progress.id)

    def undone(self, epoch: int, handle: JsonObject) -> str:  # noqa: ARG002 - the log tells by the epoch
        table = self._tables.load()
        return "is not there any more" if table is None else find_restore(table, epoch)

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        return keep_up(self._tables, age, {kept["staged"]} if kept else set())

    @cached_property
    def _store(self) -> ObjectStore:
        return self._root.objects()

    @property
    def _staging(self) -> Staging:
        return Staging(self._store, f"{self._folder}/staged")

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self._store, f"{self._folder}/checkpoints")

    def _open(self) -> None:
        """Takes the right to take something back from everybody who started before."""
        assert self._started is not None
        decided, fence = self._started

        def commit(table: Table) -> None:
            progress = table.progress
            check_fence(self.name, progress.fence, decided, fence)
            self._opened = progress.opened + 1
            changes = {"opened": self._opened, "fence": told(fence)}
            table.append([], table.properties(changes, {"opened": self._opened}))

        self._tables.change(commit)

    def _owner_in(self, table: Table) -> Owner | None:
        return None if self._place.owned else read_mark(self.name, self._root.url, table.mark)

    def _mark(self, owner: Owner, *, adopts: bool = False) -> None:
        """Has the table say whose it is, unless somebody else was faster."""

        def commit(table: Table) -> None:
            found = self._owner_in(table)
            refuse_other(self.name, self._root.url, found, owner, adopts=adopts)
            if found == owner:
                return
            if self._opened and self._opened < table.progress.opened:
                raise Fenced(f"sink {self.name}: another coordinator has started since, and claims the table")
            self._set_mark(table, owner.encode())

        self._tables.change(commit)

    def _keep_mark(self, mark: str | None) -> None:
        """A view that is restored to a version gets also that version's mark, or none."""

        def commit(table: Table) -> None:
            if mark is not None and table.mark != mark:
                self._set_mark(table, mark)

        self._tables.change(commit)

    def _set_mark(self, table: Table, mark: str) -> None:
        changes = {"opened": self._opened} if self._opened else {}  # fails if somebody starts meanwhile
        table.set_mark(mark, table.properties(changes, {}))
        self._tables.sync(lambda action: "metaData" in action)

    def _refuse_rows_of_others(self, table: Table) -> None:
        refuse_rows_of_others(self.name, self._root.url, self._owner_in(table), self._place.writer)

    def _commit(self, epoch: int, handle: JsonObject) -> None:
        name = handle["staged"]

        def commit(table: Table) -> None:
            if self._is_done(epoch, handle, table.progress):
                return
            staged = self._staging.read(name)
            if staged is None:
                self._check_gone(epoch, handle)
                return
            new = {column: kind for column, kind in staged["columns"].items() if column not in table.columns}
            if new:
                table.add_columns(new)
                table = self._tables.must_load()
                # What was done before this look would not conflict with an append from it.
                if self._is_done(epoch, handle, table.progress):
                    return
            attempt = Attempt.named(name)
            assert attempt is not None
            self._checkpoints.write(attempt, staged["runtime_checkpoint"])
            about = {
                "epoch": epoch,
                "rows": handle["rows"],
                "runtime_checkpoint": staged["runtime_checkpoint"],
            }
            properties = table.properties({"epoch": epoch, "id": attempt.id}, about)
            if not staged["keys"]:
                table.append(add_actions(staged["files"], attempt), properties)
            elif not merge(table, staged, properties):
                self._check_gone(epoch, handle)

        self._tables.change(commit)
        self._sync(epoch)
        with self._cleaning_up("what was staged for an epoch that is committed"):
            if self._place.is_view:
                self._remove_data(name)
            self._staging.remove(name)
        with self._cleaning_up("old checkpoints"):
            self._checkpoints.prune(epoch)

    def _is_done(self, epoch: int, handle: JsonObject, progress: Progress) -> bool:
        if progress.epoch >= epoch:
            return True
        if handle["opened"] < progress.rewound:
            raise EndpointError(
                f"sink {self.name}: epoch {epoch} was taken back in {self._root.url}, by somebody who "
                "started later and went back to an earlier epoch"
            )
        return False

    def _check_gone(self, epoch: int, handle: JsonObject) -> None:
        """What is staged goes when somebody has committed it, which may be at this moment."""
        if not self._is_done(epoch, handle, self._tables.must_load().progress):
            raise EndpointError(
                f"sink {self.name}: epoch {epoch} was staged in {self._root.url} as {handle['staged']}, "
                "which is neither there nor committed: restore it from a backup"
            )

    def _columns(self, rows: DataFrame) -> Columns:
        columns = columns_of(rows)
        for name in (*self._place.partitions, *self._place.keys):
            if name not in columns:
                raise ConfigError(f"sink {self.name}: there is no column {name!r}: name one of the fields")
        return grown({}, columns, self._root.url)

    def _refuse(self, table: Table, columns: Columns, epoch: int) -> None:
        """Before anything is staged."""
        if self._owner is not None:
            refuse_other(self.name, self._root.url, self._owner_in(table), self._owner)
        grown(table.columns, columns, self._root.url)
        if table.partitions != list(self._place.partitions):
            raise ConfigError(
                f"sink {self.name}: {self._root.url} is laid out by {table.partitions}, and this sink is to "
                f"lay it out by {list(self._place.partitions)}: name the same columns, or another table"
            )
        last = table.progress.epoch
        if last >= epoch:
            raise EndpointError(
                f"sink {self.name}: {self._root.url} has the epochs of {self._place.writer!r} up to {last}, "
                f"and epoch {epoch} was never decided here: another pipeline has this name, or the state of "
                "this one was removed; choose another table"
            )

    def _prepared(self, handle: JsonObject) -> DeltaSink:
        """Where it was prepared, which need not be where rows go now."""
        if handle["table"] == self._root.url:
            return self
        return DeltaSink(self.name, self._place, self._spark, Root(handle["table"], self._root.options))

    def _data(self, name: str) -> str:
        return f"{self._folder}/rows/{name}" if self._place.is_view else f"{DATA}/{name}"

    def _remove(self, attempts: Sequence[Attempt], table: Table | None) -> None:
        """The data of attempts that were never decided; of those that were, only what is left to do.

        Who commits may die before he has said so, and then only the log knows, whatever came after it.
        """
        named: frozenset[str] = frozenset()
        if attempts and table is not None and not self._place.is_view:
            named = frozenset(file["path"] for file in data_files(table))
        for attempt in attempts:
            self._remove_data(attempt.name, named)
            self._staging.remove(attempt.name)

    def _remove_data(self, name: str, needed: frozenset[str] = frozenset()) -> None:
        what = "remove what was never decided"
        for path in self._store.list(self._data(name), what):
            if path not in needed:
                self._store.remove(path, what)
        if self._root.folder:
            with suppress(OSError):  # not empty: a task that was given up may still put a file there
                (self._root.folder / self._data(name)).rmdir()

    @contextmanager
    def _cleaning_up(self, what: str) -> Iterator[None]:
        with cleaning_up(f"remove {what} of sink {self.name}"), self._tables.speaking("be cleaned up"):
            yield

    def _sync(self, epoch: int) -> None:
        own = {"appId": self._tables.own, "version": epoch}
        self._tables.sync(lambda action: own.items() <= action.get("txn", {}).items())


def _root(place: Place) -> Root:
    storage = {key: value for key, value in place.options.items() if not key.startswith(_TABLE_PROPERTY)}
    return root_of(place, storage)


def _folder_name(own: str) -> str:
    """One that every store takes as it is."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', own)[:80]}-{hashlib.sha256(own.encode()).hexdigest()[:12]}"
