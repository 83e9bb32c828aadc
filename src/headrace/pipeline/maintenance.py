"""Compaction and cleaning of what sinks have written, beside a pipeline that runs or without one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from headrace.errors import HeadraceError
from headrace.pipeline.committing import graver
from headrace.pipeline.dead_letters.sink import NAME as DEAD_LETTERS
from headrace.pipeline.dead_letters.sink import is_there, place_of
from headrace.pipeline.plan import needs, planned_sinks
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings
from headrace.pipeline.state_paths import open_recovery_log
from headrace.sinks.contract import Place
from headrace.sinks.registry import find_sink
from headrace.spark.catalogs import own_session
from headrace.spark.errors import failure_of
from headrace.spark.session import make_session


def maintain(settings: PipelineSettings, age: timedelta) -> Iterator[tuple[str, str]]:
    """The sink and a sentence on each thing that was done.

    One that fails keeps no other from it; why it did is raised at the end.
    """
    failed: list[HeadraceError] = []
    shared = make_session(settings.spark, "headrace-maintain", needs(settings))
    spark = own_session(shared, settings.catalog)
    for one in settings.materializations:
        recovery_log = open_recovery_log(settings, one.name)
        for name, format_name, place in _places(settings, one):
            try:
                # Read anew for each: by now the pipeline may be further.
                decision = recovery_log.read().decision
                kept = decision.handles.get(name) if decision else None
                if name == DEAD_LETTERS and one.dead_letters and not is_there(kept or {}, one.dead_letters):
                    kept = None  # it needs nothing of what is here
                sink = find_sink(format_name).open(name, place, spark)
                for sentence in sink.maintain(age, kept or None):
                    yield f"{one.name}, {name}", sentence
            except Exception as error:  # noqa: BLE001 - whatever it is, the others have their turn
                failed.append(failure_of(error))
                yield f"{one.name}, {name}", f"failed: {failed[-1].message}"
    if failed:
        raise graver(failed)


def _places(settings: PipelineSettings, one: MaterializationSettings) -> Iterator[tuple[str, str, Place]]:
    for sink in planned_sinks(one, settings.catalog):
        yield sink.name, sink.format, sink.place
    if one.dead_letters is not None:
        yield (
            DEAD_LETTERS,
            one.dead_letters.format,
            place_of(one.dead_letters, one.name, settings.catalog),
        )
