"""Iceberg tables, read by pyiceberg, where Spark has written them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from headrace.certify.targets.documents_of import appended, viewed
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.target import APPEND, VIEW, Rows
from headrace.ingest.iceberg.settings import CatalogSettings

_NAMESPACE = "headrace_certify"
_MAIN = "main"


class IcebergTarget(SinkTarget):
    name = format = "iceberg"
    can_roll_back = True

    def __init__(self, catalog: CatalogSettings) -> None:
        """The same that the pipeline has."""
        self.catalog = catalog

    def location(self, lane: str, mode: str) -> str:
        return f"{_NAMESPACE}.{lane.replace('-', '_')}_{mode}"

    def read(self, lane: str) -> Mapping[str, Rows]:
        return steadily(lambda: self._read(lane))

    def _read(self, lane: str) -> dict[str, Rows]:
        found = {
            mode: table.scan().to_arrow().to_pylist() if table else [] for mode, table in self._tables(lane)
        }
        return {mode: viewed(rows) if mode == VIEW else appended(rows) for mode, rows in found.items()}

    def left_over(self, lane: str) -> list[str]:
        return [
            f"{self.location(lane, mode)}: {what}"
            for mode, table in self._tables(lane)
            if table is not None
            for what in _unpublished(table)
        ]

    def roll_back(self, lane: str) -> Callable[[], None]:
        """Leaves the table's properties as they are, which is how Iceberg does it."""
        table = self._load().load_table(self.location(lane, APPEND))
        current = table.current_snapshot()
        assert current is not None
        assert current.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(current.parent_snapshot_id).commit()

        def put_back() -> None:
            table.refresh().manage_snapshots().set_current_snapshot(current.snapshot_id).commit()

        return put_back

    def remove(self, lane: str) -> None:
        catalog = self._load()
        for mode, table in self._tables(lane):
            if table is not None:
                catalog.purge_table(self.location(lane, mode))

    def _tables(self, lane: str) -> Iterator[tuple[str, Table | None]]:
        catalog = self._load()
        for mode in self.modes:
            try:
                yield mode, catalog.load_table(self.location(lane, mode))
            except (NoSuchTableError, NoSuchNamespaceError):
                yield mode, None

    def _load(self) -> Catalog:
        return load_catalog(self.catalog.name, **self.catalog.properties)


def _unpublished(table: Table) -> Iterator[str]:
    yield from (f"branch {name}" for name in table.metadata.refs if name != _MAIN)
    published = {entry.snapshot_id for entry in table.history()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        published.add(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    for one in table.snapshots():
        if one.snapshot_id not in published:
            yield f"snapshot {one.snapshot_id}"
