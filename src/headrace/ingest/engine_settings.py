"""The settings of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.quarantine.stuck import StuckLimits


@dataclass(frozen=True)
class LogLimits:
    segment_bytes: int = 64 << 20
    """A segment is sealed when it has this size,"""
    segment_seconds: float = 0.1
    """or when its first write has waited for this long and the segments before it are uploaded."""
    group_bytes: int = 8 << 20
    """At most this much is written before a sync."""
    gather_seconds: float = 0.002
    """Under load a group gathers for this long, so that syncs leave time for acknowledgements. There is load
    if the group before had several messages: whoever writes one and waits for it does not pay for others."""
    waiting_bytes: int = 256 << 20
    """Writers wait while this much waits for the disk."""


@dataclass(frozen=True)
class SessionLimits:
    message_bytes: int = 64 << 20
    """A message that is larger is refused."""
    unsynced_bytes: int = 64 << 20
    """The stream is not read while this much of it waits for the disk, with 1 KiB added to each message."""
    ranges: int = 1 << 20
    """The stream is not read while this many ranges of LSNs, of 16 bytes each, wait to be announced."""
    receive_bytes: int = 512 << 20
    """All clients together may send this much before it is read. A connection gets 256 KiB, and more if it
    fills them."""


@dataclass(frozen=True)
class EngineSettings:
    data: Path
    store_url: str = ""
    """Empty: a folder in the data folder."""
    store_options: Mapping[str, Any] = field(default_factory=dict)
    catalog: CatalogSettings | None = None
    """None: SQLite and a warehouse in the data folder."""
    commit_interval: float = 5.0
    commit_timeout: float = 300.0
    most_log_bytes: int = 16 << 30
    """No stream is read while the segments that wait for object storage or Iceberg have this size."""
    free_bytes: int = 256 << 20
    """No write is taken while less than this is free on the log's disk, see `DiskSpace`."""
    log: LogLimits = field(default_factory=LogLimits)
    session: SessionLimits = field(default_factory=SessionLimits)
    stuck: StuckLimits = field(default_factory=StuckLimits)
    accept_loss: frozenset[str] = frozenset()
    """Writes that an operator has given up, each as an error has named it: `log:3-5`, or `orders:1-90`."""
