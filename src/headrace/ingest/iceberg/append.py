"""One try at putting rows into a table, in a transaction that also moves the table's watermark.

pyiceberg's own transactions try again by themselves when somebody else was faster, on top of whatever is
there then. If that somebody was a committer with the same rows, they would be in the table twice. A `Try` is
committed once, on the metadata that it was made from: it requires that `main` is still at the same snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, TableRequirement, TableUpdate

from headrace.ingest.iceberg.tables import columns_of
from headrace.ingest.schemas import evolve
from headrace.wal.batches import PLACE_FIELDS

_log = logging.getLogger(__name__)

_METRICS = "write.metadata.metrics."


class Try(Transaction):
    def __init__(self, table: Table, *, by_clock: bool = True) -> None:
        """Without `by_clock` its snapshot is as little later than the last as it can be."""
        super().__init__(table)
        self._by_clock = by_clock
        self.base_snapshot = table.metadata.current_snapshot_id
        self.snapshot_id: int | None = None
        """The id of the snapshot that it adds, once it has files."""
        self._applied = 0
        self._metadata = table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        # pyiceberg asks for it some twenty times in an append, and copies all of it, with every snapshot that
        # the table has, each time. With 200 snapshots that was nine tenths of a commit.
        if self._applied != len(self._updates):
            self._metadata = super().table_metadata
            self._applied = len(self._updates)
        return self._metadata

    @property
    def schema(self) -> Schema:
        """The table's, with what this transaction changes."""
        return self.table_metadata.schema()

    @property
    def io(self) -> FileIO:
        return self._table.io

    def widen(self, collection: str, schema: pa.Schema) -> pa.Schema:
        """Lets the table hold a collection's rows; the schema to write them with."""
        current = columns_of(collection, self._table)
        wider = evolve(collection, current, schema)
        known = {field.name: field for field in current}
        changed = [field for field in wider if field.name not in known or field != known[field.name]]
        names = [field.name for field in self.schema.fields]
        absent = [field.with_nullable(True) for field in PLACE_FIELDS if field.name not in names]
        if changed or absent:
            with self.update_schema() as update:
                update.union_by_name(pa.schema([*changed, *absent]))
        return pa.schema([*wider, *PLACE_FIELDS])

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Writes a data file (or one for each partition), which nobody sees yet."""
        # pyiceberg could take a reader of all rows, but reads all of them into memory before it writes.
        try:
            return list(_dataframe_to_data_files(self.table_metadata, rows, self.io))
        except (OverflowError, UnicodeEncodeError) as error:
            # It makes bounds of columns from Python's values, which know no year 10000, and of a text that it
            # cuts behind U+D7FF it makes an upper bound with a surrogate. Nothing is wrong with the rows.
            _log.warning("a data file gets no bounds: %s", error)
            metadata = self.table_metadata.model_copy(update={"properties": self._without_bounds()})
            return list(_dataframe_to_data_files(metadata, rows, self.io))

    def _without_bounds(self) -> dict[str, str]:
        given = self.table_metadata.properties
        kept = {name: value for name, value in given.items() if not name.startswith(_METRICS)}
        return {**kept, f"{_METRICS}default": "counts"}

    def append_files(
        self, files: list[DataFile], summary: dict[str, str], properties: dict[str, str]
    ) -> None:
        """Adds the files as a snapshot, and sets properties of the table and the snapshot with it."""
        snapshot = self.update_snapshot(snapshot_properties={**summary, **properties}).merge_append()
        for file in files:
            snapshot.append_data_file(file)
        snapshot.commit()
        self.snapshot_id = snapshot.snapshot_id
        self.set_properties(properties)

    def _stage(
        self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()
    ) -> Transaction:
        return super()._stage(tuple(map(self._dated, updates)), requirements)

    def _dated(self, update: TableUpdate) -> TableUpdate:
        """Dates a snapshot later than all that the table has seen, also by a clock that was ahead and is put
        right: Iceberg in Java neither takes a commit that is a minute older, nor reads a table with one."""
        if not isinstance(update, AddSnapshotUpdate):
            return update
        metadata = self.table_metadata
        seen = max([metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])])
        date = max(update.snapshot.timestamp_ms, seen + 1) if self._by_clock else seen + 1
        return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": date}))

    def is_in(self, table: Table) -> bool:
        return self.snapshot_id is not None and table.metadata.snapshot_by_id(self.snapshot_id) is not None

    def commit_once(self) -> None:
        """Raises CommitFailedException if the table has changed; after any other error it may have landed."""
        uuid = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        self._table._do_commit(self._updates, (*self._requirements, uuid))

    def clean_up(self) -> None:
        """Removes the manifests of a try that did not land and cannot any more."""
        for producer in self._snapshot_producers:
            producer._clean_all_uncommitted()


def refers_to(table: Table, files: Iterable[DataFile]) -> bool:
    """Whether any of these data files is in the table's current snapshot."""
    return bool(table.transaction()._find_referenced_data_files([file.file_path for file in files]))


def remove_files(io: FileIO, files: Iterable[DataFile]) -> None:
    for file in files:
        try:
            io.delete(file.file_path)
        except OSError as error:
            _log.warning("could not remove %s, which no snapshot refers to: %s", file.file_path, error)
