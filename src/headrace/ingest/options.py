"""What a client says in the `app_metadata` of its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model.tiers import Tier

WATERMARK = "watermark"
PER_LSN = "per-lsn"
LONGEST_PRODUCER = 200

_OPTIONS = ("producer", "levels", "acks", "resume_after", "first_seq")
_OF_A_MESSAGE = ("seq", "rows")
_MOST_SEQ = 2**63


@dataclass(frozen=True, slots=True)
class Options:
    """What holds for a whole stream."""

    producer: str = ""
    levels: tuple[Tier, ...] = tuple(Tier)
    by_watermark: bool = False
    resume_after: int | None = None
    first_seq: int = 1
    """Where the producer's numbers begin: from one that is not known, a first number above it is refused."""
    given: bool = False
    """Whether the client sent any: then it understands messages without a batch."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """What a message says of the writes in it."""

    seq: int = 0
    """The first one's sequence number; 0 without a producer."""
    rows: Sequence[int] | None = None
    """Rows of each write; None: the batch is one write."""


NO_NUMBERING = Numbering()


def parse_metadata(metadata: pa.Buffer | None) -> dict[str, Any]:
    if metadata is None or metadata.size == 0:
        return {}
    try:
        raw = orjson.loads(memoryview(metadata))
    except orjson.JSONDecodeError:
        raise ConfigError(
            "the app_metadata of a message is not JSON: leave it out, or send an object"
        ) from None
    if not isinstance(raw, dict):
        raise ConfigError(f"the app_metadata of a message is {raw!r}: leave it out, or send an object")
    for key in raw:
        if key not in _OPTIONS and key not in _OF_A_MESSAGE:
            known = ", ".join((*_OPTIONS, *_OF_A_MESSAGE))
            raise ConfigError(f"the app_metadata of a message has a key {key!r}; the keys are {known}")
    return raw


def has_options(raw: dict[str, Any]) -> bool:
    return any(key in raw for key in _OPTIONS)


def options_of(raw: dict[str, Any]) -> Options:
    producer = raw.get("producer", "")
    if not isinstance(producer, str) or len(producer.encode()) > LONGEST_PRODUCER:
        raise ConfigError(f"option producer is a text of at most {LONGEST_PRODUCER} bytes, not {producer!r}")
    acks = raw.get("acks", PER_LSN)
    if acks not in (PER_LSN, WATERMARK):
        raise ConfigError(f"option acks is {PER_LSN!r} or {WATERMARK!r}, not {acks!r}")
    levels = raw.get("levels", [tier.name for tier in Tier])
    if not isinstance(levels, list) or not levels:
        raise ConfigError(f"option levels is a list of durability levels, not {levels!r}")
    resume_after = raw.get("resume_after")
    if resume_after is not None and not _is_count(resume_after):
        raise ConfigError(f"option resume_after is an LSN, not {resume_after!r}")
    first_seq = raw.get("first_seq", 1)
    if not _is_seq(first_seq):
        raise ConfigError(f"option first_seq is an integer from 1 on, not {first_seq!r}")
    tiers = tuple(sorted({Tier.parse(level) for level in levels}))
    return Options(producer, tiers, acks == WATERMARK, resume_after, first_seq, given=True)


def numbering_of(raw: dict[str, Any], rows_in_batch: int, has_producer: bool) -> Numbering:
    seq, rows = raw.get("seq", 0), raw.get("rows")
    if "seq" in raw and not _is_seq(seq):
        raise ConfigError(f"seq is an integer from 1 on, not {seq!r}")
    if has_producer and not seq:
        raise ConfigError("a message of a producer needs a seq: the sequence number of its first write")
    if seq and not has_producer:
        raise ConfigError("seq needs the option producer in the first message")
    if rows is None:
        return Numbering(seq)
    if not isinstance(rows, list) or not rows or set(map(type, rows)) != {int} or min(rows) < 1:
        raise ConfigError("rows is a list with the number of rows of each write, each at least 1")
    if sum(rows) != rows_in_batch:
        raise ConfigError(f"rows adds up to {sum(rows)}, but the batch has {rows_in_batch} rows")
    return Numbering(seq, rows)


def _is_seq(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _MOST_SEQ


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
