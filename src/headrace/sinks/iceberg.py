"""Rows in an Iceberg table, an epoch at a time: staged as a snapshot that main does not have, then published.

Rows that are appended are staged under a WAP id, on no branch. Those of a view are merged into a branch that
is made for the epoch. Publishing moves main to the staged snapshot, and puts the epoch's number and its
runtime checkpoint among the table's properties, in one commit. So the table alone tells what it has, also
when the snapshots that brought it have expired.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from headrace.errors import (
    ConfigError,
    EndpointError,
    EndpointUnavailable,
    Fenced,
    HeadraceError,
    SchemaError,
)
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.sinks import iceberg_audit, iceberg_views
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.iceberg_history import find_rollback, is_published, make_handle, prepared_as
from headrace.sinks.iceberg_maintenance import maintain_table
from headrace.sinks.iceberg_names import Names
from headrace.sinks.iceberg_ownership import claim_table
from headrace.sinks.iceberg_places import catalog_of, owner_of, read_rows, table_of, table_options
from headrace.sinks.iceberg_rewind import Rewinding, release
from headrace.sinks.iceberg_tables import (
    CHECKPOINT,
    EPOCH,
    ID,
    PUBLISHED_WAP_ID,
    SINK,
    TRIES,
    WRITER,
    JavaTable,
    State,
    fence_of,
    is_there,
    staged_id_of,
)
from headrace.sinks.openings import check_fence, told
from headrace.sinks.ownership import MARK, read_mark, refuse_other, refuse_rows_of_others
from headrace.sinks.table_columns import column_list, fit, new_columns
from headrace.spark.errors import spark_failures
from headrace.spark.session import persisted, setting
from headrace.spark.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAP_CONF = "spark.wap.id"
# Or rows that are appended would be seen at once.
_OF_APPENDS = {"write.wap.enabled": "true"}
# So that the files which a merge adds hold the new rows and no others: what is done again is done from them.
_OF_VIEWS = {f"write.{command}.mode": "merge-on-read" for command in ("merge", "update", "delete")}


class IcebergSink(RowSink):
    """Appends to a table, or merges into it by key; the table is made if it is not there.

    `writer` tells those apart who write to one table: a materialization's name. What was staged and never
    published is removed by `abort` and `start`, with its files. Until then nobody may expire snapshots that
    are younger than the longest time that the pipeline may be down in the middle of a commit.
    """

    can_tell: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        catalog: str,
        table: Sequence[str],
        *,
        writer: str,
        schema: str = "",
        owned: str = "",
        epoch: str = "epoch",
        keys: Sequence[str] = (),
        partitions: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """As in `Place`; `properties` are what a new table gets."""
        self.name = name
        self._spark, self._writer, self._owned, self._epoch = spark, writer, owned, epoch
        self._table = ".".join(quote(part) for part in (catalog, *table))
        self._namespace = ".".join(quote(part) for part in (catalog, *table[:-1]))
        self._schema, self._keys, self._partitions = schema, tuple(keys), tuple(partitions)
        self._needed = _OF_VIEWS if keys else _OF_APPENDS
        self._properties = {"format-version": "2", **(properties or {}), **self._needed}
        self._names = Names(writer, name)
        self._fence = 0
        self._owner: Owner | None = None  # None: not claimed, or shared

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        catalog = catalog_of(place)
        return cls(
            name,
            spark,
            catalog.name,
            table_of(place.location, catalog),
            writer=place.writer,
            schema=place.schema,
            owned=place.owned,
            epoch=place.epoch,
            keys=place.keys,
            partitions=place.partitions,
            properties={**catalog.table_properties, **table_options(place)},
        )

    @classmethod
    def look(cls, name: str, place: Place) -> Owner | None:
        return owner_of(name, place)

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        return read_rows(place, columns, epoch)

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        yield from super().audit(place, decided, last)
        yield from iceberg_audit.audit(place, decided, last)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._fence = told(fence)
        with self._speaking("remove what was never decided"):
            if not self._exists():
                return
            table = self._load()
            state, kept = self._take_over(table, decided), prepared_as(handle) if handle else None

            def is_left(staged_id: str) -> bool:
                # Those of a later fence belong to somebody who took over from us while we slept.
                return self._names.is_older(staged_id, fence) and staged_id != kept

            staged = {*state.references(), *(staged_id_of(one) for one in state.snapshots())}
            with self._cleaning_up("what was never decided"):
                table.remove_staged(state, [staged_id for staged_id in staged if is_left(staged_id)])

    def inspect(self) -> Target:
        with self._speaking("look whose table it is"):
            table = self._find()
            if table is None:
                return Target(exists=False)
            state = table.state()
            return Target(True, table.has_rows(state), self._owner_in(state))

    def refuse_start(self, owner: Owner, *, adopts: bool = False) -> None:  # noqa: ARG002
        with self._speaking("look by what key it has rows"):
            if not adopts and (table := self._find()) is not None:
                self._refuse_key(table.state())

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        if self._owned:
            return
        self._owner = owner
        with self._speaking("say whose table it is"):
            table = self._find()
            if table is not None:
                self._mark(table, owner, adopts=adopts)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        if self._keys:
            epoch.wait_for_previous()
        with self._speaking(f"stage epoch {epoch.number}"):
            self._make_table(rows)
            table = self._load()
            state = table.state()
            self._refuse(state, epoch)
            if self._owner is not None and self._owner_in(state) is None:
                self._mark(table, self._owner)  # somebody else has made it since it was claimed
            rows = self._fit(rows)
            staged_id = self._names.new_id(epoch.number, epoch.fence)
            summary = self._names.summary(staged_id, epoch.number, epoch.runtime_checkpoint)
            if not self._keys:
                self._append(rows, staged_id, summary)
                return self._handle(table, staged_id)
            # Spark may ask for them a second time, to find out which files it can leave alone.
            with persisted(rows) as count:
                if not count:
                    return {}
                iceberg_views.merge(table, rows, self._matching, staged_id, summary)
            return self._handle(table, staged_id)

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if not handle:
            return
        with self._speaking(f"publish epoch {epoch}"), self._unless_gone(epoch, handle["table"]):
            table = JavaTable(self._spark, handle["table"])
            staged_ids, candidate = [prepared_as(handle)], handle["snapshot_id"]
            for _ in range(TRIES):
                state = table.state()
                staged = state.snapshot(handle["snapshot_id"])
                if self._is_settled(state, epoch, handle):
                    self._tidy(table, state, handle, staged_ids[1:])
                    with self._cleaning_up("what was taken back and has come again"):
                        release(table, state, self._names)
                    return
                if is_published(state, staged, handle):
                    checkpoint = None if staged is None else staged.summary().get(CHECKPOINT)
                    table.swap(state, None, self._told(epoch, checkpoint))
                    continue
                if staged is None:
                    raise self._expired(epoch, handle)
                snapshot = state.snapshot(candidate)
                if snapshot is None or snapshot.parentId() != state.main:
                    staged_ids.append(self._names.new_id(epoch, fence_of(staged_ids[0])))
                    with self._unless_settled(table, epoch, handle):
                        candidate = self._do_again(table, staged, handle, staged_ids[-1])
                    continue
                branches = [name for name in staged_ids if state.branch(name) is not None]
                properties = self._told(epoch, staged.summary().get(CHECKPOINT))
                table.swap(state, candidate, properties, dropped=branches)
            raise EndpointUnavailable(
                f"sink {self.name}: {handle['table']} changes too often to be published to"
            )

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            with self._speaking(f"abort epoch {epoch}"):
                table = JavaTable(self._spark, handle["table"])
                table.remove_staged(table.state(), [prepared_as(handle)])

    def rewind(self, epoch: int) -> None:
        """Appended rows are found by the column that tells their epoch, and deleted. A view goes back to the
        snapshot of that epoch, which must not have expired."""
        with self._speaking(f"go back to epoch {epoch}"):
            if (rewinding := self._rewinding()) is None:
                return
            if self._keys:
                rewinding.roll_back(epoch)
            else:
                rewinding.delete_after(epoch, self._epoch_column(epoch))

    def refuse_rewind(self, epoch: int) -> None:
        with self._speaking(f"go back to epoch {epoch}"):
            if (rewinding := self._rewinding()) is None:
                return
            if self._keys:
                rewinding.refuse(epoch)
            else:
                rewinding.refuse_deletion(epoch)
                self._epoch_column(epoch)

    def current(self) -> DataFrame | None:
        with self._speaking("be read"):
            if not self._exists():
                return None
            self._spark.catalog.refreshTable(self._table)
            state = self._load().state()
            if state.main is None or state.snapshot(state.main).summary().get("total-records") == "0":
                return None
            rows = self._spark.table(self._table)
            return rows.where(self._own_rows) if self._owned else rows

    def committed(self) -> JsonObject | None:
        with self._speaking("tell what it has"):
            table = self._find()
            told = None if table is None else table.state().told(self._names.checkpoint)
            return None if told is None else json.loads(told)

    def undone(self, epoch: int, handle: JsonObject) -> str:
        with self._speaking("tell what it has"):
            table = self._find()
            if table is None:
                return "is not there any more"
            is_same = handle["table"] == self._table  # of another one snapshots tell nothing
            return find_rollback(table.state(), self._names, epoch, handle) if is_same else ""

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        with self._speaking("be maintained"):
            if self._exists():
                yield from maintain_table(self._spark, self._load(), age, kept, has_deletes=bool(self._keys))

    def _rewinding(self) -> Rewinding | None:
        """None if there is no table; refuses one that has the rows of another materialization."""
        if (table := self._find()) is None:
            return None
        refuse_rows_of_others(self.name, self._table, self._owner_in(table.state()), self._writer)
        return Rewinding(self._spark, table, self._names, self._fence, self._own_rows)

    def _take_over(self, table: JavaTable, decided: int | None) -> State:
        """Says in the table who started last."""
        while True:
            state = table.state()
            check_fence(self.name, self._names.last_fence(state), decided, self._fence or sys.maxsize)
            # Also a zero, of who begins anew: the fences before it would keep him from going back.
            if self._names.last_fence(state) == self._fence:
                return state
            table.swap(state, None, {self._names.fence: str(self._fence)})

    def _owner_in(self, state: State) -> Owner | None:
        return None if self._owned else read_mark(self.name, self._table, state.told(MARK))

    def _mark(self, table: JavaTable, owner: Owner, *, adopts: bool = False) -> None:
        def owner_in(state: State) -> Owner | None:
            if (found := self._owner_in(state)) == owner:
                return found
            refuse_other(self.name, self._table, found, owner, adopts=adopts)
            if not adopts:
                self._refuse_key(state)
            if self._names.last_fence(state) > self._fence:
                raise Fenced(f"sink {self.name}: another coordinator has started since, and claims the table")
            return found

        def properties(state: State) -> dict[str, str]:
            is_kept = not adopts or state.told(self._names.keys) is None
            return {} if is_kept else {self._names.keys: json.dumps(self._keys)}

        claim_table(table, owner, owner_in, properties)

    def _append(self, rows: DataFrame, wap_id: str, summary: Mapping[str, str]) -> None:
        writer = rows.writeTo(self._table)
        for key, value in summary.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        with setting(rows.sparkSession, _WAP_CONF, wap_id):
            writer.append()

    def _handle(self, table: JavaTable, staged_id: str) -> JsonObject:
        snapshot = table.state().staged_as(staged_id)
        if snapshot is None:
            raise EndpointUnavailable(f"sink {self.name}: Spark wrote to {self._table} and staged nothing")
        handle = make_handle(self._table, snapshot, staged_id, is_view=bool(self._keys))
        if handle["rows"]:
            return handle
        with self._cleaning_up("an epoch without rows"):
            table.remove_staged(table.state(), [staged_id])
        return {}

    def _is_settled(self, state: State, epoch: int, handle: JsonObject) -> bool:
        """Whether nothing is left to publish: it is there, or was, and somebody has gone back from it."""
        if self._names.last_epoch(state) >= epoch:
            return True
        return fence_of(prepared_as(handle)) < int(state.told(self._names.rewound) or 0)

    def _do_again(self, table: JavaTable, staged: Any, handle: JsonObject, staged_id: str) -> int:
        """Stages on top of what main has become meanwhile: by a compaction, or by rows of others."""
        summary = {key: staged.summary().get(key) for key in (EPOCH, WRITER, SINK, CHECKPOINT)}
        summary[ID] = staged_id
        if "branch" in handle:
            rows = iceberg_views.added_rows(self._spark, table, staged)
            return iceberg_views.merge(table, rows, self._matching, staged_id, summary)
        update = table.java.newAppend()
        for file in table.added_files(staged):
            update.appendFile(file)
        return table.stage(update, {**summary, PUBLISHED_WAP_ID: handle["wap_id"]})

    def _tidy(self, table: JavaTable, state: State, handle: JsonObject, again: Sequence[str]) -> None:
        """What a published append was staged as stays until the next start; it has the table's own files."""
        branch = handle.get("branch")
        if again or (branch is not None and state.branch(branch) is not None):
            with self._cleaning_up("what was staged for an epoch that is published"):
                table.remove_staged(state, [*again, branch] if branch else again)

    def _told(self, epoch: int, checkpoint: str | None) -> dict[str, str]:
        told = {self._names.epoch: str(epoch), self._names.keys: json.dumps(self._keys)}
        return told if checkpoint is None else {**told, self._names.checkpoint: checkpoint}

    @contextmanager
    def _unless_settled(self, table: JavaTable, epoch: int, handle: JsonObject) -> Iterator[None]:
        """Ignores an error if the epoch is settled: its staged files may be removed while we read them."""
        try:
            yield
        except Exception:
            if not self._is_settled(table.state(), epoch, handle):
                raise

    @contextmanager
    def _unless_gone(self, epoch: int, name: str) -> Iterator[None]:
        """Of all that can fail, that the table is gone will not change by itself."""
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:
            if is_there(self._spark, name):
                raise
            raise EndpointError(
                f"sink {self.name}: epoch {epoch} was staged in {name}, which does not exist any more: "
                "restore the table as it was"
            ) from error

    def _expired(self, epoch: int, handle: JsonObject) -> EndpointError:
        return EndpointError(
            f"sink {self.name}: epoch {epoch} was staged as snapshot {handle['snapshot_id']} of "
            f"{handle['table']}, which was expired before it was published: restore the table's "
            "metadata from before that, and expire only snapshots that are older than any outage"
        )

    def _refuse(self, state: State, epoch: Epoch) -> None:
        if self._owner is not None:
            refuse_other(self.name, self._table, self._owner_in(state), self._owner)
        last = self._names.last_epoch(state)
        if last >= epoch.number:
            raise EndpointError(
                f"sink {self.name}: {self._table} has the epochs of {self._writer!r} up to {last}, and epoch "
                f"{epoch.number} was never decided here: another pipeline has this name, or the state of "
                "this one was removed; choose another table"
            )
        if epoch.fence < int(state.told(self._names.rewound) or 0):
            raise EndpointError(
                f"sink {self.name}: somebody who started later has gone back to an earlier epoch in "
                f"{self._table}: end this one; or, if the state of this pipeline was lost and made anew, "
                f"remove the table's property {self._names.rewound}"
            )
        self._refuse_key(state)

    def _refuse_key(self, state: State) -> None:
        before = state.told(self._names.keys)
        if before is not None and tuple(json.loads(before)) != self._keys:
            raise SchemaError(
                f"sink {self.name}: {self._table} has rows by the key {before}, and the key is now "
                f"{json.dumps(self._keys)}: choose another table"
            )

    def _fit(self, rows: DataFrame) -> DataFrame:
        """A new column is there for readers from here on, and null until the epoch is published."""
        where = f"sink {self.name}: {self._table}"
        fields = self._spark.table(self._table).schema
        added = new_columns(where, rows.schema, fields, self._matching)
        if added:
            columns = column_list(added, nullable=True)
            self._spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({columns})")
            fields = self._spark.table(self._table).schema
        return fit(rows, fields)

    @property
    def _matching(self) -> tuple[str, ...]:
        """The columns in which a row is equal to the one that it replaces."""
        return (*self._keys, self._owned) if self._keys and self._owned else self._keys

    @property
    def _own_rows(self) -> str:
        return f"{quote(self._owned)} = {text(self._writer)}" if self._owned else "true"

    def _epoch_column(self, epoch: int) -> str:
        columns = {field.name for field in self._spark.table(self._table).schema}
        if self._epoch not in columns or (self._owned and self._owned not in columns):
            raise ConfigError(
                f"sink {self.name}: {self._table} has no column that tells a row's epoch, so it cannot "
                f"go back to epoch {epoch}: delete the later rows, and set its property "
                f"{self._names.epoch} to {epoch}"
            )
        return quote(self._epoch)

    def _make_table(self, rows: DataFrame) -> None:
        if self._exists():
            return
        columns = self._schema or column_list(rows.schema.fields)
        said = self._properties if self._owner is None else {**self._properties, MARK: self._owner.encode()}
        properties = ", ".join(f"{text(key)} = {text(value)}" for key, value in said.items())
        parts = ", ".join(quote(column) for column in self._partitions)
        layout = f"PARTITIONED BY ({parts}) " if parts else ""
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace}")
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) USING iceberg {layout}"
            f"TBLPROPERTIES ({properties})"
        )

    def _exists(self) -> bool:
        return self._spark.catalog.tableExists(self._table)

    def _find(self) -> JavaTable | None:
        """The table as the catalog has it, unchanged; None if there is none."""
        return JavaTable(self._spark, self._table) if is_there(self._spark, self._table) else None

    def _load(self) -> JavaTable:
        """Our table, with the properties that two phases rest on."""
        table = JavaTable(self._spark, self._table)
        state = table.state()
        missing = {name: value for name, value in self._needed.items() if state.told(name) != value}
        if missing:
            table.set_properties(missing)
        return table

    @contextmanager
    def _cleaning_up(self, what: str) -> Iterator[None]:
        with cleaning_up(f"remove {what} of sink {self.name}"), spark_failures(self._table):
            yield

    def _speaking(self, what: str) -> AbstractContextManager[None]:
        return spark_failures(f"sink {self.name}: cannot {what} in {self._table}")
