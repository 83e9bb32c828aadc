"""Runtime checkpoints: where an epoch ends in its sources, in all that it takes to go on from there.

Each has a *link*: a hash of what the epoch is and of the link before. The number of an epoch says only how
many came before it. If an endpoint was restored from a copy, the epochs that follow have the numbers of those
that the copy lacks, and are others. Checkpoints of one number and one link are of one history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import ConfigError
from headrace.model.checkpoints import START, JsonObject
from headrace.spark.checkpoint import OffsetEntry

_VERSION = 2
_VERSIONS = (1, 2)
_MARK = "taken_over"


@dataclass(frozen=True)
class RuntimeCheckpoint:
    materialization: str
    lineage: str
    """Identifies the query that wrote it: epochs are numbered anew in another one."""
    epoch: int
    """-1: before the first."""
    sources: tuple[str, ...] = ()
    offsets: Mapping[int, str] | None = None
    """Spark's entries of the epoch and of the one before, if there is one."""
    content: str = ""
    """A digest of what makes rows of the sources into rows of the endpoint; empty: it was not kept."""
    incarnations: tuple[str, ...] = ()
    """Which one of those that go by its name each source is; empty: it was not kept."""
    link: str = ""
    """Identifies the history that the epoch ends; empty: it was not kept."""
    version: int = _VERSION

    def to_json(self) -> JsonObject:
        if self.epoch < 0:
            return START
        offsets = {str(epoch): text for epoch, text in (self.offsets or {}).items()}
        content = {"content": self.content} if self.content else {}
        linked = {"incarnations": list(self.incarnations), "link": self.link} if self.version > 1 else {}
        return {
            "version": self.version,
            "materialization": self.materialization,
            "lineage": self.lineage,
            "epoch": self.epoch,
            "sources": list(self.sources),
            "offsets": offsets,
            **content,
            **linked,
        }

    def position(self, index: int, epoch: int | None = None) -> JsonObject | None:
        """Where the source of a binding stands after the epoch, or one before it; None: at its beginning."""
        epoch = self.epoch if epoch is None else epoch
        text = (self.offsets or {}).get(epoch)
        if text is None:
            return None
        entry = OffsetEntry(text)
        if index >= len(entry.sources):
            raise ConfigError(f"epoch {epoch} had {len(entry.sources)} bindings, and this one was not there")
        return entry.position(index)

    def linked_to(self, previous: str) -> RuntimeCheckpoint:
        """Adds its link, given that of the epoch before; empty if there is none, or it has none.

        It depends on nothing but what the epoch is: one that is run again has the same link.
        """
        entry = (self.offsets or {}).get(self.epoch, "")
        parts = [previous, self.lineage, self.epoch, entry, self.content, list(self.incarnations)]
        return replace(self, link=hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])


def read_checkpoint(raw: JsonObject, name: str, where: str) -> RuntimeCheckpoint:
    """Reads one that an endpoint or a recovery log of materialization `name` kept; `where` says which."""
    raw = without_takeover_marker(raw)
    if not raw:
        return RuntimeCheckpoint(name, "", -1)
    try:
        if raw["version"] not in _VERSIONS:
            raise ConfigError(f"{where}: its checkpoint was written by another version: upgrade this one")
        checkpoint = RuntimeCheckpoint(
            raw["materialization"],
            raw["lineage"],
            int(raw["epoch"]),
            tuple(raw["sources"]),
            {int(epoch): str(text) for epoch, text in _mapping(raw["offsets"]).items()},
            str(raw.get("content", "")),
            tuple(map(str, raw.get("incarnations", ()))),
            str(raw.get("link", "")),
            raw["version"],
        )
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{where}: its checkpoint is none of a pipeline's: start under another name with other tables"
        ) from None
    if checkpoint.materialization != name:
        raise ConfigError(
            f"{where}: its checkpoint is that of materialization {checkpoint.materialization!r} and not of "
            f"{name!r}: restore the right one, or give each materialization a place of its own"
        )
    return checkpoint


def with_takeover_marker(checkpoint: JsonObject, marker: str) -> JsonObject:
    """Marks a checkpoint so that it compares unequal, for `ConnectorSink.fence_previous_tasks`."""
    return {**checkpoint, _MARK: marker}


def without_takeover_marker(checkpoint: JsonObject) -> JsonObject:
    return {key: value for key, value in checkpoint.items() if key != _MARK}


def check_sources(checkpoint: RuntimeCheckpoint, sources: Sequence[str], where: str) -> None:
    """Offsets mean nothing in other sources."""
    if checkpoint.epoch >= 0 and list(checkpoint.sources) != list(sources):
        raise ConfigError(
            f"{where} stands in {', '.join(checkpoint.sources)} and the file now says {', '.join(sources)}: "
            "keep the bindings and their sources in order, or give the materialization another name and its "
            "rows another table"
        )


def check_incarnations(
    checkpoint: RuntimeCheckpoint, sources: Sequence[str], incarnations: Sequence[str], where: str
) -> None:
    """Refuses sources that have the names of those in the checkpoint and are others."""
    for source, before, now in zip(sources, checkpoint.incarnations, incarnations, strict=False):
        if before and now and before != now:
            raise ConfigError(
                f"{where} stands in {source}, which was {before} and is {now}: it was deleted and created "
                "again, or is another one elsewhere, and offsets mean something else in it. Let the file "
                "name the one that was read, or give the materialization another name and its rows another "
                "table"
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value
