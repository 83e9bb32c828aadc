"""The peer `dlt`: the same Parquet files in the same chunks, each of them one load that is merged.

Of the settings tried that leave an index on the key, these took the least processor time: Arrow tables in,
Parquet between, which it copies by the client library that ours uses, and the merge strategy `upsert`. That
strategy wants a key once, so the last row of each is chosen by Arrow before. `delete-insert` can choose by
itself, but not into a table whose key has an index.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.pipeline_contenders import Contender, Place
from benchmarks.pipeline_input import COLUMNS, TABLE, last_of_each_key

MISSING = (
    "dlt, a peer of this benchmark, is not installed: run `pip install --require-hashes -r "
    "benchmarks/requirements.lock`, or leave it out with --without dlt"
)

# As dlt wants a key to be; it warns of any other.
_SCHEMA = pa.schema([field.with_nullable(field.name != "id") for field in COLUMNS])


def is_installed() -> bool:
    return importlib.util.find_spec("dlt") is not None


class Dlt(Contender):
    name = "dlt, merge"
    table = f"bench.{TABLE}"

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
            self._load(last_of_each_key(chunk).select(COLUMNS.names).cast(_SCHEMA))

    def _load(self, rows: pa.Table) -> None:
        def orders() -> Iterator[pa.Table]:
            yield rows

        resource = self._dlt.resource(
            orders,
            name=TABLE,
            write_disposition={"disposition": "merge", "strategy": "upsert"},
            primary_key="id",
            # Without it the table has no index by which a row is found.
            columns={"id": {"unique": True}},
        )
        self._pipeline.run(resource, loader_file_format="parquet")
