"""What the user says of a topic that a sink writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from urllib.parse import quote, unquote

from headrace.errors import ConfigError
from headrace.kafka.config import HEADER, ClientOptions
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Place

FORMAT = "kafka"
CHECKPOINTS = "headrace-checkpoints"
PREFIX = "headrace/"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"(\d+)\s*(s|m|h)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}
_MOST_SHARDS = 1000


class ValueFormat(StrEnum):
    JSON = "json"
    AVRO = "avro"


@dataclass(frozen=True)
class TopicOptions:
    """How rows become messages of a topic, and how long a transaction may be open."""

    topic: str
    prefix: str
    """Of our transactional ids, which end in the number of the shard."""
    client: ClientOptions
    key: tuple[str, ...] = ()
    has_own_keys: bool = False
    """Whether no two rows of an epoch have the same key. If some do, one task has to send all of them, so
    that they stay in order."""
    value_format: ValueFormat = ValueFormat.JSON
    shards: int = 1
    checkpoints: str = CHECKPOINTS
    offsets_group: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    transaction_timeout_ms: int = 900_000  # the longest that brokers allow if nobody told them
    recovery_time: timedelta = timedelta(minutes=10)

    @staticmethod
    def of(name: str, place: Place) -> TopicOptions:
        given = place.options
        client = ClientOptions.of(given)
        key = _key(given["key"]) if "key" in given else place.key
        for what, topic in (
            ("topic", place.location),
            ("checkpoints", given.get("checkpoints", CHECKPOINTS)),
        ):
            if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
                raise ConfigError(f"{topic!r} is no name of a Kafka topic ({what})")
        return TopicOptions(
            place.location,
            transactional_prefix(place.writer, name),
            client,
            key,
            bool(place.key) and set(place.key) <= set(key),
            _format(given.get("value_format", "json")),
            _number("shards", given.get("shards", "1"), 1, _MOST_SHARDS),
            given.get("checkpoints", CHECKPOINTS),
            given.get("offsets_group", ""),
            {key.removeprefix(HEADER): value for key, value in given.items() if key.startswith(HEADER)},
            _number("transaction.timeout.ms", given.get("transaction.timeout.ms", "900000"), 1000, 2**31 - 1),
            _duration("recovery_time", given.get("recovery_time", "10m")),
        )

    def of_handle(self, handle: JsonObject) -> TopicOptions:
        """Where the epoch was prepared, which the configuration may not name any more."""
        return replace(
            self,
            topic=handle["topic"],
            client=replace(self.client, bootstrap=handle["bootstrap"]),
            checkpoints=handle["checkpoints"],
            offsets_group=handle["offsets_group"],
        )

    def transactional_id(self, shard: int) -> str:
        return f"{self.prefix}{shard}"

    def refuse_short_timeout(self) -> None:
        """An open transaction has to last until whoever takes over can commit it."""
        longest = timedelta(milliseconds=self.transaction_timeout_ms)
        if longest < self.recovery_time:
            raise ConfigError(
                f"transaction.timeout.ms is {self.transaction_timeout_ms}, which is shorter than a recovery "
                f"may take ({_words(self.recovery_time)}, option recovery_time): brokers would give up a "
                "transaction that was decided; raise it, up to the brokers' transaction.max.timeout.ms"
            )


def transactional_prefix(writer: str, sink: str) -> str:
    """Names are quoted, so that no prefix begins as another does."""
    return f"{PREFIX}{quote(writer, safe='')}/{quote(sink, safe='')}/"


def materialization_of(transactional_id: str) -> str:
    """The inverse, for ids that begin with `PREFIX`."""
    return unquote(transactional_id.removeprefix(PREFIX).split("/")[0])


def _key(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _format(text: str) -> ValueFormat:
    try:
        return ValueFormat(text)
    except ValueError:
        raise ConfigError(f"value_format is {text!r}, and can be {_or(list(ValueFormat))}") from None


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.isdigit() or not least <= int(text) <= most:
        raise ConfigError(f"{name} is {text!r}, and has to be a number from {least} to {most}")
    return int(text)


def _duration(name: str, text: str) -> timedelta:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{name} is {text!r}, and has to be a time such as 90s, 10m or 1h")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _words(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"
