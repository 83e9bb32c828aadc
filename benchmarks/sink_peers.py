"""Spark's own writers, each beside the place that ours of the same format writes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.sinks.contract import Place

SCHEMA = (
    "id bigint, customer string, status string, amount double, quantity bigint, updated_at timestamp, "
    "_epoch bigint"
)
_ROWS = (
    "id",
    "concat('customer ', id % 1000003) as customer",
    "element_at(array('new', 'paid', 'sent', 'returned'), cast(id % 4 as int) + 1) as status",
    "id * 0.37D as amount",
    "id % 17 as quantity",
    "timestamp_micros(1700000000000000 + id * 1000) as updated_at",
)


@dataclass
class Stage:
    """What all of them are given."""

    home: Path
    count: int
    small_count: int
    catalog: CatalogSettings
    broker: KafkaBroker | None

    @property
    def warm_count(self) -> int:
        return max(self.count // 10, 1)

    def make(self, spark: SparkSession) -> None:
        counts = {"rows": self.count, "warm": self.warm_count, "small": self.small_count}
        for name, count in counts.items():
            rows = spark.range(count, numPartitions=4).selectExpr(*_ROWS)
            rows.write.parquet(str(self.home / "input" / name))

    def rows(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self.home / "input/rows"))

    def warm(self, spark: SparkSession) -> DataFrame:
        """Enough of them that Java has compiled what the rest needs."""
        return spark.read.parquet(str(self.home / "input/warm"))

    def small(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self.home / "input/small"))


class Peer(ABC):
    format: ClassVar[str]

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.ours, self.theirs = (stage.home / self.format / whose for whose in ("ours", "theirs"))

    @property
    def place(self) -> Place:
        """Where ours writes."""
        return Place(self.ours.as_uri(), "bench", SCHEMA, epoch="_epoch")

    @abstractmethod
    def write(self, rows: DataFrame) -> None:
        """Spark's own way."""

    @abstractmethod
    def count_ours(self) -> int: ...

    @abstractmethod
    def count_theirs(self) -> int: ...

    @property
    def spark(self) -> SparkSession:
        found = SparkSession.getActiveSession()
        assert found is not None
        return found


class ParquetPeer(Peer):
    format = "parquet"

    def write(self, rows: DataFrame) -> None:
        rows.write.mode("append").parquet(str(self.theirs))

    def count_ours(self) -> int:
        return self.spark.read.parquet(f"{self.ours}/epoch-*").count()

    def count_theirs(self) -> int:
        return self.spark.read.parquet(str(self.theirs)).count()


class IcebergPeer(Peer):
    format = "iceberg"

    @property
    def place(self) -> Place:
        return Place("bench.ours", "bench", SCHEMA, catalog=self.stage.catalog, epoch="_epoch")

    def write(self, rows: DataFrame) -> None:
        table = f"{self.stage.catalog.name}.bench.theirs"
        if self.spark.catalog.tableExists(table):
            rows.writeTo(table).append()
        else:
            rows.writeTo(table).using("iceberg").create()

    def count_ours(self) -> int:
        return self._count("ours")

    def count_theirs(self) -> int:
        return self._count("theirs")

    def _count(self, table: str) -> int:
        name = f"{self.stage.catalog.name}.bench.{table}"
        self.spark.catalog.refreshTable(name)
        return self.spark.table(name).count()


class DeltaPeer(Peer):
    format = "delta"

    def write(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(str(self.theirs))

    def count_ours(self) -> int:
        return self.spark.read.format("delta").load(str(self.ours)).count()

    def count_theirs(self) -> int:
        return self.spark.read.format("delta").load(str(self.theirs)).count()


class HudiPeer(Peer):
    """Inserted under a key of the row and its epoch, as ours does."""

    format = "hudi"

    def write(self, rows: DataFrame) -> None:
        options = {
            "hoodie.table.name": "theirs",
            "hoodie.datasource.write.operation": "insert",
            "hoodie.datasource.write.recordkey.field": "id,_epoch",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        }
        rows.write.format("hudi").options(**options).mode("append").save(str(self.theirs))

    def count_ours(self) -> int:
        return self.spark.read.format("hudi").load(str(self.ours)).count()

    def count_theirs(self) -> int:
        return self.spark.read.format("hudi").load(str(self.theirs)).count()


class KafkaPeer(Peer):
    format = "kafka"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        assert stage.broker is not None
        self._bootstrap = stage.broker.bootstrap
        for topic in ("ours", "theirs"):
            stage.broker.create_topic(topic, partitions=2)

    @property
    def place(self) -> Place:
        options = {"bootstrap": self._bootstrap, "shards": "2"}
        return Place("ours", "bench", SCHEMA, epoch="_epoch", key=("id",), options=options)

    def write(self, rows: DataFrame) -> None:
        messages = rows.selectExpr("cast(id as string) as key", "to_json(struct(*)) as value")
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": "theirs", "kafka.acks": "all"}
        messages.write.format("kafka").options(**options).save()

    def count_ours(self) -> int:
        return self._count("ours")

    def count_theirs(self) -> int:
        return self._count("theirs")

    def _count(self, topic: str) -> int:
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": topic,
            "kafka.isolation.level": "read_committed",
        }
        return self.spark.read.format("kafka").options(**options).load().count()


PEERS: dict[str, type[Peer]] = {
    peer.format: peer for peer in (ParquetPeer, IcebergPeer, DeltaPeer, HudiPeer, KafkaPeer)
}
