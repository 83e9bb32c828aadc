"""Rows in an Iceberg table, an epoch at a time: staged as a snapshot that is on no branch, then published.

Publishing also puts the epoch's number among the table's properties, in the same commit. So the table alone
tells what it has, also when the snapshots that brought it have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, UnexpectedFailure
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Epoch, Place, RowSink
from headrace.sinks.spark_calls import setting, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAP_ENABLED = "write.wap.enabled"
_WAP_CONF = "spark.wap.id"
# The second, if somebody publishes it between our look at the table and our commit.
_DUPLICATES = (
    "org.apache.iceberg.exceptions.DuplicateWAPCommitException",
    "org.apache.iceberg.exceptions.CherrypickAncestorCommitException",
)


class IcebergSink(RowSink):
    """Appends each epoch's rows to a table, which is made if it is not there.

    `writer` tells those apart who write to one table: a materialization's name. What was staged and never
    published is removed by `abort` and `start`, with its files. Until then nobody may expire snapshots that
    are younger than the longest time that the pipeline may be down in the middle of a commit.
    """

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
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`schema`, in Spark's DDL, is what a new table gets; that of the first rows if empty.

        `owned` is the column that holds the writer's name, where several write to one table.
        """
        self.name = name
        self._spark, self._writer, self._owned = spark, writer, owned
        self._table = ".".join(_quoted(part) for part in (catalog, *table))
        self._namespace = ".".join(_quoted(part) for part in (catalog, *table[:-1]))
        self._schema = schema
        self._properties = {"format-version": "2", **(properties or {}), _WAP_ENABLED: "true"}
        # Quoted, so that no name begins as another one does.
        own = f"{quote(writer, safe='')}/{quote(name, safe='')}"
        self._epoch_property = f"headrace.epoch/{own}"
        self._wap_prefix = f"headrace/{own}/"

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        catalog = _catalog_of(place)
        return cls(
            name,
            spark,
            catalog.name,
            _table_of(place.location, catalog),
            writer=place.writer,
            schema=place.schema,
            owned=place.owned,
            properties=dict(catalog.table_properties),
        )

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        catalog = _catalog_of(place)
        equal: Any = EqualTo  # its types are not those of its documentation
        wanted: BooleanExpression = equal(place.owned, place.writer) if place.owned else AlwaysTrue()
        if epoch is not None:
            wanted = And(wanted, equal("epoch", epoch))
        try:
            loaded = load_catalog(catalog.name, **catalog.properties)
            table = loaded.load_table(_table_of(place.location, catalog))
        except NoSuchTableError:
            return
        except Exception as error:
            raise EndpointUnavailable(
                f"the catalog {catalog.name!r} cannot be read: {str(error).splitlines()[0]}"
            ) from error
        for batch in table.scan(row_filter=wanted, selected_fields=tuple(columns)).to_arrow_batch_reader():
            yield batch.select(columns)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        with self._speaking("remove what was never decided"):
            if not self._exists():
                return
            table = self._load()
            kept = handle["wap_id"] if handle else None
            current = set(self._ancestors(table))
            left = []
            for snapshot in reversed(table.snapshots()):
                wap_id = snapshot.summary().get("wap.id") or ""
                # Those of a later fence belong to somebody who took over from us while we slept.
                if wap_id.startswith(self._wap_prefix) and wap_id != kept and _fence_of(wap_id) < fence:
                    left.append(snapshot.snapshotId())
            self._expire(table, [snapshot for snapshot in left if snapshot not in current])

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        with self._speaking(f"stage epoch {epoch.number}"):
            self._make_table(rows)
            table = self._load()
            self._refuse_known(table, epoch.number)
            wap_id = f"{self._wap_prefix}{epoch.number}/{epoch.fence}/{uuid4().hex}"
            writer = rows.writeTo(self._table)
            writer = writer.option("snapshot-property.headrace.epoch", str(epoch.number))
            writer = writer.option("snapshot-property.headrace.writer", self._writer)
            with setting(rows.sparkSession, _WAP_CONF, wap_id):
                writer.append()
            table.refresh()
            snapshot = self._staged(table, wap_id)
            count = int(snapshot.summary().get("added-records") or 0)
            handle = {
                "table": self._table,
                "wap_id": wap_id,
                "snapshot_id": snapshot.snapshotId(),
                "rows": count,
            }
            if not count:
                self._expire(table, [handle["snapshot_id"]])
                return {}
            return handle

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if not handle:
            return
        with self._speaking(f"publish epoch {epoch}"):
            table = self._load(handle["table"])
            if self._last_epoch(table) >= epoch:
                return
            if table.snapshot(handle["snapshot_id"]) is None:
                raise EndpointError(
                    f"sink {self.name}: epoch {epoch} was staged as snapshot {handle['snapshot_id']} of "
                    f"{handle['table']}, which was expired before it was published: restore the table's "
                    "metadata from before that, and expire only snapshots that are older than any outage"
                )
            if self._publish(table, epoch, handle["snapshot_id"]):
                return
            # It is in the table: through somebody who did the same at this moment, or who did it by hand, or
            # who has taken over from us and gone back to an earlier epoch. So the property is left alone,
            # which is for him to set; the next epoch to be published sets it too.
            table.refresh()
            if self._last_epoch(table) < epoch:
                self._refuse_unpublished(table, epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            with self._speaking(f"abort epoch {epoch}"):
                table = self._load(handle["table"])
                is_there = table.snapshot(handle["snapshot_id"]) is not None
                self._expire(table, [handle["snapshot_id"]] if is_there else [])

    def rewind(self, epoch: int) -> None:
        """Rows are found by a column `epoch`, which the table has to have.

        What staged them stays in the table's history, so that nobody can publish it once more.
        """
        with self._speaking(f"go back to epoch {epoch}"):
            if not self._exists():
                return
            columns = {field.name for field in self._spark.table(self._table).schema}
            if "epoch" not in columns or (self._owned and self._owned not in columns):
                raise ConfigError(
                    f"sink {self.name}: {self._table} has no column that tells a row's epoch, so it cannot "
                    f"go back to epoch {epoch}: delete the later rows, and set its property "
                    f"{self._epoch_property} to {epoch}"
                )
            own = f" AND {_quoted(self._owned)} = {_text(self._writer)}" if self._owned else ""
            self._spark.sql(f"DELETE FROM {self._table} WHERE epoch > {epoch}{own}")  # noqa: S608 - quoted
            table = self._load()
            if self._last_epoch(table) > epoch:  # last: whoever dies before this comes back here
                table.updateProperties().set(self._epoch_property, str(epoch)).commit()

    def _publish(self, table: Any, epoch: int, snapshot_id: int) -> bool:
        """False if it was published already."""
        from py4j.protocol import Py4JJavaError

        transaction = table.newTransaction()
        try:
            transaction.manageSnapshots().cherrypick(snapshot_id).commit()
            transaction.updateProperties().set(self._epoch_property, str(epoch)).commit()
            transaction.commitTransaction()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() not in _DUPLICATES:
                raise
            return False
        return True

    def _refuse_unpublished(self, table: Any, epoch: int, handle: JsonObject) -> None:
        """We go by what is in the table, not by what an exception says."""
        for snapshot_id in self._ancestors(table):
            snapshot = table.snapshot(snapshot_id)
            known = snapshot is not None and snapshot.summary().get("published-wap-id")
            if snapshot_id == handle["snapshot_id"] or known == handle["wap_id"]:
                return
        raise EndpointError(
            f"sink {self.name}: {self._table} says that epoch {epoch} is published, and its history does not "
            "have it: look for a roll-back of the table"
        )

    def _refuse_known(self, table: Any, epoch: int) -> None:
        last = self._last_epoch(table)
        if last >= epoch:
            raise EndpointError(
                f"sink {self.name}: {self._table} has the epochs of {self._writer!r} up to {last}, and epoch "
                f"{epoch} was never decided here: another pipeline has this name, or the state of this one "
                "was removed; choose another table"
            )

    def _last_epoch(self, table: Any) -> int:
        return int(table.properties().get(self._epoch_property) or -1)

    def _make_table(self, rows: DataFrame) -> None:
        if self._exists():
            return
        columns = self._schema or ", ".join(
            f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in rows.schema
        )
        properties = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in self._properties.items())
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace}")
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) USING iceberg TBLPROPERTIES ({properties})"
        )

    def _exists(self) -> bool:
        return self._spark.catalog.tableExists(self._table)

    def _load(self, name: str = "") -> Any:
        """Iceberg's own object, as it is in the catalog now."""
        spark: Any = self._spark
        table = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            spark._jsparkSession, name or self._table
        )
        table.refresh()
        if table.properties().get(_WAP_ENABLED) != "true":  # or rows would be seen at once
            table.updateProperties().set(_WAP_ENABLED, "true").commit()
        return table

    def _staged(self, table: Any, wap_id: str) -> Any:
        for snapshot in reversed(table.snapshots()):
            if snapshot.summary().get("wap.id") == wap_id:
                return snapshot
        raise UnexpectedFailure(f"sink {self.name}: Spark wrote to {self._table} and staged nothing")

    def _ancestors(self, table: Any) -> list[int]:
        spark: Any = self._spark
        current = table.currentSnapshot()
        if current is None:
            return []
        return list(spark._jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestorIds(table))

    def _expire(self, table: Any, snapshots: Sequence[int]) -> None:
        if not snapshots:
            return
        removal = table.expireSnapshots().expireOlderThan(0)  # these alone
        for snapshot in snapshots:
            removal = removal.expireSnapshotId(snapshot)
        removal.commit()

    def _speaking(self, what: str) -> AbstractContextManager[None]:
        return spark_failures(f"sink {self.name}: cannot {what} in {self._table}")


def _catalog_of(place: Place) -> CatalogSettings:
    if place.catalog is None:
        raise ConfigError(f"{place.location!r} is to be an Iceberg table, and there is no catalog")
    return place.catalog


def _table_of(location: str, catalog: CatalogSettings) -> tuple[str, ...]:
    """In the catalog's namespace, unless the location names another."""
    parts = tuple(location.split("."))
    if parts[0] == catalog.name and len(parts) > 2:
        parts = parts[1:]
    return parts if len(parts) > 1 else catalog.identifier(parts[0])


def _fence_of(wap_id: str) -> int:
    return int(wap_id.rsplit("/", 2)[1])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
