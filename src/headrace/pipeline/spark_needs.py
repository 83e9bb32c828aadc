"""What Spark has to have for a file's materializations."""

from __future__ import annotations

from headrace.pipeline.settings import CollectionSource, FormatSource, KafkaSource, PipelineSettings
from headrace.pipeline.spark_catalogs import needs_of
from headrace.pipeline.spark_lines import Needs
from headrace.sinks.registry import find_sink


def needs(settings: PipelineSettings) -> set[Needs]:
    """What Spark has to have for all materializations."""
    found: set[Needs] = set()
    for one in settings.materializations:
        formats = {sink.format for sink in one.sinks}
        if one.dead_letters is not None:
            formats.add(one.dead_letters.format)
        uses_catalog = "iceberg" in formats
        for name in formats:
            found |= {Needs(need) for need in find_sink(name).needs}
        for binding in one.bindings:
            match binding.source:
                case KafkaSource() | FormatSource(format="kafka"):
                    found.add(Needs.KAFKA)
                case CollectionSource() | FormatSource(format="iceberg"):
                    uses_catalog = True
        if uses_catalog and settings.catalog is not None:
            found |= needs_of(settings.catalog)
    return found
