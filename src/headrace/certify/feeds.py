"""Where the documents of a certification are written, for pipelines to read: a collection, or a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import orjson
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from headrace.certify.documents import BATCH, COLLECTIONS, Document, documents
from headrace.certify.kafka_cleaning import delete_groups, delete_topics
from headrace.errors import EndpointUnavailable
from headrace.ingest.iceberg.settings import CatalogSettings, kept_on_host
from headrace.ingest.iceberg.tables import Tables
from headrace.kafka.admin import make_topic
from headrace.kafka.config import ClientOptions
from headrace.model.collections import Collection
from headrace.wal.batches import PLACE_FIELDS

_TABLE = pa.schema(
    [
        ("key", pa.string()),
        ("count", pa.int64()),
        ("total", pa.int64()),
        ("largest", pa.int64()),
        ("last", pa.int64()),
        ("seen", pa.string()),  # a list is kept as JSON
    ]
)
_SECONDS = 60.0


class Feed(ABC):
    name: ClassVar[str]
    """As in the matrix."""
    is_first: bool = False
    """Whether all scenarios are tried with this source."""
    limits: Mapping[str, int]
    """With which an epoch takes one write."""

    def __init__(self) -> None:
        self.written = 0
        """Documents, so far."""

    @property
    def source(self) -> Mapping[str, Any]:
        """As a binding says it in `headrace.yaml`."""
        return {}

    def write(self, writes: int = 1) -> None:
        for _ in range(writes):
            self._write(self.batch(self.written + 1))
            self.written += BATCH

    def batch(self, first: int) -> list[Document]:
        """Returns the documents of one write: `BATCH` of them, numbered from `first`."""
        return documents(first, BATCH)

    def recreate(self) -> None:
        """Replaces this source by another one of the same name, with as many documents."""
        writes = self.written // BATCH
        self._drop()
        self.written = 0
        self.write(writes)

    @abstractmethod
    def _drop(self) -> None:
        """Removes the source, so that the next write makes a new one."""

    @abstractmethod
    def _write(self, batch: list[Document]) -> None: ...

    def remove(self, lanes: Sequence[str]) -> None:  # noqa: B027 - what is in a folder goes with it
        """Takes away what it, and those who have read it, have left where others are too."""


class CollectionFeed(Feed):
    """Commits to the collection's table, as the ingest server does."""

    name = "collection"
    limits: Mapping[str, int] = {"files": 1}

    def __init__(self, catalog: CatalogSettings, collections: Sequence[Collection] = COLLECTIONS) -> None:
        """Writes every document to each of the collections."""
        super().__init__()
        self._catalog, self._collections = catalog, collections

    def _write(self, batch: list[Document]) -> None:
        rows = [{**one, "seen": orjson.dumps(one["seen"]).decode()} for one in batch]
        table = pa.Table.from_pylist(rows, _TABLE)
        lsn = self.written // BATCH + 1
        places = [pa.array([lsn] * len(rows), pa.int64()), pa.array(range(len(rows)), pa.int32())]
        for field, column in zip(PLACE_FIELDS, places, strict=True):
            table = table.append_column(field, column)
        for one in self._tables:
            one.append(table)

    def remove(self, lanes: Sequence[str]) -> None:  # noqa: ARG002 - those who read leave nothing here
        if not kept_on_host(self._catalog):
            self._drop()
            namespace, *_ = self._catalog.identifier("")
            load_catalog(self._catalog.name, **self._catalog.properties).drop_namespace(namespace)

    def _drop(self) -> None:
        catalog = load_catalog(self._catalog.name, **self._catalog.properties)
        for one in self._collections:
            catalog.purge_table(self._catalog.identifier(one.name))
        del self._tables

    @cached_property
    def _tables(self) -> list[Any]:
        tables = Tables(self._catalog)
        return [
            tables.load(one.name) or tables.create(one.name, _TABLE, one.key, "") for one in self._collections
        ]


class KafkaFeed(Feed):
    """Writes to a topic. With one partition, rows are in order and an epoch reads exactly one write."""

    name = "kafka"
    limits: Mapping[str, int] = {"rows": BATCH}

    def __init__(
        self,
        client: ClientOptions,
        topic: str,
        source_options: Mapping[str, str] | None = None,
        partitions: int = 1,
    ) -> None:
        """`source_options` are those by which Spark signs in."""
        super().__init__()
        self._partitions = partitions
        self._client, self._topic, self._source_options = client, topic, dict(source_options or {})

    @property
    def source(self) -> Mapping[str, Any]:
        kafka: dict[str, Any] = {"bootstrap": self._client.bootstrap, "topic": self._topic}
        if self._source_options:
            kafka["options"] = self._source_options
        return {"source": {"kafka": kafka}}

    def remove(self, lanes: Sequence[str]) -> None:
        delete_topics(self._client, [self._topic])
        delete_groups(self._client, [f"headrace-{lane}" for lane in lanes])

    def _write(self, batch: list[Document]) -> None:
        for one in batch:
            self._producer.produce(self._topic, orjson.dumps(one), key=one["key"])
        if self._producer.flush(_SECONDS):
            raise EndpointUnavailable(f"topic {self._topic!r} of {self._client.bootstrap} takes no messages")

    def _drop(self) -> None:
        delete_topics(self._client, [self._topic])
        del self._producer

    @cached_property
    def _producer(self) -> Any:
        from confluent_kafka import Producer

        make_topic(self._client, self._topic, {}, self._partitions)
        return Producer({**self._client.producer_config()})
