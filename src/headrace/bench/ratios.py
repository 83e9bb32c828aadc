"""How Headrace compares with its floor and its peer under the same load in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.bench.figures import Measurement

OURS, FLOOR, KAFKA = "headrace", "bare tonic", "Kafka"
DELIVERED = "DELIVERED"


@dataclass(frozen=True)
class Ratio:
    """Ours over a peer's."""

    load: str
    what: str
    peer: str
    ours: float
    theirs: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else float("inf")


def ratios(measurements: list[Measurement]) -> list[Ratio]:
    found = {(one.load, one.contender): one for one in measurements}
    return [
        ratio
        for (load, contender), ours in found.items()
        if contender == OURS
        for peer in (FLOOR, KAFKA)
        if (theirs := found.get((load, peer))) is not None
        for ratio in _ratios(ours, theirs)
    ]


def _ratios(ours: Measurement, theirs: Measurement) -> Iterator[Ratio]:
    """A message that Kafka delivered is on its disk, so it is compared with LOCAL_DISK."""
    tier, their_tier = ("LOCAL_DISK", DELIVERED) if theirs.contender == KAFKA else ("MEMORY", "MEMORY")
    own, others = ours.run.tiers[tier], theirs.run.tiers[their_tier]
    load, peer = ours.load, theirs.contender
    if ours.rate is None:
        yield Ratio(load, f"rate to {tier}", peer, own.per_second, others.per_second, "/s")
        return
    yield Ratio(load, f"p50 of {tier}", peer, own.latency.p50, others.latency.p50, "ms")
    yield Ratio(load, f"p99 of {tier}", peer, own.latency.p99, others.latency.p99, "ms")
