"""A log of writes to the collection `orders`, and what its table has to hold because of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from headrace.ingest.iceberg import CatalogSettings, CommitJob, SegmentPart
from headrace.ingest.iceberg.commit import Committer
from headrace.ingest.iceberg.tables import Tables
from headrace.wal.state import CollectionState, Committed
from tests.ingest.iceberg.segment_builder import SegmentBuilder

ORDERS = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
Row = tuple[int, int, Any, Any]
"""LSN, row, id, name."""


@dataclass
class Scenario:
    settings: CatalogSettings
    folder: Path
    segments: list[SegmentPart] = field(default_factory=list)
    written: Counter[Row] = field(default_factory=Counter)
    last_lsn: int = 0
    _builder: SegmentBuilder = field(default_factory=SegmentBuilder)

    def write_segment(self, writes: int = 3, rows: int = 2, schema: pa.Schema = ORDERS) -> int:
        """A segment with some writes to `orders` and one to another collection between them; its last LSN."""
        for number in range(writes):
            self._write(rows, schema)
            if number == 0:
                self._builder.write("others", pa.record_batch([[1]], names=["x"]))
        return self._save()

    def write_record(self, writes: int) -> int:
        """A segment with one record of many writes, of a row each; its last LSN."""
        lsns = range(self._builder.next_lsn, self._builder.next_lsn + writes)
        batch = pa.record_batch([pa.array(lsns, pa.int32()), [None] * writes], schema=ORDERS)
        self._builder.write_coalesced("orders", batch, [1] * writes)
        self.written.update((lsn, 0, lsn, None) for lsn in lsns)
        return self._save()

    def write_to(self, collection: str, batch: pa.RecordBatch) -> int:
        """A segment with one write to a collection; its LSN."""
        self._builder.write(collection, batch)
        return self._save()

    def job(
        self, through: int | None = None, schema: pa.Schema = ORDERS, first: int = 0, log_id: str = ""
    ) -> CommitJob:
        orders = CollectionState("orders", schema.serialize().to_pybytes(), ("/id",))
        return CommitJob(
            tuple(self.segments[first:]), self.last_lsn if through is None else through, (orders,), log_id
        )

    def committer(self, observe: Callable[[str], None] = lambda _step: None) -> Committer:
        """As if in a process of its own, but without one; does not wait between tries."""
        return Committer(Tables(self.settings), observe, pause=lambda _seconds: None)

    def commit(
        self, job: CommitJob | None = None, observe: Callable[[str], None] = lambda _step: None
    ) -> Committed:
        outcome = self.committer(observe).commit(job or self.job())["orders"]
        assert isinstance(outcome, Committed), outcome
        return outcome

    def table(self, name: str = "orders") -> Table:
        table = Tables(self.settings).load(name)
        assert table is not None
        return table

    def rows(self) -> Counter[Row]:
        found = self.table().scan().to_arrow().select(["_lsn", "_row", "id", "name"])
        return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def expected(self, through: int) -> Counter[Row]:
        return Counter({row: count for row, count in self.written.items() if row[0] <= through})

    def assert_exactly_once(self, through: int | None = None) -> None:
        last = self.last_lsn if through is None else through
        assert self.rows() == self.expected(last)
        assert self.table().properties["headrace.committed-lsn"] == str(last)

    def assert_no_litter(self) -> None:
        """No file is in the warehouse that no snapshot of the table refers to."""
        table = self.table()
        used = set(table.inspect.all_files()["file_path"].to_pylist())
        used |= set(table.inspect.all_manifests()["path"].to_pylist())
        used |= {snapshot.manifest_list for snapshot in table.snapshots()}
        assert {name for name in self.files() if name.endswith((".parquet", ".avro"))} == used

    def files(self) -> set[str]:
        """All files of the table in the warehouse, whether it refers to them or not."""
        table = self.table()
        assert isinstance(table.io, PyArrowFileIO)
        scheme, host, root = table.io.parse_location(table.location())
        found = table.io.fs_by_scheme(scheme, host).get_file_info(FileSelector(root, recursive=True))
        return {table.location() + info.path.removeprefix(root) for info in found if info.is_file}

    def data_files(self) -> set[str]:
        return {name for name in self.files() if name.endswith(".parquet")}

    def _write(self, rows: int, schema: pa.Schema) -> None:
        lsn = self._builder.next_lsn
        ids = [lsn * 10 + row for row in range(rows)]
        names = [f"name {value}" for value in ids]
        columns = {"id": ids, "name": names}
        arrays = [pa.array(columns.get(each.name, [None] * rows), each.type) for each in schema]
        self._builder.write("orders", pa.RecordBatch.from_arrays(arrays, schema=schema))
        for row, (key, name) in enumerate(zip(ids, names, strict=True)):
            self.written[lsn, row, key, name if "name" in schema.names else None] += 1

    def _save(self) -> int:
        self.segments.append(self._builder.save(self.folder))
        self.last_lsn = self._builder.next_lsn - 1
        self._builder = self._builder.following()
        return self.last_lsn
