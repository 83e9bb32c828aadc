"""Checks of a configuration across keys, each of which is valid by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.config.collections import CollectionConfig
from headrace.config.materializations import BindingConfig, MaterializationConfig
from headrace.config.pipeline import collection_of, what_drops
from headrace.config.reading import Wrong
from headrace.connectors.registry import connector_names
from headrace.errors import ConfigError, SchemaError
from headrace.ingest.collections import check_name
from headrace.ingest.yaml_files import KeyPath
from headrace.model.collections import DOCUMENT_FIELD, Collection
from headrace.model.reductions import check_annotations
from headrace.pipeline.guarantee import state_problem
from headrace.pipeline.quality.problems import field_types, reserved_property, rule_problem

if TYPE_CHECKING:
    from headrace.config.file import HeadraceConfig

# It is part of paths, of keys and of tables' rows.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,126}")
_TAKEN = "dead-letters"  # a folder beside those of the materializations


def check_pipeline(config: HeadraceConfig) -> None:
    """Raises `Wrong` for the first problem."""
    collections = {
        name: _check_collection(("collections", name), name, collection)
        for name, collection in config.collections.items()
    }
    for name, materialization in config.materializations.items():
        _check_materialization(("materializations", name), name, materialization, collections)
    if config.materializations:
        _check_locations(config)


def _check_collection(at: KeyPath, name: str, config: CollectionConfig) -> Collection:
    with _said_at(at):
        check_name(name)
    collection = collection_of(name, config)
    with _said_at((*at, "schema")):
        check_annotations(config.json_schema)
    with _said_at((*at, "key")):
        _ = collection.key_fields
    with _said_at((*at, "schema")):
        _ = collection.fields
    if name := reserved_property(collection):
        raise Wrong((*at, "schema", "properties", name), "this is a name of the pipeline's own: rename it")
    _check_rules((*at, "quality"), config, collection)
    return collection


def _check_rules(at: KeyPath, config: CollectionConfig, collection: Collection) -> None:
    fields = field_types(collection)
    for index, rule in enumerate(config.quality):
        others = [other.name for other in config.quality[:index]]
        if problem := rule_problem(rule.settings(), fields, others):
            raise Wrong((*at, index, *problem.where), problem.sentence)


def _check_materialization(
    at: KeyPath, name: str, config: MaterializationConfig, collections: Mapping[str, Collection]
) -> None:
    if not _NAME.fullmatch(name):
        raise Wrong(at, "a name has letters, digits, dashes and underscores, at most 127, and no digit first")
    if name == _TAKEN:
        raise Wrong(at, f"{_TAKEN} is a folder in state already: choose another name")
    connector = config.connector
    if connector and not connector.grpc and connector.name not in (known := connector_names()):
        raise Wrong(
            (*at, "connector"), f"there is no connector {connector.name!r}; there are {', '.join(known)}"
        )
    for sink in config.sinks:
        if not _NAME.fullmatch(sink):
            raise Wrong((*at, "sinks", sink), "a sink's name has letters, digits, dashes and underscores")
        if not any(sink in binding.sinks for binding in config.bindings):
            raise Wrong((*at, "sinks", sink), "no binding goes there: say where in a binding's sinks")
    for index, binding in enumerate(config.bindings):
        _check_binding((*at, "bindings", index), binding, collections)
        _check_targets((*at, "bindings", index), binding, config)


def _check_targets(at: KeyPath, binding: BindingConfig, config: MaterializationConfig) -> None:
    for name in binding.sinks:
        if name not in config.sinks:
            known = (
                f"there are {', '.join(config.sinks)}" if config.sinks else "add it to the materialization"
            )
            raise Wrong((*at, "sinks", name), f"there is no sink {name!r}; {known}")
    if config.connector is None:
        if binding.resource:
            raise Wrong((*at, "resource"), "this is the connector's, and there is none")
        if not binding.sinks:
            raise Wrong(at, "this binding goes nowhere: say where in its sinks")


def _check_binding(at: KeyPath, config: BindingConfig, collections: Mapping[str, Collection]) -> None:
    collection = collections.get(config.collection)
    if collection is None:
        known = f"there are {', '.join(collections)}" if collections else "add it below collections"
        raise Wrong((*at, "collection"), f"there is no collection {config.collection!r}; {known}")
    for key in ("include", "exclude"):
        for index, name in enumerate(getattr(config.fields, key)):
            if name != DOCUMENT_FIELD:
                with _said_at((*at, "fields", key, index)):
                    collection.field(name)
            if key == "exclude" and name in config.fields.include:
                raise Wrong((*at, "fields", key, index), f"{name!r} is also included: remove one")


def _check_locations(config: HeadraceConfig) -> None:
    state = config.state.url if config.state else "file:"
    if problem := state_problem(config.profile, state):
        raise Wrong(("state",), problem)
    for name, materialization in config.materializations.items():
        at = ("materializations", name, "dead_letters")
        dead = materialization.dead_letters
        if dead is None and not state.startswith("file:"):
            if what := what_drops(materialization, config.collections):
                raise Wrong(
                    at, f"this key is missing: {what} drops rows, and state is no folder: say where to"
                )
        elif dead and not dead.shared and (problem := state_problem(config.profile, dead.location)):
            raise Wrong((*at, "location"), problem)


@contextmanager
def _said_at(path: KeyPath) -> Iterator[None]:
    """Reports an error of the model at the key to which it belongs."""
    try:
        yield
    except (ConfigError, SchemaError) as error:
        raise Wrong(path, error.message) from None
