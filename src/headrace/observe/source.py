"""The interface of a server that can be observed; `headrace.ingest.engine.Engine` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier


class ObservedSession(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def collection(self) -> str: ...

    @property
    def peer(self) -> str: ...

    @property
    def producer(self) -> str: ...

    @property
    def statistics(self) -> Statistics: ...

    @property
    def throttled(self) -> str | None: ...

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
