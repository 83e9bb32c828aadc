"""The messages between client and server around the data, see docs/ingest-protocol.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from headrace.client.failures import decode_json
from headrace.errors import ProtocolError
from headrace.model.tiers import Tier


@dataclass(frozen=True, slots=True)
class Run:
    """`count` writes with consecutive sequence numbers and LSNs."""

    seq: int
    lsn: int
    count: int


@dataclass(frozen=True, slots=True)
class Session:
    """The server's state of a producer at the moment in which a stream opens."""

    last_seq: int | None
    assigned: tuple[Run, ...]
    lost: tuple[tuple[int, int], ...]
    watermarks: dict[Tier, int]
    forgotten_lsn: int | None = None
    """An upper bound for the last LSN of every producer that was forgotten; None if the server is too old."""
    unsure_until: int = 0
    """Of writes at or below this number whose LSN it does not tell, the server does not know whether they are
    committed or were given up."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One message of the server, in which any part may be missing."""

    session: Session | None = None
    assigned: tuple[Run, ...] = ()
    watermarks: tuple[tuple[Tier, int], ...] = ()
    snapshot_id: int | None = None
    throttled: str | None = None
    is_throttle: bool = False
    """Whether `throttled` was present at all, because None is a change, too."""


def decode_notice(batch: Any, metadata: bytes | None) -> Notice:
    """Decodes a notice from a message's batch and metadata, each of which may be missing."""
    try:
        said: dict[str, Any] = decode_json(metadata, "a message's app_metadata") if metadata else {}
        watermarks: tuple[tuple[Tier, int], ...] = ()
        if batch is not None and batch.num_rows:
            lsns, levels = batch.column("lsn").to_pylist(), batch.column("durability_level").to_pylist()
            watermarks = tuple((Tier[level], lsn) for lsn, level in zip(lsns, levels, strict=True))
        session = said.get("session")
        return Notice(
            session=None if session is None else _session(session),
            assigned=_runs(said.get("assigned", ())),
            watermarks=watermarks,
            snapshot_id=said.get("snapshot_id"),
            throttled=said.get("throttled"),
            is_throttle="throttled" in said,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the server sent a notice that cannot be read: {error!r}") from None


def _session(raw: dict[str, Any]) -> Session:
    return Session(
        last_seq=raw.get("last_seq"),
        assigned=_runs(raw.get("assigned", ())),
        lost=tuple((int(first), int(last)) for first, last in raw.get("lost", ())),
        watermarks={Tier[name]: int(lsn or 0) for name, lsn in raw.get("watermarks", {}).items()},
        forgotten_lsn=raw.get("forgotten_lsn"),
        unsure_until=int(raw.get("unsure_until", 0)),
    )


def _runs(raw: Any) -> tuple[Run, ...]:
    return tuple(Run(int(seq), int(lsn), int(count)) for seq, lsn, count in raw)


def encode_options(producer: str, resume_after: int | None, first_seq: int | None = None) -> bytes:
    options: dict[str, object] = {"producer": producer, "acks": "watermark"}
    if resume_after is not None:
        options["resume_after"] = resume_after
    if first_seq is not None:
        options["first_seq"] = first_seq
    return orjson.dumps(options)


def encode_writes(seq: int, rows: list[int]) -> bytes:
    """Encodes the metadata of a batch of coalesced writes; `rows` is omitted if there is only one."""
    return orjson.dumps({"seq": seq} if len(rows) == 1 else {"seq": seq, "rows": rows})
