"""What was measured: plain values that travel between processes as JSON.

Names and units are those of the native generator's report (native/load/src/report.rs).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter

Array = np.ndarray[Any, np.dtype[Any]]

CURVE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)
"""The quantiles that a plot is drawn from."""


@dataclass(frozen=True)
class Latency:
    """Of many events, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float
    curve: tuple[float, ...]
    """At the quantiles of CURVE."""

    @classmethod
    def of(cls, seconds: Array) -> Self:
        ms = np.asarray(seconds, np.float64) * 1000
        p50, p90, p99 = (percentile(ms, share) for share in (0.5, 0.9, 0.99))
        curve = tuple(percentile(ms, share) for share in CURVE)
        return cls(len(ms), p50, p90, p99, float(ms.max()), curve)


@dataclass(frozen=True)
class Tier:
    """What happened to a run's writes at one tier."""

    count: int
    """How many were announced, the warm-up included."""
    per_second: float
    seconds: float
    """From the start to the last acknowledgement."""
    latency: Latency
    """From the moment a write was due, however late it was sent; without a rate, from when it was sent."""
    notice: Latency | None = None
    """From the tier's timestamp, which the server takes when the tier is reached, to the arrival."""


@dataclass(frozen=True)
class Run:
    """What one kind of client saw of one server."""

    clients: int
    sent: int
    tiers: dict[str, Tier]
    late: Latency | None = None
    """How late the client itself was to send, which is part of the latencies; only at an offered rate."""
    rates: tuple[float, ...] = ()
    """Each client's own writes a second, to its first tier."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        run: Self = TypeAdapter(cls).validate_python(raw)
        return run

    @property
    def fairness(self) -> float:
        """The slowest client's rate over the fastest one's."""
        return min(self.rates) / max(self.rates)


@dataclass(frozen=True)
class Measurement:
    """One system under one load."""

    word: str
    contender: str
    rate: float | None
    """Offered; None: as fast as it goes."""
    coalesce: int
    run: Run
    server_cpu_us: float | None = None
    """Processor time of the server's process for each write."""

    @property
    def load(self) -> str:
        """What the contenders have in common."""
        clients = "1 client" if self.run.clients == 1 else f"{self.run.clients} clients"
        pace = "as fast as it goes" if self.rate is None else f"{self.rate:,.0f}/s"
        each = "one write a message" if self.coalesce == 1 else f"{self.coalesce} writes a message"
        return f"{self.word}: {clients}, {pace}, {each}"


@dataclass
class Results:
    settings: dict[str, Any]
    machine: dict[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What was not measured, and how to have it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Array, share: float) -> float:
    """The smallest value that at least this share of all are at or below: one that was measured."""
    return float(np.quantile(values, share, method="inverted_cdf"))
