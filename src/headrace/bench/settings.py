"""What a bench is asked to do."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

SINGLE, CROWD, LAG, PYTHON = "single", "crowd", "lag", "python"
WORDS = (SINGLE, CROWD, LAG, PYTHON)


@dataclass(frozen=True)
class Settings:
    words: tuple[str, ...] = WORDS
    rate: float = 10_000.0
    """Offered by all clients together, in writes a second."""
    clients: tuple[int, ...] = (20, 100)
    """In the crowd; the last one is also measured as fast as it goes."""
    seconds: float = 10.0
    warm_up: float = 2.0
    writes: int = 1_000_000
    """Of the lag."""
    payload: int = 100
    """Bytes of a row."""
    coalesce: int = 500
    """Writes of a message, where they are coalesced."""
    window: int = 1_000
    """Writes of a client in flight where there is no rate; at least two messages."""
    url: str | None = None
    """None: a server of the bench's own."""
    token: str | None = None
    ca: str | None = None
    """Certificates to trust, as PEM."""
    kafka: str | None = None
    peers: bool = True
    committer: bool = True
    """Whether the bench's own server commits what is written, meanwhile."""


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "load_average": os.getloadavg()[0],
    }
