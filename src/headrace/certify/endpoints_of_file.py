"""Endpoints as a `headrace.yaml` has them: those that its materializations read from and go to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from headrace.certify.endpoints import Brokers, Bucket, Endpoints
from headrace.certify.targets.served import LANE
from headrace.config import HeadraceConfig
from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings, kept_on_host
from headrace.kafka.config import client_options
from headrace.kafka.security import OPTIONS as SECURITY_OPTIONS
from headrace.pipeline.settings import KafkaSource, MaterializationSettings

_BY_CONNECTION = ("postgres", "redis")
_EMBEDDED = ("sqlite", "webhook", "files")
_NAMING = ("table", "name", "prefix", "path", "topic", "collection", "index", "stream", "key")
"""What connectors call the thing of theirs that has a name."""


def endpoints_of_file(config: HeadraceConfig) -> Endpoints:
    """Tables, topics and prefixes in them are the certification's."""
    settings = config.pipeline_settings()
    found = _Found()
    for one in settings.materializations:
        found.add(one)
    return found.endpoints(settings.catalog)


class _Found:
    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._only: list[str] = []
        self._connectors: list[Mapping[str, Any]] = []
        self._brokers: list[Brokers] = []
        self._buckets: list[Bucket] = []

    def add(self, one: MaterializationSettings) -> None:
        for sink in one.sinks:
            self._only.append(sink.format)
            if sink.format == "kafka":
                options = {name: text for name, text in sink.options.items() if name in SECURITY_OPTIONS}
                self._brokers.append(Brokers(sink.options["bootstrap"], options, is_source=False))
            else:
                locations = [target.location for target in sink.targets if target is not None]
                self._buckets += _buckets(locations, sink.options)
        for binding in one.bindings:
            if isinstance(binding.source, KafkaSource):
                self._brokers.append(_of_source(binding.source))
        if one.connector and not one.connector_address and one.connector in _BY_CONNECTION:
            self._keep(one.connector, dict(one.endpoint))
        elif one.connector and not one.connector_address and one.connector in _EMBEDDED:
            self._only.append(one.connector)
            url = str(one.endpoint.get("url", ""))
            self._buckets += _buckets([url], one.endpoint.get("options", {}))
        elif one.connector:
            self._connectors.append(_connector(one))

    def _keep(self, kind: str, value: dict[str, Any]) -> None:
        if self._values.setdefault(kind, value) != value:
            raise ConfigError(
                f"the file has two endpoints of the connector {kind}: certify one after the other, with "
                f"--endpoint {kind}=..."
            )
        self._only.append(kind)

    def endpoints(self, catalog: CatalogSettings | None) -> Endpoints:
        if self._brokers:
            self._values["kafka"] = _one_cluster(self._brokers)
        if self._buckets:
            of_storage = ("s3.", "client.", "gcs.", "adls.")
            reached = dict(catalog.properties) if catalog else {}
            if catalog and kept_on_host(catalog):
                reached = {key: value for key, value in reached.items() if key.startswith(of_storage)}
            first = self._buckets[0]
            self._values["bucket"] = Bucket(first.url, first.options, reached)
        only = tuple(self._only) or ("nothing",)  # connectors of others are not chosen by it
        return Endpoints(connectors=tuple(self._connectors), only=only, **self._values)


def _buckets(urls: list[str], options: Mapping[str, Any]) -> Iterator[Bucket]:
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "s3":
            yield Bucket(f"s3://{parts.netloc}", options)


def _of_source(source: KafkaSource) -> Brokers:
    ours = {
        name: text
        for name, text in client_options(source.bootstrap, source.options).items()
        if name in SECURITY_OPTIONS
    }
    return Brokers(source.bootstrap, ours, source.options)


def _one_cluster(brokers: list[Brokers]) -> Brokers:
    if len({one.bootstrap for one in brokers}) > 1:
        raise ConfigError(
            "the file has topics of several Kafka clusters: certify one after the other, with "
            "--endpoint kafka=..."
        )
    return next((one for one in brokers if one.is_source), brokers[0])


def _connector(one: MaterializationSettings) -> dict[str, Any]:
    if one.connector_tls is not None:
        raise ConfigError(
            f"connector {one.connector!r} is reached with TLS: certify it with --endpoint connector="
            '{"name": ..., "grpc": ..., "tls": {...}, "resource": {...}}'
        )
    return {
        "name": one.connector,
        "config": dict(one.endpoint),
        "grpc": one.connector_address,
        "resource": _as_lane(one.connector, one.bindings[0].resource),
    }


def _as_lane(connector: str, resource: Mapping[str, Any]) -> dict[str, Any]:
    """With another name in the place of the one that users have."""
    names = [key for key in _NAMING if isinstance(resource.get(key), str)]
    if not names:
        raise ConfigError(
            f"it cannot be seen which part of the resource of connector {connector!r} is its name: certify "
            'it with --endpoint connector={"name": ..., "resource": {"...": "t_{lane}"}}'
        )
    return {**resource, names[0]: f"{resource[names[0]]}_{LANE}"}
