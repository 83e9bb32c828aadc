"""What a bench is asked to do."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

SCENARIOS = (1, 2, 3)
_DEFAULT_WRITES = {1: 100_000, 2: 10_000, 3: 1_000_000}
# In seconds. Of many clients none has much to say in 2 ms: at 500,000 writes a second in all, a hundred of
# them fill messages of 500 in this time.
_DEFAULT_LINGER = {1: 0.002, 2: 0.1, 3: 0.002}


@dataclass(frozen=True)
class Settings:
    scenarios: tuple[int, ...] = SCENARIOS
    writes: int | None = None
    """For each client; None: each scenario's own."""
    rate: float = 10_000.0
    """Offered in scenario 1, in writes a second."""
    clients: int = 100
    """In scenario 2."""
    processes: int = 2
    """That these clients are spread over."""
    payload: int = 100
    """Bytes of a row."""
    linger: float | None = None
    """Of the coalescing clients, in seconds; None: each scenario's own."""
    runs: int = 1
    """Of scenario 1, by turns; the one in the middle counts."""
    url: str | None = None
    """None: a server of the bench's own."""
    kafka: str | None = None
    peers: bool = True

    def writes_of(self, scenario: int) -> int:
        return self.writes or _DEFAULT_WRITES[scenario]

    def linger_of(self, scenario: int) -> float:
        return _DEFAULT_LINGER[scenario] if self.linger is None else self.linger

    @property
    def is_same_host(self) -> bool:
        """Whether the server's clock is ours."""
        if self.url is None:
            return True
        host = self.url.rpartition("://")[2].rpartition(":")[0]
        return host in ("127.0.0.1", "localhost", "[::1]")


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "load_average": os.getloadavg()[0],
    }
