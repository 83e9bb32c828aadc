"""Says what is known of an epoch when it is done, as one line and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.pipeline.shards.transaction import ShardResult


@dataclass
class EpochProgress:
    epoch: int
    at: datetime
    """When it was planned."""
    shards: int
    read: int = 0
    good: int = 0
    dead: int = 0
    documents: int = 0
    """Documents that are good, and so are in what was stored."""
    keys: int = 0
    loaded: int = 0
    stored: int = 0
    is_replayed: bool = False
    """Whether some shards had committed it before: what they loaded and stored is not counted here."""
    spilled: bool = False
    quality_ms: int = 0
    load_ms: int = 0
    store_ms: int = 0
    commit_ms: int = 0
    total_ms: int = 0
    sinks: dict[str, int] = field(default_factory=dict)
    """Rows that each sink was given, by its name."""
    staging_ms: dict[str, int] = field(default_factory=dict)
    """How long each sink took to stage them, so that a slow one shows."""
    failed: Counter[str] = field(default_factory=Counter)
    warned: Counter[str] = field(default_factory=Counter)

    def add_shards(self, results: Iterable[ShardResult]) -> None:
        """Times are those of the slowest shard."""
        for result in results:
            self.documents += result.documents
            self.keys += result.keys
            self.loaded += result.loaded
            self.stored += result.stored
            self.is_replayed = self.is_replayed or result.was_done
            self.spilled = self.spilled or result.spilled
            self.load_ms = max(self.load_ms, result.load_ms)
            self.store_ms = max(self.store_ms, result.store_ms)
            self.commit_ms = max(self.commit_ms, result.commit_ms)

    def count_rules(self, failed: Mapping[str, int], warned: Mapping[str, int]) -> None:
        self.failed.update(failed)
        self.warned.update(warned)

    @property
    def combine_ms(self) -> int:
        """The rest: reading, combining, what sinks stage, and what Spark takes for itself."""
        return max(0, self.total_ms - self.quality_ms - self.load_ms - self.store_ms - self.commit_ms)

    def to_json(self) -> dict[str, Any]:
        raw = {name: value for name, value in vars(self).items() if name != "at"}
        return {
            **raw,
            "at": self.at.isoformat(timespec="milliseconds"),
            "combine_ms": self.combine_ms,
            "failed": dict(self.failed),
            "warned": dict(self.warned),
        }

    def line(self) -> str:
        parts = [f"epoch {self.epoch}", f"{self.read:,} read"]
        if self.dead:
            parts.append(f"{self.good:,} good, {self.dead:,} dead")
        parts.append(f"{self.keys:,} keys, {self.loaded:,} loaded, {self.stored:,} stored")
        parts += [
            f"{rows:,} to {name} in {self.staging_ms.get(name, 0):,} ms" for name, rows in self.sinks.items()
        ]
        times = [("quality", self.quality_ms), ("combine", self.combine_ms), ("load", self.load_ms)]
        times += [("store", self.store_ms), ("commit", self.commit_ms)]
        shown = ", ".join(f"{name} {ms:,}" for name, ms in times if ms)
        parts.append(f"{self.total_ms:,} ms ({shown})")
        if self.is_replayed:
            parts.append("finished after a crash")
        return "; ".join(parts)
