"""What an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.session import SessionLimits
from headrace.wal.writer import LogLimits


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
    accept_loss: frozenset[str] = frozenset()
    """What a person has given up, each as an error has named it: `log:3-5`, or `orders:1-90`."""
