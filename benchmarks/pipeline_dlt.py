"""The peer `dlt`: the same Parquet files in the same chunks, each of them one load that is merged.

Arrow tables in, and Parquet between, which it copies by the client library that ours uses. Once as it merges
by itself: `delete-insert`, its default, which chooses the last row of a key among those that were staged, and
can have no unique index on the key. Once with the work of choosing taken off it, by Arrow and before it is
given the rows: then it can `upsert`, and of the settings tried this took the least processor time.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from benchmarks.pipeline_contenders import Contender, Place
from benchmarks.pipeline_input import COLUMNS, TABLE, last_of_each_key

MISSING = (
    "dlt, a peer of this benchmark, is not installed: run `pip install --require-hashes -r "
    "benchmarks/requirements.lock`, or leave it out with --without dlt --without dlt-of-last"
)

# As dlt wants a key to be; it warns of any other.
_SCHEMA = pa.schema([field.with_nullable(field.name != "id") for field in COLUMNS])


def is_installed() -> bool:
    return importlib.util.find_spec("dlt") is not None


class Dlt(Contender):
    name = "dlt, merge"
    table = f"bench.{TABLE}"
    hints: ClassVar[dict[str, Any]] = {
        "write_disposition": {"disposition": "merge", "strategy": "delete-insert"},
        "columns": {"updated_at": {"dedup_sort": "desc"}},
    }

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
        # Not a type of its own: who does not run this benchmark need not have it.
        self._dlt: Any = importlib.import_module("dlt")
        self._pipeline = self._dlt.pipeline(
            "bench",
            destination=self._dlt.destinations.postgres(place.url),
            dataset_name="bench",
            pipelines_dir=str(place.folder / "dlt"),
        )

    def run(self, epochs: range) -> None:
        for chunk in self.place.orders.chunks(epochs):
            self._load(self.chosen(chunk).select(COLUMNS.names).cast(_SCHEMA))

    def chosen(self, rows: pa.Table) -> pa.Table:
        """What dlt is given of an epoch's rows."""
        return rows

    def _load(self, rows: pa.Table) -> None:
        def orders() -> Iterator[pa.Table]:
            yield rows

        resource = self._dlt.resource(orders, name=TABLE, primary_key="id", **self.hints)
        self._pipeline.run(resource, loader_file_format="parquet")


class DltOfLast(Dlt):
    name = "dlt, upsert of what Arrow chose"
    hints: ClassVar[dict[str, Any]] = {
        "write_disposition": {"disposition": "merge", "strategy": "upsert"},
        # Without it the table has no index by which a row is found.
        "columns": {"id": {"unique": True}},
    }

    def chosen(self, rows: pa.Table) -> pa.Table:
        return last_of_each_key(rows)
