"""What a run measured: plain values that travel between processes as JSON."""

from __future__ import annotations

from collections.abc import Sequence
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
    seconds: float
    """From the first send, or when it was due, to the last acknowledgement."""
    latency: Latency | None = None
    """From the moment a write was due to be sent, however late it was; only at an offered rate."""
    notice: Latency | None = None
    """From the tier's timestamp, which the server takes when the tier is reached, to the arrival."""


@dataclass(frozen=True)
class Run:
    """One client's writes."""

    writes: int
    rate: float | None
    """Offered; None: as fast as it goes."""
    tiers: dict[str, Tier]
    late: Latency | None = None
    """How late the client itself was to send, which is part of the latencies."""
    server_cpu_us: float | None = None
    """Processor time of the server's process for each write."""
    client_cpu_us: float | None = None

    def per_second(self, tier: str) -> float:
        return self.writes / self.tiers[tier].seconds

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        run: Self = TypeAdapter(cls).validate_python(raw)
        return run


@dataclass(frozen=True)
class Crowd:
    """Many clients' writes at once."""

    clients: int
    processes: int
    writes: int
    tiers: dict[str, Tier]
    rates: tuple[float, ...] = ()
    """Each client's own writes a second, to MEMORY."""
    server_cpu_us: float | None = None
    client_cpu_us: float | None = None
    """Of all the clients' processes, for each write."""

    def per_second(self, tier: str) -> float:
        return self.writes / self.tiers[tier].seconds

    @property
    def fairness(self) -> Fairness:
        return Fairness(min(self.rates), max(self.rates), jain(self.rates))


@dataclass(frozen=True)
class Fairness:
    slowest: float
    fastest: float
    jain: float
    """1 if all are as fast as each other, 1/n if one gets everything."""


@dataclass(frozen=True)
class Contender:
    """One system under scenario 1's load."""

    offered: Run | None = None
    top: Run | Crowd | None = None


@dataclass
class Results:
    settings: dict[str, Any]
    machine: dict[str, Any]
    single: dict[str, Contender] = field(default_factory=dict)
    """Scenario 1, by contender."""
    crowd: Crowd | None = None
    """Scenario 2."""
    lag: dict[str, Run | Crowd] = field(default_factory=dict)
    """Scenario 3, by kind of client."""
    left_out: list[str] = field(default_factory=list)
    """What was not measured, and how to have it."""

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = without_nothing(asdict(self))
        if self.crowd is not None:
            raw["crowd"]["fairness"] = asdict(self.crowd.fairness)
        return raw


def without_nothing(value: Any) -> Any:
    """Leaves out what was not measured."""
    if isinstance(value, dict):
        return {key: without_nothing(inner) for key, inner in value.items() if inner is not None}
    return value


def percentile(values: Array, share: float) -> float:
    """The smallest value that at least this share of all are at or below: one that was measured."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def jain(rates: Sequence[float]) -> float:
    """Jain's index of fairness."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


def median_by(runs: Sequence[Run], tier: str) -> Run:
    """Of several runs the one in the middle: by p99 if it was measured, else by rate."""

    def key(run: Run) -> float:
        at = run.tiers[tier]
        return at.latency.p99 if at.latency else at.seconds

    return sorted(runs, key=key)[(len(runs) - 1) // 2]
