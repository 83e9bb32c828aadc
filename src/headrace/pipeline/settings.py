"""The settings of a pipeline, as plain values; a `headrace.yaml` and `headrace.materialize` make them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.collections import Collection
from headrace.model.materializations import Binding, Materialization
from headrace.spark.session import SparkSettings


class Guarantee(StrEnum):
    """How often a row may take effect, from the weakest promise to the strongest."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"
    """A row may be written again, with the value that it has."""
    EXACTLY_ONCE = "exactly-once"


class Profile(StrEnum):
    """How much the state of a pipeline survives."""

    DEV_LOCAL = "dev-local"
    """Nothing."""
    SINGLE_NODE_DURABLE = "single-node-durable"
    """The process."""
    DISTRIBUTED_DURABLE = "distributed-durable"
    """The host."""


class Action(StrEnum):
    """How a row is treated that a rule finds wrong."""

    DROP = "drop"
    """It goes to the dead letters."""
    FAIL = "fail"
    """The epoch fails, and nothing of it is written."""
    WARN = "warn"
    """It is counted, and goes on."""


@dataclass(frozen=True)
class Rule:
    """A rule of data quality; exactly one of the checks is given."""

    name: str
    action: Action = Action.DROP
    not_null: tuple[str, ...] = ()
    """Fields."""
    field: str = ""
    """Which `minimum` and `maximum`, `regex` or `in_set` are about. A null in it is right."""
    minimum: Any = None
    maximum: Any = None
    regex: str = ""
    in_set: tuple[Any, ...] = ()
    unique: tuple[str, ...] = ()
    """Fields; of rows of one epoch that agree in all of them, the first by order is right."""
    expression: str = ""
    """Spark SQL over the fields; a row for which it is false or null is wrong."""


@dataclass(frozen=True)
class CollectionSource:
    """The Iceberg table of a collection."""

    collection: str


@dataclass(frozen=True)
class KafkaSource:
    """JSON values of a topic."""

    bootstrap: str
    topic: str
    starting_offsets: str = "earliest"
    group: str = ""
    """The consumer group whose offsets follow ours, for lag monitors; `headrace-NAME` if empty."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More of Kafka's own, without the prefix, such as security.protocol."""


FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""Formats whose sources keep in Spark's checkpoint folder which files they have read."""


@dataclass(frozen=True)
class FormatSource:
    """Any streaming source that Spark has."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    order_by: tuple[str, ...] = ()
    """Columns that say which of two rows was written first."""
    schema: str = ""
    """In Spark's DDL, for formats that want one."""


Source = CollectionSource | KafkaSource | FormatSource


@dataclass(frozen=True)
class BindingSettings:
    collection: Collection
    source: Source
    resource: Mapping[str, Any]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    invalid: Action = Action.FAIL
    """How a row is treated that is not what the collection's schema says; not WARN."""


@dataclass(frozen=True)
class DeadLetterSettings:
    """Where rows go that a rule drops."""

    format: str = "parquet"
    """The name of a sink that is installed."""
    location: str = ""
    """A folder's URL, a table's name in the catalog, or a topic."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the format and of its storage."""
    shared: bool = False
    """Whether all hosts share the location, as of a sink."""


@dataclass(frozen=True)
class SinkTarget:
    """Where one binding goes in a sink."""

    location: str
    """As the sink's format has it: a folder's URL, the name of a table, a topic."""
    is_view: bool = False
    """One row for each key; otherwise each epoch's combined rows are appended."""
    partitions: tuple[str, ...] = ()
    """Columns."""


@dataclass(frozen=True)
class SinkSettings:
    """A sink that commits each epoch together with all others, and with the connector."""

    name: str
    format: str
    """The name of one that is installed."""
    targets: tuple[SinkTarget | None, ...]
    """For each binding; None for one that does not go there."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the format and of its storage."""
    shared: bool = False
    """Whether its folders are the same on all hosts, and survive any of them."""


@dataclass(frozen=True)
class Trigger:
    """When an epoch starts: `interval` seconds after the last one did; 0 for at once."""

    interval: float = 0.0
    once: bool = False
    """Everything that is there now, in as many epochs as the limits make of it, and then end."""


@dataclass(frozen=True)
class Limits:
    """How much an epoch may take from each source; 0 for no limit."""

    rows: int = 0
    files: int = 0
    """Files of a collection."""


@dataclass(frozen=True)
class ConnectorTls:
    """Certificates by which we and a connector over gRPC know each other; as PEM: workers need no files."""

    roots: bytes | None = None
    """Certificates of the authorities that it may be signed by; those of the machine if None."""
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class MaterializationSettings:
    name: str
    connector: str
    """The name of one that is installed; empty if there are sinks alone."""
    endpoint: Mapping[str, Any] = field(repr=False)
    bindings: tuple[BindingSettings, ...]
    connector_address: str = ""
    """The address of a connector that serves gRPC, in place of one that runs in Spark's own workers."""
    shards: int = 1
    trigger: Trigger = Trigger()
    limits: Limits = Limits()
    guarantee: Guarantee | None = None
    """Refuses to start if less can be had."""
    dead_letters: DeadLetterSettings | None = None
    connector_tls: ConnectorTls | None = None
    """None: without TLS."""
    sinks: tuple[SinkSettings, ...] = ()


@dataclass(frozen=True)
class PipelineSettings:
    materializations: tuple[MaterializationSettings, ...]
    state_url: str
    """Where recovery logs and Spark's checkpoints are: file:///folder or s3://bucket/prefix."""
    state_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of obstore."""
    catalog: CatalogSettings | None = field(default=None, repr=False)
    """The catalog of collections, and of dead letters that are tables."""
    spark: SparkSettings = field(default_factory=SparkSettings)
    profile: Profile = Profile.SINGLE_NODE_DURABLE


def definition_digest(settings: MaterializationSettings, materialization: Materialization) -> str:
    """Another one means that an epoch that is run again may give other rows."""
    parts = map(_parts, settings.bindings, materialization.bindings)
    text = json.dumps(list(parts), sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _parts(settings: BindingSettings, binding: Binding) -> dict[str, object]:
    return {
        "key": settings.collection.key,
        "schema": settings.collection.schema,
        "order_by": settings.source.order_by if isinstance(settings.source, FormatSource) else (),
        "rules": [asdict(rule) for rule in settings.rules],
        "invalid": settings.invalid,
        "values": [(field.name, field.pointer) for field in binding.values],
        "document": binding.document,
        "delta_updates": binding.delta_updates,
    }


def _plain(value: object) -> object:
    """Encodes what a rule may compare with: dates, decimals, and mappings that are no dict."""
    return dict(value) if isinstance(value, Mapping) else str(value)
