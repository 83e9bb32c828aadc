"""Dead letters that are committed, read without Spark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, EqualTo

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.pipeline.dead_letters import parquet_location, table_of
from headrace.pipeline.settings import DeadLetterSettings

_COLUMNS = pa.schema(
    [
        ("collection", pa.string()),
        ("binding", pa.int32()),
        ("epoch", pa.int64()),
        ("failed_at", pa.timestamp("us", tz="UTC")),
        ("rules", pa.list_(pa.string())),
        ("row", pa.string()),
        ("source", pa.string()),
    ]
)
_EPOCH_FOLDER = re.compile(r"epoch=(\d{20})")


@dataclass(frozen=True)
class DeadLetter:
    materialization: str
    collection: str
    binding: int
    epoch: int
    failed_at: datetime
    rules: tuple[str, ...]
    row: str
    """The whole row as it was read: JSON, unless that is what is wrong with it."""
    source: str
    """Where it was read, as JSON."""

    @property
    def id(self) -> str:
        """The same if the row is dropped once more, by another binding or after going back to an old dump."""
        parts = (self.materialization, self.collection, self.source, self.row)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts letters of one binding as their rows were written."""
        values = json.loads(self.source).values() if self.source.startswith("{") else ()
        place = tuple((value is None, str(type(value)), value) for value in values)
        return (self.epoch, self.binding, place)

    def to_json(self, **more: Any) -> str:
        """One line; a row that is JSON is put into it as it is, to the last digit."""
        shown = {
            "id": self.id,
            "materialization": self.materialization,
            "collection": self.collection,
            "binding": self.binding,
            "epoch": self.epoch,
            "failed_at": self.failed_at.isoformat(),
            "rules": list(self.rules),
            **more,
            "source": _verbatim(self.source),
            "row": _verbatim(self.row),
        }
        return orjson.dumps(shown).decode()


def _verbatim(text: str) -> Any:
    try:
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    return orjson.Fragment(text.replace("\n", " ")) if is_object else text


def read_dead_letters(
    settings: DeadLetterSettings,
    materialization: str,
    catalog: CatalogSettings | None,
    *,
    rule: str = "",
    epoch: int | None = None,
    since: datetime | None = None,
) -> Iterator[DeadLetter]:
    """Those of one materialization that are committed, in no order."""
    if settings.format == "iceberg":
        batches = _from_table(settings, materialization, catalog, epoch)
    else:
        batches = _from_folder(Path(parquet_location(settings, materialization)), epoch)
    for batch in batches:
        for raw in batch.to_pylist():
            letter = DeadLetter(materialization, **{**raw, "rules": tuple(raw["rules"])})
            if (not rule or rule in letter.rules) and (since is None or letter.failed_at >= since):
                yield letter


def _from_folder(folder: Path, epoch: int | None) -> Iterator[pa.RecordBatch]:
    if not folder.is_dir():
        return
    for published in sorted(folder.iterdir()):
        name = _EPOCH_FOLDER.fullmatch(published.name)
        if name is None or epoch not in (None, int(name[1])):
            continue
        # Named one by one: what is found by looking is left out where a folder above begins with _.
        files = [str(file) for file in sorted(published.glob("*.parquet"))]
        data = ds.dataset(files, format="parquet")
        columns = {field.name: ds.field(field.name) for field in _COLUMNS if field.name != "epoch"}
        try:
            for batch in data.to_batches(columns=columns):
                table = pa.Table.from_batches([batch])
                epochs = pa.array([int(name[1])] * batch.num_rows, pa.int64())
                yield from (
                    table.append_column("epoch", epochs).select(_COLUMNS.names).cast(_COLUMNS).to_batches()
                )
        except FileNotFoundError:
            continue  # the pipeline went back to an earlier epoch meanwhile


def _from_table(
    settings: DeadLetterSettings, materialization: str, catalog: CatalogSettings | None, epoch: int | None
) -> Iterator[pa.RecordBatch]:
    if catalog is None:
        raise ConfigError(
            f"dead letters of {materialization!r} are an Iceberg table, and there is no catalog"
        )
    equal: Any = EqualTo  # its types are not those of its documentation
    wanted: BooleanExpression = equal("materialization", materialization)
    if epoch is not None:
        wanted = And(wanted, equal("epoch", epoch))
    try:
        table = load_catalog(catalog.name, **catalog.properties).load_table(table_of(settings, catalog))
    except NoSuchTableError:
        return
    except Exception as error:
        raise EndpointUnavailable(
            f"the catalog {catalog.name!r} cannot be read: {str(error).splitlines()[0]}"
        ) from error
    scan = table.scan(row_filter=wanted, selected_fields=tuple(_COLUMNS.names))
    for batch in scan.to_arrow_batch_reader():
        yield from pa.Table.from_batches([batch]).select(_COLUMNS.names).cast(_COLUMNS).to_batches()
