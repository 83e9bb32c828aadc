"""What is certified: sources, targets and profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from headrace.certify.feeds import CollectionFeed, Feed, KafkaFeed
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.embedded import embedded_targets
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.redis import LatestRedisTarget, RedisTarget
from headrace.certify.targets.served import ServedTarget
from headrace.certify.targets.target import Target
from headrace.certify.targets.webhook import WebhookTarget
from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.kafka.config import ClientOptions
from headrace.objects import ObjectStore
from headrace.pipeline.settings import Profile

QUICK = ("sqlite", "parquet", "iceberg", "delta")
"""Of what is embedded."""


@dataclass(frozen=True)
class Bucket:
    """Where what survives a host is kept."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of obstore."""
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of pyiceberg's: of a catalog that is not on this host, if they have a `uri`, and those that
    reach the same storage, such as s3.endpoint."""

    @property
    def has_catalog(self) -> bool:
        return "uri" in self.catalog

    @property
    def texts(self) -> dict[str, str]:
        """The options as sinks have them, of which each is a text."""
        client = self.options.get("client_options", {})
        given = {**{name: value for name, value in self.options.items() if value is not client}, **client}
        return {name: json.dumps(one) if isinstance(one, bool) else str(one) for name, one in given.items()}

    def below(self, name: str) -> Bucket:
        return replace(self, url=f"{self.url}/{name}")

    def look(self) -> list[str]:
        return self._objects().list("", "look what is there")

    def empty(self) -> None:
        store = self._objects()
        for path in self.look():
            store.remove(path, f"remove {path}")

    def _objects(self) -> ObjectStore:
        return ObjectStore(self.url, self.options)


@dataclass(frozen=True)
class Brokers:
    """Of Kafka."""

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the sink, and of our own client."""
    source_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of Spark's, which are those of Java."""
    is_source: bool = True

    @property
    def client(self) -> ClientOptions:
        return ClientOptions.of({**self.options, "bootstrap": self.bootstrap})


@dataclass(frozen=True)
class Endpoints:
    """Servers beside what is embedded."""

    embedded: bool = True
    """Whether what needs no server is certified too."""
    postgres: Mapping[str, Any] | None = field(default=None, repr=False)
    redis: Mapping[str, Any] | None = field(default=None, repr=False)
    kafka: Brokers | None = None
    bucket: Bucket | None = None
    connectors: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """Of anybody's: name, config, resource, and grpc and tls if it is served."""
    only: tuple[str, ...] = ()
    """Formats and connectors of ours; all if empty."""

    def profiles(self) -> list[Profile]:
        """Those that can be had: what is to survive a host has to come from elsewhere, too."""
        found = [Profile.SINGLE_NODE_DURABLE, Profile.DEV_LOCAL]
        comes_from_elsewhere = self.bucket is not None and (self.bucket.has_catalog or self._reads_kafka)
        return [*found, Profile.DISTRIBUTED_DURABLE] if comes_from_elsewhere else found

    @property
    def _reads_kafka(self) -> bool:
        return self.kafka is not None and self.kafka.is_source

    def catalog(self, profile: Profile, folder: Path) -> CatalogSettings | None:
        """Returns the catalog of collections, in `folder` or elsewhere; None if none survives a host."""
        if profile is not Profile.DISTRIBUTED_DURABLE:
            return embedded_catalog(folder)
        assert self.bucket is not None
        if not self.bucket.has_catalog:
            return None
        is_rest = self.bucket.catalog.get("type") == "rest"  # which knows its warehouse
        warehouse = {} if is_rest else {"warehouse": f"{self.bucket.url}/warehouse"}
        return CatalogSettings(
            namespace=f"headrace_certify_{uuid4().hex[:12]}", properties={**warehouse, **self.bucket.catalog}
        )

    def feeds(self, catalog: CatalogSettings | None) -> list[Feed]:
        """With the first of them all scenarios are tried."""
        feeds: list[Feed] = [CollectionFeed(catalog)] if catalog else []
        if self.kafka and self._reads_kafka:
            topic = f"headrace-certify-{uuid4().hex[:12]}"
            feeds.append(KafkaFeed(self.kafka.client, topic, self.kafka.source_options))
        for feed in feeds[:1]:
            feed.is_first = True
        return feeds

    def targets(
        self, profile: Profile, folder: Path, catalog: CatalogSettings | None, *, quick: bool = False
    ) -> list[Target]:
        found: list[Target] = []
        if profile is Profile.DISTRIBUTED_DURABLE:
            assert self.bucket is not None
            url, options = self.bucket.url, self.bucket.texts
            found += [
                WebhookTarget(),
                FilesTarget(f"{url}/files", dict(self.bucket.options)),
                ParquetTarget(f"{url}/parquet", options),
                *([IcebergTarget(catalog)] if catalog else ()),
                DeltaTarget(f"{url}/delta", options),
            ]
        elif self.embedded:
            assert catalog is not None
            found += embedded_targets(folder, catalog)
            if quick and not self.only:
                found = [target for target in found if target.name in QUICK]
        if self.postgres is not None:
            found.append(PostgresTarget(self.postgres))
        if self.redis is not None:
            found += [RedisTarget(self.redis), LatestRedisTarget(self.redis)]
        if self.kafka:
            found.append(KafkaTarget(self.kafka.bootstrap, self.kafka.options))
        if self.only:
            found = [target for target in found if target.name.partition("-")[0] in self.only]
        found += [
            ServedTarget(one["name"], one["config"], one["resource"], one.get("grpc", ""), one.get("tls"))
            for one in self.connectors
        ]
        if not found:
            raise ConfigError("there is no endpoint to certify: name one with --endpoint")
        return found
