"""Materializations in `headrace.yaml`: their endpoint, bindings and sources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from headrace.config.values import (
    FilePath,
    JsonObject,
    Options,
    Section,
    Text,
    Texts,
    as_location,
    seconds,
    text_for,
)
from headrace.errors import ConfigError
from headrace.pipeline.settings import (
    CollectionSource,
    ConnectorTls,
    DeadLetterSettings,
    FormatSource,
    Guarantee,
    KafkaSource,
    Limits,
    SinkTarget,
    Source,
    Trigger,
)
from headrace.sinks.registry import sink_formats

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ADDRESS = re.compile(r"(unix:.+|[^\s:,]+:\d+|\[[0-9a-fA-F:]+\]:\d+)")
_FILES = ("parquet", "delta", "hudi")
_TABLE = re.compile(r"[^\s./]+(\.[^\s./]+)+")


def _bootstrap(value: str) -> str:
    addresses = [address.strip() for address in value.split(",")]
    if not all(map(_ADDRESS.fullmatch, addresses)):
        raise ValueError("write HOST:PORT, or several with commas between them")
    return ",".join(addresses)


def _grpc_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("write HOST:PORT, such as 127.0.0.1:9000, or unix:/path")
    return value


def _read_file(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in (".", ".."):
        raise ValueError("a topic's name has letters, digits, dots, dashes and underscores, at most 249")
    return value


def _without_prefix(options: dict[str, str]) -> dict[str, str]:
    """Refuses names with the prefix that Spark's own options for Kafka have."""
    for name in options:
        if name.startswith("kafka."):
            raise ValueError(f"write {name.removeprefix('kafka.')}, without kafka. before it")
    return options


def _starting_offsets(value: str) -> str:
    if value in ("earliest", "latest"):
        return value
    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, Mapping):
        raise ValueError('write earliest, latest, or JSON as Spark takes it, such as {"orders": {"0": 17}}')
    return value


def _trigger(value: Any) -> Any:
    if isinstance(value, Trigger):
        return value
    if value == "continuous":
        return Trigger()
    if value == "once":
        return Trigger(once=True)
    try:
        return Trigger(interval=seconds(value))
    except ValueError:
        raise ValueError("write once, continuous, or a time such as 5s") from None


def _sink_format(value: str) -> str:
    if value not in (known := sink_formats()):
        raise ValueError(f"there is no sink {value!r}; there are {', '.join(known)}")
    return value


def _location(format_name: str, location: str, info: ValidationInfo) -> str:
    """Normalizes the locations of known formats; other packages' formats interpret theirs themselves."""
    if format_name == "iceberg" and not _TABLE.fullmatch(location):
        raise ValueError("write the name of a table with its namespace, such as quality.dead_orders")
    if format_name == "kafka":
        return _topic(location)
    return as_location(location, info) if format_name in _FILES else location


class ConnectorTlsConfig(Section):
    ca: FilePath | None = None
    """Certificates of the authorities that the connector's is of, in PEM; without it, the machine's."""
    certificate: FilePath | None = None
    """Ours, in PEM, for a connector that was started with --tls-client-ca."""
    key: FilePath | None = None
    """Its private key, in PEM."""

    @model_validator(mode="after")
    def _is_a_pair(self) -> ConnectorTlsConfig:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self

    def settings(self) -> ConnectorTls:
        return ConnectorTls(*(_read_file(path) for path in (self.ca, self.certificate, self.key)))


class ConnectorConfig(Section):
    name: Text
    """The connector's name."""
    grpc: Annotated[str, AfterValidator(_grpc_address)] | None = None
    """HOST:PORT where `headrace connector NAME --grpc HOST:PORT` runs; without it, it runs in Spark."""
    tls: ConnectorTlsConfig | None = None
    """Reach it with TLS; {} is enough if its certificate is of an authority that the machine knows."""

    @model_validator(mode="after")
    def _is_elsewhere(self) -> ConnectorConfig:
        if self.tls is not None and self.grpc is None:
            raise ValueError(
                "tls goes with grpc: a connector that runs in Spark is not reached over a network"
            )
        return self


class KafkaConfig(Section):
    bootstrap: Annotated[str, AfterValidator(_bootstrap)]
    """HOST:PORT of brokers, with commas between them."""
    topic: Annotated[str, AfterValidator(_topic)]
    """Whose values are JSON documents of the collection."""
    starting_offsets: Annotated[str, AfterValidator(_starting_offsets)] = KafkaSource.starting_offsets
    """Where the first run begins: earliest, latest, or Spark's JSON of offsets."""
    group: str = ""
    """The consumer group whose offsets follow ours; headrace-NAME if empty."""
    options: Annotated[Options, AfterValidator(_without_prefix)] = Field(default_factory=dict, repr=False)
    """Of Kafka itself, such as security.protocol."""


class SourceConfig(Section):
    kafka: KafkaConfig | None = None
    """A topic."""
    format: Text | None = None
    """A streaming source of Spark's, such as rate or delta."""
    options: Options = Field(default_factory=dict, repr=False)
    """Of the format."""
    order_by: Texts = ()
    """Columns that say which of two rows was written first."""
    ddl: str = Field(default="", alias="schema")
    """The format's columns in Spark's DDL, for one that wants them."""

    @model_validator(mode="after")
    def _is_one(self) -> SourceConfig:
        if (self.kafka is None) == (self.format is None):
            raise ValueError(
                "give one of kafka and format; without a source, the collection's own table is read"
            )
        if self.kafka and (self.options or self.order_by or self.ddl):
            raise ValueError("options, order_by and schema go with format; those of Kafka are below kafka")
        return self

    def settings(self) -> Source:
        if self.kafka:
            kafka = self.kafka
            return KafkaSource(
                kafka.bootstrap, kafka.topic, kafka.starting_offsets, kafka.group, kafka.options
            )
        assert self.format
        return FormatSource(self.format, self.options, self.order_by, self.ddl)


