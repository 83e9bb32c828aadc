"""What is read of a server in order to show it; `headrace.ingest.engine.Engine` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier


class ObservedSession(Protocol):
    collection: str
    peer: str
    statistics: Statistics
    throttled: str | None

    @property
    def producer(self) -> str: ...

    def pending(self, tier: Tier) -> int: ...


class ObservedCollections(Protocol):
    def names(self) -> list[str]: ...


class ObservedWatermark(Protocol):
    @property
    def lsn(self) -> int: ...


class ObservedProgress(Protocol):
    def of(self, tier: Tier, collection: str) -> ObservedWatermark: ...


class Observed(Protocol):
    def sessions(self) -> Sequence[ObservedSession]: ...

    def statistics(self) -> Statistics: ...

    def watermarks(self) -> dict[str, int]: ...

    def lag_seconds(self, tier: Tier) -> float: ...

    def health(self) -> dict[str, Any]: ...

    @property
    def collections(self) -> ObservedCollections: ...

    @property
    def progress(self) -> ObservedProgress: ...

    @property
    def fatal(self) -> str | None: ...

    @property
    def commits(self) -> int: ...

    @property
    def commit_failures(self) -> int: ...

    @property
    def upload_failures(self) -> int: ...
