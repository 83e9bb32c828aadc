"""What the settings of a source of Kafka say about its topics and about where it begins; asks no broker."""

from __future__ import annotations

import json

from headrace.pipeline.settings import FormatSource, KafkaSource

EARLIEST, LATEST = -2, -1  # as Spark writes them
_BY_TIME = ("startingtimestamp", "startingoffsetsbytimestamp")


def begins_at_end(starting: str) -> bool:
    """Whether some partition begins at its end, by Spark's `startingOffsets`."""
    if starting in ("earliest", "latest", ""):
        return starting == "latest"
    return any(LATEST in offsets.values() for offsets in json.loads(starting).values())


def starting_offsets(source: FormatSource) -> str:
    """Returns what Spark's Kafka source goes by; empty if it begins at a time."""
    options = _by_lower_case(source)
    if any(name in options for name in _BY_TIME):
        return ""
    given = options.get("startingoffsets", "latest").strip()
    return given if given.startswith("{") else given.lower()


def keeps_start(source: FormatSource) -> bool:
    """Whether the recovery log keeps where it begins, if that is at its end."""
    return bool(topics_of(source) and starting_offsets(source))


def fails_on_loss(source: FormatSource) -> bool:
    """Whether Spark stops where rows are gone, as it does by default."""
    return _by_lower_case(source).get("failondataloss", "").lower() != "false"


def topics_of(source: FormatSource) -> list[KafkaSource]:
    """Returns the topics of a `format: kafka` that names them one by one; none for any other source."""
    if source.format.lower() != "kafka":
        return []
    options = _by_lower_case(source)
    bootstrap = options.get("kafka.bootstrap.servers", "")
    given = {
        name.removeprefix("kafka."): value
        for name, value in source.options.items()
        if name.startswith("kafka.")
    }
    names = [name.strip() for name in options.get("subscribe", "").split(",")]
    return [KafkaSource(bootstrap, name, options=given) for name in names if name]


def _by_lower_case(source: FormatSource) -> dict[str, str]:
    """Spark does not look at the case of an option's name."""
    return {name.lower(): value for name, value in source.options.items()}
