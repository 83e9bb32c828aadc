"""Where an Iceberg table is, from what the user wrote, and its rows without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.table import Table

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.ingest.iceberg.settings import CatalogSettings, missing_file
from headrace.model.ownership import Owner
from headrace.sinks.contract import Place
from headrace.sinks.ownership import MARK, read_mark

_OPTIONS = ("write.", "read.", "commit.", "history.")
# What two phases rest on.
_OURS = ("write.wap.enabled", "write.merge.mode", "write.update.mode", "write.delete.mode")


def catalog_of(place: Place) -> CatalogSettings:
    if place.catalog is None:
        raise ConfigError(f"{place.location!r} is to be an Iceberg table, and there is no catalog")
    return place.catalog


def table_of(location: str, catalog: CatalogSettings) -> tuple[str, ...]:
    """In the catalog's namespace, unless the location names another."""
    parts = tuple(location.split("."))
    if parts[0] == catalog.name and len(parts) > 2:
        parts = parts[1:]
    return parts if len(parts) > 1 else catalog.identifier(parts[0])


def table_options(place: Place) -> dict[str, str]:
    """Properties of a table that is made for the place."""
    for option in place.options:
        if not option.startswith(_OPTIONS) or option in _OURS:
            raise ConfigError(
                f"Iceberg table {place.location!r} has the option {option!r}: options are properties of the "
                "table (write.*, read.*, commit.*, history.*) other than those that Headrace sets itself; "
                "storage is configured with the catalog"
            )
    return dict(place.options)


def load_table(place: Place) -> Table | None:
    """pyiceberg's; None if there is none, or no catalog, which would be made by being opened."""
    catalog = catalog_of(place)
    if missing_file(catalog):
        return None
    try:
        return load_catalog(catalog.name, **catalog.properties).load_table(table_of(place.location, catalog))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        raise EndpointUnavailable(
            f"the catalog {catalog.name!r} cannot be read: {str(error).splitlines()[0]}"
        ) from error


def read_rows(place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
    equal: Any = EqualTo  # its types are not those of its documentation
    wanted: BooleanExpression = equal(place.owned, place.writer) if place.owned else AlwaysTrue()
    if epoch is not None:
        wanted = And(wanted, equal(place.epoch, epoch))
    table = load_table(place)
    if table is None:
        return
    for batch in table.scan(row_filter=wanted, selected_fields=tuple(columns)).to_arrow_batch_reader():
        yield batch.select(columns)


def owner_of(name: str, place: Place) -> Owner | None:
    """Returns the owner that the table of a sink names; refuses a catalog that is not there."""
    if problem := missing_file(catalog_of(place)):
        raise ConfigError(problem)
    table = load_table(place)
    if table is None or place.owned:
        return None
    return read_mark(name, place.location, table.properties.get(MARK))
