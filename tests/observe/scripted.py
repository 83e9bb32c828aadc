"""A server in whatever state a test wants to see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from headrace.ingest.progress import Watermark
from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier

_ids = count()


@dataclass(eq=False)
class ScriptedSession:
    collection: str = "orders"
    peer: str = "ipv4:10.0.0.7:4242"
    producer: str = ""
    throttled: str | None = None
    waiting: dict[Tier, int] = field(default_factory=dict)
    statistics: Statistics = field(default_factory=Statistics)
    id: int = field(default_factory=lambda: next(_ids))

    def pending(self, tier: Tier) -> int:
        return self.waiting.get(tier, 0)


@dataclass
class ScriptedCollections:
    known: list[str]

    def names(self) -> list[str]:
        return sorted(self.known)


@dataclass
class ScriptedProgress:
    committed: dict[str, int]

    def of(self, _tier: Tier, collection: str) -> Watermark:
        return Watermark(self.committed[collection], 1)


class ScriptedServer:
    def __init__(self, collections: dict[str, int] | None = None) -> None:
        committed = collections if collections is not None else {"orders": 900}
        self.live: list[ScriptedSession] = []
        self.all = Statistics()
        self.collections = ScriptedCollections(list(committed))
        self.progress = ScriptedProgress(committed)
        self.lsns = {"MEMORY": 1000, "LOCAL_DISK": 990, "OBJECT_STORAGE": 950, "COMMITTED": 900}
        self.lags = {Tier.LOCAL_DISK: 0.001, Tier.OBJECT_STORAGE: 0.2, Tier.COMMITTED: 4.5}
        self.problems: list[str] = []
        self.accepts_writes = True
        self.fatal: str | None = None
        self.commits, self.commit_failures, self.upload_failures = 3, 2, 1

    def sessions(self) -> list[ScriptedSession]:
        return list(self.live)

    def statistics(self) -> Statistics:
        return replace(
            self.all, writes=self.all.writes + sum(session.statistics.writes for session in self.live)
        )

    def watermarks(self) -> dict[str, int]:
        return dict(self.lsns)

    def lag_seconds(self, tier: Tier) -> float:
        return self.lags[tier]

    def health(self) -> dict[str, Any]:
        return {
            "status": "ok" if not self.problems else "degraded" if self.accepts_writes else "refusing",
            "accepts_writes": self.accepts_writes,
            "problems": self.problems,
            "term": 2,
            "epoch": 2,
            "log_id": "abc",
            "watermarks": self.watermarks(),
            "log_bytes": 4096,
            "disk_free_bytes": 1 << 40,
            "disk_needed_bytes": 1 << 28,
            "waiting_bytes": 512,
            "quarantine": [{"collection": "orders", "side_log_bytes": 4096}],
            "heartbeat_ages": {"log": 0.5, "cleaner": 400.0},
            "backlogs": {"cleaner": 7},
            "connections": {
                "open": 40,
                "idle": 3,
                "most": 2048,
                "handshakes": 2,
                "turned_away": {"full": 0, "handshake": 5, "idle": 4},
            },
            "sessions": [{"peer": session.peer} for session in self.live],
        }
