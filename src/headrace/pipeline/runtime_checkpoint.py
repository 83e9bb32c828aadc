"""Runtime checkpoints: where an epoch ends in its sources, in all that it takes to go on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError
from headrace.model.checkpoints import START, JsonObject

_VERSION = 1
_MARK = "taken_over"


@dataclass(frozen=True)
class RuntimeCheckpoint:
    materialization: str
    lineage: str
    """Of the query that wrote it: epochs are numbered anew in another one."""
    epoch: int
    """-1: before the first."""
    sources: tuple[str, ...] = ()
    offsets: Mapping[int, str] | None = None
    """Spark's entries of the epoch and of the one before, if there is one."""
    content: str = ""
    """A digest of what makes rows of the sources into rows of the endpoint; empty: it was not kept."""

    def to_json(self) -> JsonObject:
        if self.epoch < 0:
            return START
        offsets = {str(epoch): text for epoch, text in (self.offsets or {}).items()}
        content = {"content": self.content} if self.content else {}
        return {
            "version": _VERSION,
            "materialization": self.materialization,
            "lineage": self.lineage,
            "epoch": self.epoch,
            "sources": list(self.sources),
            "offsets": offsets,
            **content,
        }


def read_checkpoint(raw: JsonObject, name: str, where: str) -> RuntimeCheckpoint:
    """One that an endpoint or a recovery log of the materialization `name` has kept; `where` says which."""
    raw = unmarked(raw)
    if not raw:
        return RuntimeCheckpoint(name, "", -1)
    try:
        if raw["version"] != _VERSION:
            raise ConfigError(f"{where}: its checkpoint was written by another version: upgrade this one")
        checkpoint = RuntimeCheckpoint(
            raw["materialization"],
            raw["lineage"],
            int(raw["epoch"]),
            tuple(raw["sources"]),
            {int(epoch): str(text) for epoch, text in _mapping(raw["offsets"]).items()},
            str(raw.get("content", "")),
        )
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{where}: its checkpoint is none of a pipeline's: give the materialization another name"
        ) from None
    if checkpoint.materialization != name:
        raise ConfigError(
            f"{where}: its checkpoint is that of materialization {checkpoint.materialization!r} and not of "
            f"{name!r}: restore the right one, or give each materialization a place of its own"
        )
    return checkpoint


def marked(checkpoint: JsonObject, mark: str) -> JsonObject:
    """The same place, but not the same checkpoint to whoever compares: `ConnectorSink.take_over` says why."""
    return {**checkpoint, _MARK: mark}


def unmarked(checkpoint: JsonObject) -> JsonObject:
    return {key: value for key, value in checkpoint.items() if key != _MARK}


def check_sources(checkpoint: RuntimeCheckpoint, sources: Sequence[str], where: str) -> None:
    """Offsets mean nothing in other sources."""
    if checkpoint.epoch >= 0 and list(checkpoint.sources) != list(sources):
        raise ConfigError(
            f"{where} stands in {', '.join(checkpoint.sources)} and the file now says {', '.join(sources)}: "
            "keep the bindings and their sources in order, or give the materialization another name"
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value