class FieldsConfig(Section):
    include: Texts = ()
    """Stored though the connector does not recommend it; `_document` is the whole document."""
    exclude: Texts = ()
    """Not stored."""


class SinkTargetConfig(Section):
    location: Text
    """A folder or its URL, a table's name in the catalog, or a topic, as the format has it."""
    mode: Literal["append", "view"] = "append"
    """append: each epoch's combined rows, with its number; view: one row for each key."""
    partition_by: Texts = ()
    """Columns by whose values files are laid out."""

    def settings(self) -> SinkTarget:
        return SinkTarget(self.location, self.mode == "view", self.partition_by)


class SinkConfig(Section):
    format: Annotated[str, AfterValidator(_sink_format)]
    """parquet, iceberg, delta, hudi, kafka, or one that another package brings."""
    options: Options = Field(default_factory=dict, repr=False)
    """Of the format and of its storage."""
    shared: bool = False
    """Folders that it goes to are on storage that all hosts share, and that survives any of them."""


class BindingConfig(Section):
    collection: Text
    """One of `collections`."""
    resource: JsonObject = Field(default_factory=dict)
    """Where it goes in the endpoint, as the connector wants it, such as table."""
    sinks: dict[str, Annotated[SinkTargetConfig, text_for("location")]] = Field(default_factory=dict)
    """Where it goes in each of the materialization's sinks, by the sink's name."""
    fields: FieldsConfig = FieldsConfig()
    """Which fields are stored; without it, what the connector recommends."""
    source: SourceConfig | None = None
    """Where rows come from; without it, the collection's own table."""

    def source_settings(self) -> Source:
        return self.source.settings() if self.source else CollectionSource(self.collection)

    def with_locations(self, sinks: Mapping[str, SinkConfig], info: ValidationInfo) -> BindingConfig:
        """Returns the binding with locations as the formats of the sinks expect them: a path becomes a
        folder's URL."""
        targets = dict(self.sinks)
        for name, target in self.sinks.items():
            if name in sinks:
                try:
                    location = _location(sinks[name].format, target.location, info)
                except ValueError as error:
                    raise ValueError(f"the location in sink {name!r}: {error}") from None
                targets[name] = target.model_copy(update={"location": location})
        return self.model_copy(update={"sinks": targets})


class DeadLettersConfig(Section):
    format: Annotated[str, AfterValidator(_sink_format)] = "parquet"
    """How they are kept: as any sink keeps rows."""
    location: Text
    """A folder or its URL, a table's name in the catalog, or a topic."""
    options: Options = Field(default_factory=dict, repr=False)
    """Of the format and of its storage."""
    shared: bool = False
    """A folder is on storage that all hosts share, and that survives any of them."""

    @field_validator("location")
    @classmethod
    def _is_of_the_format(cls, location: str, info: ValidationInfo) -> str:
        return _location(str(info.data.get("format")), location, info)

    def settings(self) -> DeadLetterSettings:
        return DeadLetterSettings(self.format, self.location, self.options, self.shared)


class EpochLimitsConfig(Section):
    rows: Annotated[int, Field(gt=0)] | None = None
    """At most this many rows of each source."""
    files: Annotated[int, Field(gt=0)] | None = None
    """At most this many files of a collection."""


TriggerConfig = Annotated[
    Trigger,
    BeforeValidator(_trigger),
    WithJsonSchema({"anyOf": [{"enum": ["once", "continuous"]}, {"type": ["string", "number"]}]}),
]


class MaterializationConfig(Section):
    connector: Annotated[ConnectorConfig, text_for("name")] | None = None
    """A connector's name, or where one is reached; not needed beside sinks."""
    config: JsonObject = Field(default_factory=dict, repr=False)
    """Of the endpoint, as the connector wants it."""
    sinks: dict[str, SinkConfig] = Field(default_factory=dict)
    """What else commits each epoch, all or none, by name."""
    shards: Annotated[int, Field(gt=0, le=4096)] = 1
    """How many tasks write at once, each for its range of keys."""
    trigger: TriggerConfig = Trigger()
    """When an epoch begins: a time after the one before, such as 5s; once; or continuous."""
    limits: EpochLimitsConfig = EpochLimitsConfig()
    """What one epoch takes."""
    guarantee: Guarantee | None = None
    """Refuse to start if less can be had."""
    dead_letters: DeadLettersConfig | None = None
    """Where rows go that are dropped; without it, a folder in `state`."""
    bindings: Annotated[tuple[BindingConfig, ...], Field(min_length=1)]
    """Which collections, and where each goes."""

    @model_validator(mode="after")
    def _goes_somewhere(self) -> MaterializationConfig:
        if self.connector is None and not self.sinks:
            raise ValueError("give a connector, or sinks, or both")
        if self.connector is None and self.config:
            raise ValueError("config is the connector's, and there is none; a sink has options")
        return self

    @model_validator(mode="after")
    def _locations_are_of_their_formats(self, info: ValidationInfo) -> MaterializationConfig:
        if not self.sinks:
            return self
        bindings = tuple(binding.with_locations(self.sinks, info) for binding in self.bindings)
        return self.model_copy(update={"bindings": bindings})

    def epoch_limits(self) -> Limits:
        return Limits(self.limits.rows or 0, self.limits.files or 0)
