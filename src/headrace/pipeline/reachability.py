"""Asks everything that a materialization needs whether it answers, without Spark and without a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from headrace.errors import ConfigError, HeadraceError
from headrace.ingest.iceberg.settings import CatalogSettings, missing_file
from headrace.ingest.iceberg.tables import Tables
from headrace.pipeline.plan import Planned, PlannedSink
from headrace.pipeline.settings import (
    CollectionSource,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    Source,
)
from headrace.pipeline.sources.lag import check_topic
from headrace.pipeline.state_paths import open_recovery_log_for_reading
from headrace.sinks.ownership import refuse_other
from headrace.sinks.registry import find_sink


def unreachable(
    pipeline: PipelineSettings, settings: MaterializationSettings, planned: Planned
) -> Iterator[str]:
    """Yields a sentence for each part, but the connector's, that does not answer or is somebody else's."""
    questions: dict[str, Callable[[], object]] = {
        "state": lambda: open_recovery_log_for_reading(pipeline, settings.name).read()
    }
    for binding in settings.bindings:
        questions[_source_name(binding.source)] = partial(_ask_source, binding.source, pipeline.catalog)
    for sink in planned.sinks:
        questions[f"sink {sink.name}"] = partial(_ask_sink, sink)
    for what, ask in questions.items():
        try:
            ask()
        except HeadraceError as error:
            yield error.message if error.message.startswith(what) else f"{what}: {error.message}"


def _source_name(source: Source) -> str:
    match source:
        case CollectionSource(collection):
            return f"source collection {collection}"
        case KafkaSource(topic=topic):
            return f"source kafka {topic}"
        case _:
            return f"source {source.format}"


def _ask_source(source: Source, catalog: CatalogSettings | None) -> None:
    """Spark alone knows how to reach other formats."""
    match source:
        case CollectionSource(collection) if catalog is not None:
            if problem := missing_file(catalog):
                raise ConfigError(problem)
            Tables(catalog).load(collection)
        case KafkaSource():
            check_topic(source)


def _ask_sink(sink: PlannedSink) -> None:
    owner = find_sink(sink.format).look(sink.name, sink.place)
    refuse_other(sink.name, sink.place.location, owner, sink.place.owner(""))
