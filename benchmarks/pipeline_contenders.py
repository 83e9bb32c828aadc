"""Ours, Spark's JDBC writer and the floor: from the stream of one collection to a table in PostgreSQL.

Each is made for one database, and `run` takes what the collection has that it has not seen yet. All connect
as our connector does, by which the driver reads the types of the database once in a process: that they would
wait for it at each connection is not what is compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.pipeline_input import (
    DECLARED,
    FILES_PER_EPOCH,
    ORDERS,
    TABLE,
    VALUES,
    Orders,
    create_table,
    execute,
)
from headrace.connectors.postgres.connections import connect
from headrace.errors import HeadraceError
from headrace.pipeline.combine.combiner import combiner
from headrace.pipeline.guarantee import Compiled
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    Limits,
    MaterializationSettings,
    PipelineSettings,
    Trigger,
)
from headrace.spark.catalogs import catalog_conf

SHARDS = 2
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in VALUES)


@dataclass(frozen=True)
class Place:
    """What a contender is given: an empty database and an empty folder."""

    spark: SparkSession
    orders: Orders
    url: str
    folder: Path
    files_per_epoch: int = FILES_PER_EPOCH


class Contender(ABC):
    name: ClassVar[str]
    table: ClassVar[str] = TABLE

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def run(self, epochs: range) -> None:
        """Takes what these epochs have, which is all that is new in the collection."""


class Ours(Contender):
    name = "ours"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.epochs: list[EpochProgress] = []

    def run(self, epochs: range) -> None:
        place = self.place
        one = MaterializationSettings(
            "bench",
            "postgres",
            {"url": place.url},
            # The others store no document either.
            (BindingSettings(ORDERS, CollectionSource(TABLE), {"table": TABLE}, exclude=("_document",)),),
            shards=SHARDS,
            trigger=Trigger(once=True),
            limits=Limits(files=place.files_per_epoch),
        )
        state = (place.folder / "state").as_uri()
        runner = Runner(PipelineSettings((one,), state, catalog=place.orders.catalog), self)
        runner.run()
        for failure in runner.failures.values():
            raise failure

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        pass

    def state(self, name: str, text: str) -> None:
        pass

    def failed(self, name: str, error: HeadraceError) -> None:
        pass

    def epoch(self, name: str, progress: EpochProgress) -> None:
        self.epochs.append(progress)

    def step(self, name: str, step: str) -> None:
        pass


class JdbcMerge(Contender):
    """What is commonly written: the last row of each key goes to a staging table, and one statement merges.

    The staging table is not logged, and is truncated with the merge, so that the writer need not.
    """

    name = "Spark JDBC + merge"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        create_table(place.url, TABLE)
        body = ", ".join(f"{column} {declared}" for column, declared in DECLARED.items())
        execute(place.url, f"CREATE UNLOGGED TABLE staged ({body})")
        address = urlsplit(place.url)
        self._options = {
            "url": f"jdbc:postgresql://{address.hostname}:{address.port}{address.path}"
            "?reWriteBatchedInserts=true",
            "user": address.username or "",
            "password": address.password or "",
            "driver": "org.postgresql.Driver",
            "dbtable": "staged",
            "numPartitions": str(SHARDS),
            "batchsize": "10000",
        }

    def run(self, epochs: range) -> None:
        run_batches(self.place, self._merge)

    def _merge(self, rows: DataFrame, epoch: int) -> None:
        last = F.max_by(F.struct(*VALUES), F.struct("_lsn", "_row")).alias("last")
        combined = rows.groupBy("id").agg(last).select("id", "last.*")
        combined.write.format("jdbc").options(**self._options).mode("append").save()
        with connect(self.place.url, autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {TABLE} SELECT * FROM staged ON CONFLICT (id) DO UPDATE SET {_UPDATES}"
            )
            cursor.execute("TRUNCATE staged")
            connection.commit()


class Floor(Contender):
    """The same table as ours, by our combine, COPY and an upsert; nothing keeps it from being wrong."""

    name = "floor: combine, COPY, upsert"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        create_table(place.url, TABLE)
        values = [field for field in ORDERS.fields if field.name in VALUES]
        self._combine = combiner(ORDERS, values, with_document=False)

    def run(self, epochs: range) -> None:
        run_batches(self.place, self._upsert)

    def _upsert(self, rows: DataFrame, epoch: int) -> None:
        frame = rows.select(
            F.struct(F.col("id").alias("k0")).alias("_key"),
            F.struct("_lsn", "_row").alias("_order"),
            *DECLARED,
        )
        combined = self._combine(frame).select("_key.*", "_values.*")
        combined.mapInArrow(partial(_copy_and_upsert, self.place.url), "rows long").collect()


def _copy_and_upsert(url: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = [f"c{number}" for number in range(len(DECLARED))]
    staged = zip(names, DECLARED.values(), strict=True)
    with connect(url, autocommit=False) as connection, connection.cursor() as cursor:
        body = ", ".join(f"{name} {declared}" for name, declared in staged)
        cursor.execute(f"CREATE TEMPORARY TABLE stage ({body}) ON COMMIT DROP")
        rows = 0
        for batch in batches:
            named = pa.RecordBatch.from_arrays(batch.columns, names)
            cursor.adbc_ingest("stage", named, mode="append", temporary=True)
            rows += batch.num_rows
        cursor.execute(
            f"INSERT INTO {TABLE} SELECT {', '.join(names)} FROM stage"
            f" ON CONFLICT (id) DO UPDATE SET {_UPDATES}"
        )
        connection.commit()
    yield pa.record_batch({"rows": [rows]})


def run_batches(place: Place, batch: Callable[[DataFrame, int], None]) -> None:
    """A bare stream of the collection, with the limits that ours has."""
    catalog = place.orders.catalog
    # A session keeps a catalog as it was first used, and each collection here has one of its own.
    session = place.spark.newSession()
    for key, value in catalog_conf(catalog).items():
        session.conf.set(key, value)
    query = (
        session.readStream.option("streaming-max-files-per-micro-batch", str(place.files_per_epoch))
        .table(f"{catalog.name}.{catalog.namespace}.{TABLE}")
        .writeStream.option("checkpointLocation", (place.folder / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .foreachBatch(batch)
        .start()
    )
    query.awaitTermination()
