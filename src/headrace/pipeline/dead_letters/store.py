"""Dead letters that are committed, read without Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.pipeline.dead_letters.sink import place_of
from headrace.pipeline.settings import DeadLetterSettings
from headrace.sinks.registry import find_sink

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
        """Identifies the row in its source, by where it was read and what it was.

        So it is the same if the row is dropped once more, by another binding that reads the same, or after
        going back to an old dump; and to send it again once is enough for all of them.
        """
        parts = (self.materialization, self.collection, self.source, self.row)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts letters of one binding as their rows were written."""
        values = json.loads(self.source).values() if self.source.startswith("{") else ()
        place = tuple((value is None, str(type(value)), value) for value in values)
        return (self.epoch, self.binding, place)

    def to_json(self, **more: Any) -> str:
        """Writes one line; a row that is JSON is put into it as it is, to the last digit."""
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
    """Reads those of one materialization that are committed, in no order."""
    place = place_of(settings, materialization, catalog)
    for batch in find_sink(settings.format).read(place, _COLUMNS.names, epoch):
        for raw in pa.Table.from_batches([batch]).cast(_COLUMNS).to_pylist():
            letter = DeadLetter(materialization, **{**raw, "rules": tuple(raw["rules"])})
            if (not rule or rule in letter.rules) and (since is None or letter.failed_at >= since):
                yield letter
