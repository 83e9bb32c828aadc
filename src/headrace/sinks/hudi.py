"""Rows in a Hudi table, an epoch at a time: its files are written under a pending instant, then completed.

table/.hoodie/timeline/20261116080000123.inflight                      prepared, and seen by nobody
table/.hoodie/timeline/20261116080000123_20261116080001456.commit      committed
table/.hoodie/headrace/WRITER%2FSINK/20261116080000123-12-2            whose it is: epoch 12, fence 2
table/.hoodie/headrace/owner/                                          whose the table is
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote as percent_decoded

import pyarrow as pa

from headrace.errors import ConfigError, EndpointError, SchemaError
from headrace.model.checkpoints import JsonObject, to_json
from headrace.model.ownership import Owner, Target
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.hudi_ownership import claim_table, read_owner
from headrace.sinks.hudi_reading import WENT_BACK, audit_timeline, read_rows, told_in
from headrace.sinks.hudi_tables import HudiTable, Written
from headrace.sinks.openings import check_fence, replaced, told
from headrace.sinks.ownership import refuse_other
from headrace.sinks.table_columns import fit, new_columns
from headrace.spark.errors import spark_failures
from headrace.spark.session import persisted
from headrace.spark.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW = "_headrace_row"
"""The column that is the key of rows that are appended: Hudi wants one."""
_META = "_hoodie_"


class HudiSink(RowSink):
    """Appends to a table, or keeps one row for each key in it; the table is made if it is not there.

    Nobody else may write to the table with Hudi's default settings: they roll back what is pending.
    """

    needs: ClassVar[tuple[str, ...]] = ("hudi",)
    can_tell: ClassVar[bool] = True

    def __init__(self, name: str, place: Place, spark: SparkSession) -> None:
        self.name = name
        self._place, self._spark = place, spark
        self._keys = place.keys or (ROW,)
        if place.keys and place.owned:
            self._keys = (*place.keys, place.owned)
        self._table = HudiTable(spark, url_of(place), self._keys, place.partitions, options_of(place))
        self._own = f"{percent_encoded(place.writer, safe='')}/{percent_encoded(name, safe='')}"
        self._fence = 0
        self._claimed: Owner | None = None  # of a table that was not there to be claimed

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        return cls(name, place, spark)

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        return read_rows(url_of(place), place, columns, epoch)

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        yield from super().audit(place, decided, last)
        yield from audit_timeline(url_of(place), place, decided, last)

    def inspect(self) -> Target:
        with self._speaking("tell whose it is"):
            if not self._table.exists():
                return Target(False)
            owner = None if self._place.owned else read_owner(self._table)
            return Target(True, self._has_rows(), owner)

    def refuse_start(self, owner: Owner, *, adopts: bool = False) -> None:  # noqa: ARG002
        with self._speaking("tell its key"):
            if self._table.exists():
                self._refuse_keys()  # which nobody's word changes

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        if self._place.owned:
            return
        with self._speaking("tell whose it is"):
            if not self._table.exists():
                self._claimed = owner
                return
            refuse_other(self.name, self._table.path, read_owner(self._table), owner, adopts=adopts)
            self._refuse_keys()
            claim_table(self.name, self._table, owner, adopts=adopts)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._fence = told(fence)
        kept = handle["instant"] if handle else None
        with self._speaking("remove what was never decided"):
            if not self._table.exists():
                return
            check_fence(self.name, self._last_fence(), decided, fence)
            self._note_fence(is_first=decided is None)
            pending, _ = self._table.instants()
            for note in self._table.notes(self._owner):
                instant, _, of = note.split("-")
                # Those of a later fence belong to somebody who took over from us while we slept.
                if int(of) >= fence or instant == kept:
                    continue
                with self._cleaning_up(f"instant {instant}, which was never decided,"):
                    if instant in pending:
                        self._table.roll_back(instant)
                    self._table.remove_note(self._owner, note)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        if self._place.is_view:
            epoch.wait_for_previous()
        with self._speaking(f"stage epoch {epoch.number}"):
            self._refuse_known(epoch.number)
            rows = self._fit(rows)
            # How often Hudi asks for them is up to its index and its settings.
            with persisted(rows) as count:
                return self._stage(epoch, rows) if count else {}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if not handle:
            return
        table = self._table_of(handle)
        with self._speaking(f"publish epoch {epoch}"):
            if not table.exists():
                raise EndpointError(
                    f"sink {self.name}: epoch {epoch} was staged in {handle['path']}, which does not exist "
                    "any more: restore the table as it was"
                )
            pending, completed = table.instants()
            if handle["instant"] in pending:
                fields = {name: handle[name] for name in Written.__dataclass_fields__}
                table.complete(Written(**fields), self._metadata(handle["told"]))
            elif handle["instant"] not in completed and self._last(table)[0] < epoch:
                raise EndpointError(
                    f"sink {self.name}: epoch {epoch} was written to {handle['path']} as instant "
                    f"{handle['instant']}, which was rolled back before it was completed: others who write "
                    "to this table must not clean up failed writes (hoodie.clean.failed.writes.policy); "
                    "restore the table's folder from before that"
                )
            with self._cleaning_up("the note of an instant that is completed"):
                table.remove_note(self._owner, handle["note"])

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if not handle:
            return
        table = self._table_of(handle)
        with self._speaking(f"abort epoch {epoch}"):
            if handle["instant"] in table.instants()[0]:
                table.roll_back(handle["instant"])
            table.remove_note(self._owner, handle["note"])

    def rewind(self, epoch: int) -> None:
        with self._speaking(f"go back to epoch {epoch}"):
            if not self._table.exists() or self._last(self._table)[0] <= epoch:
                return
            self._refuse_going_back(epoch)
            kept = {"epoch": epoch, "checkpoint": self._checkpoint_of(epoch), "rewound": True}
            later = f"{quote(self._place.epoch)} > {epoch} AND {self._own_rows}"
            options = {
                **self._table.options(),
                "hoodie.datasource.write.operation": "delete",
                "hoodie.datasource.write.commitmeta.key.prefix": "headrace",
                WENT_BACK: to_json({"name": self._told_as, **kept}),
            }
            rows = self._spark.read.format("hudi").load(self._table.path).where(later)
            with persisted(rows):
                # Rows are deleted by keys that nobody uses again. Whoever starts after this look writes
                # others, so the most that one who is replaced from here on does is to say where he went.
                if self._last_fence() > self._fence:
                    raise replaced(self.name)
                rows.write.format("hudi").options(**options).mode("append").save(self._table.path)

    def refuse_rewind(self, epoch: int) -> None:
        with self._speaking(f"go back to epoch {epoch}"):
            if self._table.exists() and self._last(self._table)[0] > epoch:
                self._refuse_going_back(epoch)

    def current(self) -> DataFrame | None:
        with self._speaking("be read"):
            if not self._table.exists() or not self._table.instants()[1]:
                return None
            rows = self._rows()
            return rows.where(self._own_rows) if self._place.owned else rows

    def committed(self) -> JsonObject | None:
        with self._speaking("tell what it has"):
            if not self._table.exists():
                return None
            checkpoint: JsonObject | None = self._last(self._table)[1]
            return checkpoint

    def undone(self, epoch: int, handle: JsonObject) -> str:
        with self._speaking("tell what it has"):
            if not self._table.exists():
                return "is not there any more"
            if self._table.has_commit(handle["instant"]):
                return ""
            return f"was restored to before epoch {epoch}: instant {handle['instant']} was rolled back"

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        with self._speaking("be maintained"):
            if not self._table.exists():
                return
            before = (datetime.now(UTC) - age).strftime("%Y%m%d%H%M%S%f")[:17]
            needed = {kept["instant"]} if kept else set()
            # What has a note belongs to a writer of ours, whose next start knows what is to become of it. It
            # is asked first: what is completed meanwhile loses its note, and must not look pending.
            needed |= self._table.noted()
            for instant in self._table.instants()[0]:
                if instant < before and instant not in needed:
                    self._table.roll_back(instant)
                    yield f"instant {instant}, which nobody completed, was rolled back"
            self._table.clean(max(1, int(age.total_seconds() // 3600)))
            yield "what was replaced was cleaned, and old instants were archived"

    def _stage(self, epoch: Epoch, rows: DataFrame) -> JsonObject:
        if not self._table.exists():
            self._table.make()
        if self._claimed is not None:
            claim_table(self.name, self._table, self._claimed, adopts=False)
            self._claimed = None
        instant = self._table.new_instant()
        note = f"{instant}-{epoch.number}-{epoch.fence}"
        self._table.note(self._owner, note)
        written = self._write(rows, instant, epoch)
        said = {"epoch": epoch.number, "checkpoint": epoch.runtime_checkpoint}
        return {"path": self._table.path, "note": note, "told": said, **asdict(written)}

    def _write(self, rows: DataFrame, instant: str, epoch: Epoch) -> Written:
        if self._place.is_view:
            return self._table.write(rows, instant, "UPSERT")
        from pyspark.sql import functions as F

        unique = F.concat(F.lit(f"{epoch.number}-{instant}-"), F.monotonically_increasing_id())
        return self._table.write(rows.withColumn(ROW, unique), instant, "BULK_INSERT")

    def _fit(self, rows: DataFrame) -> DataFrame:
        """A new column comes with the commit: the schema is part of it."""
        where = f"sink {self.name}: {self._table.path}"
        if ROW in rows.columns or any(column.startswith(_META) for column in rows.columns):
            raise SchemaError(
                f"{where}: the rows have a column that begins with {_META} or is {ROW}: rename it"
            )
        if not self._table.exists() or not self._table.instants()[1]:
            new_columns(where, rows.schema, rows.schema, self._place.keys)
            return rows
        self._refuse_keys()
        known = self._rows().schema
        added = new_columns(where, rows.schema, known, self._place.keys)
        for field in added:
            known = known.add(field.name, field.dataType, True)
        return fit(rows, known)

    def _refuse_keys(self) -> None:
        if self._table.instants()[1] and (before := self._table.known_keys()) != self._keys:
            raise SchemaError(
                f"sink {self.name}: {self._table.path} has rows by the key {', '.join(before)}, and the key "
                f"is now {', '.join(self._keys)}: choose another table"
            )

    def _has_rows(self) -> bool:
        """Whether anything was committed, unless all of it was taken back last."""
        for _, metadata in self._table.commits():
            went_back = [said["epoch"] for _, said in told_in(metadata) if said.get("rewound")]
            return bool(self._place.owned) or -1 not in went_back
        return False

    def _rows(self) -> DataFrame:
        rows = self._spark.read.format("hudi").load(self._table.path)
        return rows.select(
            *(quote(name) for name in rows.columns if not name.startswith(_META) and name != ROW)
        )

    def _refuse_going_back(self, epoch: int) -> None:
        if self._place.is_view or not self._place.epoch:
            raise ConfigError(
                f"sink {self.name}: {self._table.path} cannot go back to epoch {epoch}, since Hudi does not "
                "keep what a row was before: restore the endpoint as it was, or start under another name "
                "with another table"
            )
        if self._place.owned:
            return
        told = [told for _, metadata in self._table.commits() for told in told_in(metadata)]
        writers = {percent_decoded(name.split("/")[1]) for name, said in told if said["epoch"] > epoch}
        if others := sorted(writers - {self._place.writer}):
            raise ConfigError(
                f"sink {self.name}: {self._table.path} cannot go back to epoch {epoch}, since it has later "
                f"epochs of {', '.join(others)} from before it was taken over, which would be lost: restore "
                "the endpoint as it was, or start under another name with another table"
            )

    def _refuse_known(self, epoch: int) -> None:
        if not self._table.exists():
            return
        last = self._last(self._table)[0]
        if last >= epoch:
            raise EndpointError(
                f"sink {self.name}: {self._table.path} has the epochs of {self._place.writer!r} up to "
                f"{last}, and epoch {epoch} was never decided here: another pipeline has this name, or the "
                "state of this one was removed; choose another table"
            )

    def _last(self, table: HudiTable) -> tuple[int, Any]:
        """The last epoch that was committed, or that was gone back to, and its checkpoint."""
        for said in self._said(table):
            return int(said["epoch"]), said["checkpoint"]
        return -1, None

    def _checkpoint_of(self, epoch: int) -> Any:
        return next((said["checkpoint"] for said in self._said(self._table) if said["epoch"] <= epoch), None)

    def _said(self, table: HudiTable) -> Iterator[dict[str, Any]]:
        """With each of our commits, the last one first."""
        for _, metadata in table.commits():
            yield from (said for name, said in told_in(metadata) if name == self._told_as)

    def _metadata(self, said: JsonObject) -> dict[str, str]:
        return {self._told_as: to_json(said)}

    @property
    def _told_as(self) -> str:
        return f"headrace/{self._own}"

    @property
    def _owner(self) -> str:
        return percent_encoded(self._own, safe="")

    @property
    def _fences(self) -> str:
        """Where each start is noted, so that one who was replaced finds that out."""
        return f"{self._owner}-fences"

    def _note_fence(self, *, is_first: bool) -> None:
        self._table.note(self._fences, f"{self._fence:020}")
        for note in self._table.notes(self._fences):
            if int(note) < self._fence:
                with self._cleaning_up("the fence of a start before"):
                    self._table.remove_note(self._fences, note)
            # If the recovery log was lost, fences start over, and a fence that remained would fence us off.
            elif is_first and int(note) != self._fence:
                self._table.remove_note(self._fences, note)

    def _last_fence(self) -> int:
        return max((int(note) for note in self._table.notes(self._fences)), default=0)

    @property
    def _own_rows(self) -> str:
        place = self._place
        return f"{quote(place.owned)} = {text(place.writer)}" if place.owned else "true"

    def _table_of(self, handle: JsonObject) -> HudiTable:
        if handle["path"] == self._table.path:
            return self._table
        return HudiTable(self._spark, handle["path"], self._keys, self._place.partitions, {})

    @contextmanager
    def _cleaning_up(self, what: str) -> Iterator[None]:
        with cleaning_up(f"remove {what} of sink {self.name}"), spark_failures(self._table.path):
            yield

    def _speaking(self, what: str) -> AbstractContextManager[None]:
        return spark_failures(f"sink {self.name}: cannot {what} in {self._table.path}")


def url_of(place: Place) -> str:
    """A folder of this machine has a URL as well."""
    return place.location if "://" in place.location else Path(place.location).absolute().as_uri()


def options_of(place: Place) -> dict[str, str]:
    for option in place.options:
        if not option.startswith("hoodie."):
            raise ConfigError(
                f"Hudi table {place.location!r} has the option {option!r}: options are those of Hudi's "
                "writer (hoodie.*); storage is configured with Spark (spark.hadoop.*)"
            )
    return dict(place.options)
