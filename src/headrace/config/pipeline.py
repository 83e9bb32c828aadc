"""Converts `headrace.yaml` to the settings of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.config.collections import CollectionConfig
from headrace.config.materializations import BindingConfig, MaterializationConfig, SinkConfig
from headrace.model.collections import Collection
from headrace.pipeline.settings import (
    Action,
    BindingSettings,
    DeadLetterSettings,
    MaterializationSettings,
    SinkSettings,
)


def materialization_settings(
    name: str,
    config: MaterializationConfig,
    collections: Mapping[str, CollectionConfig],
    state_url: str,
) -> MaterializationSettings:
    return MaterializationSettings(
        name=name,
        connector=config.connector.name if config.connector else "",
        endpoint=config.config,
        bindings=tuple(_binding(binding, collections[binding.collection]) for binding in config.bindings),
        connector_address=(config.connector and config.connector.grpc) or "",
        connector_tls=config.connector.tls.settings() if config.connector and config.connector.tls else None,
        shards=config.shards,
        trigger=config.trigger,
        limits=config.epoch_limits(),
        guarantee=config.guarantee,
        dead_letters=_dead_letters(name, config, collections, state_url),
        sinks=tuple(_sink(name, sink, config.bindings) for name, sink in config.sinks.items()),
    )


def _sink(name: str, config: SinkConfig, bindings: Sequence[BindingConfig]) -> SinkSettings:
    chosen = (binding.sinks.get(name) for binding in bindings)
    targets = tuple(target.settings() if target is not None else None for target in chosen)
    return SinkSettings(name, config.format, targets, config.options, config.shared)


def collection_of(name: str, config: CollectionConfig) -> Collection:
    return Collection(name, config.key, config.json_schema)


def what_drops(config: MaterializationConfig, collections: Mapping[str, CollectionConfig]) -> str:
    """Describes why a materialization needs dead letters, for a sentence; empty if it does not."""
    for binding in config.bindings:
        if what := collections[binding.collection].drops:
            return f"{what} of collection {binding.collection!r}"
    return ""


def _binding(config: BindingConfig, collection: CollectionConfig) -> BindingSettings:
    return BindingSettings(
        collection=collection_of(config.collection, collection),
        source=config.source_settings(),
        resource=config.resource,
        include=config.fields.include,
        exclude=config.fields.exclude,
        rules=tuple(rule.settings() for rule in collection.quality),
        invalid=Action(collection.invalid),
    )


def _dead_letters(
    name: str, config: MaterializationConfig, collections: Mapping[str, CollectionConfig], state_url: str
) -> DeadLetterSettings | None:
    if config.dead_letters:
        return config.dead_letters.settings()
    if what_drops(config, collections) and state_url.startswith("file:"):
        return DeadLetterSettings("parquet", f"{state_url.rstrip('/')}/dead-letters/{name}")
    return None
