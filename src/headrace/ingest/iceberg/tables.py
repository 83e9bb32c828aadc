"""Opening the Iceberg table of a collection, making it, and what its properties say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from headrace.errors import ConfigError, HeadraceError, SchemaError
from headrace.ingest.iceberg.errors import CatalogUnavailable
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.iceberg.synced_files import SyncedFileIO
from headrace.ingest.schemas import storable, with_place
from headrace.wal.batches import PLACE_FIELDS
from headrace.wal.position import LogPosition, SegmentMark
from headrace.wal.state import Committed

COMMITTED_LSN = "headrace.committed-lsn"
"""Every write of the collection at or below it is in the table."""
LOG_ID = "headrace.log-id"
TERM = "headrace.term"
BOOT = "headrace.boot"
SEGMENT = "headrace.segment"
"""The last segment of the commit that set the watermark."""
KEY = "headrace.key"

# A commit each five seconds would leave 17,000 metadata files a day, and a manifest for each in every plan.
_NEW_TABLE = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
}
_TABLE_NAME = re.compile(r"\w[\w.-]*")


class Tables:
    """The tables of a catalog, by the names of their collections."""

    def __init__(self, settings: CatalogSettings) -> None:
        self._settings = settings

    @cached_property
    def _catalog(self) -> Catalog:
        io = f"{SyncedFileIO.__module__}.{SyncedFileIO.__qualname__}"
        properties = {"py-io-impl": io, **self._settings.properties}
        try:
            return load_catalog(self._settings.name, **properties)
        except Exception:  # noqa: BLE001 - what is wrong otherwise is wrong again
            # Another process may just have made the tables of a SQL catalog.
            return load_catalog(self._settings.name, **properties)

    def load(self, collection: str) -> Table | None:
        if _TABLE_NAME.fullmatch(collection) is None:
            raise ConfigError(
                f"collection {collection!r} cannot be a table: a name has letters, digits, '_', '-' and '.', "
                "and starts with none of the last two"
            )
        with reaching(collection):
            try:
                return self._catalog.load_table(self._settings.identifier(collection))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(self, collection: str, schema: pa.Schema, key: Sequence[str], log_id: str) -> Table:
        """The table of a new collection, which another process may have made before us."""
        ours = {KEY: json.dumps(list(key)), **({LOG_ID: log_id} if log_id else {})}
        properties = {**_NEW_TABLE, **self._settings.table_properties, **ours}
        identifier = self._settings.identifier(collection)
        with reaching(collection):
            self._catalog.create_namespace_if_not_exists(identifier[:-1])
            try:
                return self._catalog.create_table(identifier, with_place(schema), properties=properties)
            except TableAlreadyExistsError:
                return self._catalog.load_table(identifier)


@contextmanager
def reaching(collection: str) -> Iterator[None]:
    """Turns every error of the catalog or its files into ours, since they cannot be told apart here."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        raise CatalogUnavailable(
            f"the table of collection {collection!r} cannot be reached: {type(error).__name__}: {error}",
            collection=collection,
        ) from error


def committed_of(table: Table, log_id: str = "") -> Committed:
    """How far the table is, in the snapshot that this copy of its metadata has as its current one."""
    name = ".".join(table.name())
    owner = table.properties.get(LOG_ID, "")
    if log_id and owner and owner != log_id:
        raise ConfigError(
            f"table {name} was written from another log ({owner}; this one is {log_id}), so its watermark "
            "says nothing about these writes: drop or rename the table, or use another namespace"
        )
    position = _position_of(table, name)
    return Committed(position.lsn, table.metadata.current_snapshot_id, position)


def position_properties(position: LogPosition) -> dict[str, str]:
    """Returns the properties by which a table records how far it is."""
    properties = {COMMITTED_LSN: str(position.lsn)}
    if position.segment is not None:
        properties |= {TERM: str(position.term), BOOT: position.boot, SEGMENT: str(position.segment)}
    return properties


def _position_of(table: Table, name: str) -> LogPosition:
    found = {key: table.properties[key] for key in (COMMITTED_LSN, TERM, SEGMENT) if key in table.properties}
    try:
        lsn = int(found.get(COMMITTED_LSN, "0"))
        if SEGMENT not in found:
            return LogPosition(lsn)
        mark = SegmentMark.parse(found[SEGMENT])
        return LogPosition(lsn, int(found[TERM]), table.properties.get(BOOT, ""), mark)
    except (ValueError, KeyError):
        raise ConfigError(
            f"table {name} has properties that do not say how far it is: restore {found}"
        ) from None


def columns_of(collection: str, table: Table) -> pa.Schema:
    """The table's columns as a collection's schema has them, so without `_lsn` and `_row`."""
    schema = table.schema().as_arrow()
    for field in PLACE_FIELDS:
        found = schema.field(field.name).type if field.name in schema.names else field.type
        if found != field.type:
            raise SchemaError(
                f"collection {collection!r}: the table's column {field.name!r} is {found} and has to be "
                f"{field.type}: the table is not one of ours, so drop or rename it"
            )
    places = {field.name for field in PLACE_FIELDS}
    return storable(
        collection, pa.schema(field.remove_metadata() for field in schema if field.name not in places)
    )
