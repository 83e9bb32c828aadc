"""The goals, and whether a run met them; and how it compares with its peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.bench.figures import Contender, Results, Run
from headrace.bench.kafka_client import DELIVERED
from headrace.bench.scenarios import CEILING, COALESCING, KAFKA_LINGERS, OURS

MEMORY_MS = 2.0
CEILING_LATENCY_RATIO = 1.3
CEILING_RATE_RATIO = 0.7
LOCAL_DISK_MS = 20.0
NOTICE_MS = {"LOCAL_DISK": 50.0, "OBJECT_STORAGE": 200.0}
CROWD_PER_SECOND = 500_000
LAG_SECONDS = 300.0

# An open loop's last acknowledgement comes after its last send, so the rate is never quite reached.
_REACHED = 0.99


@dataclass(frozen=True)
class Verdict:
    scenario: int
    what: str
    measured: float
    unit: str
    goal: str
    met: bool


@dataclass(frozen=True)
class Ratio:
    """Ours over a peer's, of the same run."""

    what: str
    peer: str
    ours: float
    theirs: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def verdicts(results: Results) -> list[Verdict]:
    return [*_single(results), *_crowd(results), *_lag(results)]


def ratios(results: Results) -> list[Ratio]:
    return [*_ceiling_ratios(results.single), *_kafka_ratios(results.single)]


def _single(results: Results) -> Iterator[Verdict]:
    ours = results.single.get(OURS)
    if ours is None:
        return
    if ours.offered is not None and ours.offered.rate is not None:
        rate, reached = ours.offered.rate, ours.offered.per_second("MEMORY")
        what = f"{rate:,.0f}/s offered: reached"
        yield Verdict(1, what, reached, "/s", f"{rate:,.0f}/s", reached >= _REACHED * rate)
        yield _memory(results, ours.offered)
        yield from _disk(ours.offered)
    for ratio in _ceiling_ratios(results.single):
        if ratio.unit == "/s":
            goal = f"{CEILING_RATE_RATIO} of the ceiling's {ratio.theirs:,.0f}/s ({ratio.ratio:.2f})"
            yield Verdict(1, "top rate", ratio.ours, "/s", goal, ratio.ratio >= CEILING_RATE_RATIO)


def _memory(results: Results, offered: Run) -> Verdict:
    p99 = _p99(offered, "MEMORY")
    goal, met = f"{MEMORY_MS:g} ms", p99 < MEMORY_MS
    ceiling = results.single.get(CEILING)
    if ceiling is not None and ceiling.offered is not None:
        theirs = _p99(ceiling.offered, "MEMORY")
        goal += f", or within {CEILING_LATENCY_RATIO} of the ceiling's {theirs:.2f} ms ({p99 / theirs:.2f})"
        # The ceiling counts only where it cannot do it either.
        met = met or (theirs >= MEMORY_MS and p99 <= CEILING_LATENCY_RATIO * theirs)
    return Verdict(1, "p99 of MEMORY", p99, "ms", goal, met)


def _disk(offered: Run) -> Iterator[Verdict]:
    p99 = _p99(offered, "LOCAL_DISK")
    yield Verdict(1, "p99 of LOCAL_DISK", p99, "ms", f"{LOCAL_DISK_MS:g} ms", p99 <= LOCAL_DISK_MS)
    for tier, most in NOTICE_MS.items():
        notice = offered.tiers[tier].notice
        if notice is not None:
            what = f"p99 from {tier} to its notice"
            yield Verdict(1, what, notice.p99, "ms", f"{most:g} ms", notice.p99 <= most)


def _crowd(results: Results) -> Iterator[Verdict]:
    if results.crowd is not None:
        rate = results.crowd.per_second("MEMORY")
        what = f"{results.crowd.clients} clients in all"
        yield Verdict(2, what, rate, "/s", f"{CROWD_PER_SECOND:,}/s", rate >= CROWD_PER_SECOND)


def _lag(results: Results) -> Iterator[Verdict]:
    for client, run in results.lag.items():
        seconds = run.tiers["OBJECT_STORAGE"].seconds
        what = f"{run.writes:,} writes at OBJECT_STORAGE, {client}"
        yield Verdict(3, what, seconds, "s", f"{LAG_SECONDS:g} s", seconds < LAG_SECONDS)


def _ceiling_ratios(single: dict[str, Contender]) -> Iterator[Ratio]:
    ours, ceiling = single.get(OURS), single.get(CEILING)
    if ours is None or ceiling is None:
        return
    if ours.offered and ceiling.offered:
        p99s = _p99(ours.offered, "MEMORY"), _p99(ceiling.offered, "MEMORY")
        yield Ratio("p99 of MEMORY at the offered rate", CEILING, *p99s, "ms")
    if ours.top and ceiling.top:
        rates = ours.top.per_second("MEMORY"), ceiling.top.per_second("MEMORY")
        yield Ratio("top rate to MEMORY", CEILING, *rates, "/s")


def _kafka_ratios(single: dict[str, Contender]) -> Iterator[Ratio]:
    """A message that Kafka delivered is on its disk, so it is compared with LOCAL_DISK."""
    ours, alone = single.get(OURS), single.get(COALESCING)
    for name in KAFKA_LINGERS:
        kafka = single.get(name)
        if ours is None or kafka is None:
            continue
        if ours.offered and kafka.offered:
            p99s = _p99(ours.offered, "LOCAL_DISK"), _p99(kafka.offered, DELIVERED)
            yield Ratio("p99 on disk at the offered rate", name, *p99s, "ms")
        if kafka.top is None:
            continue
        theirs = kafka.top.per_second(DELIVERED)
        if ours.top:
            yield Ratio("top rate to disk, stock", name, ours.top.per_second("LOCAL_DISK"), theirs, "/s")
        if alone and alone.top:
            rate = alone.top.per_second("LOCAL_DISK")
            yield Ratio("top rate to disk, coalescing", name, rate, theirs, "/s")


def _p99(run: Run, tier: str) -> float:
    latency = run.tiers[tier].latency
    assert latency is not None
    return latency.p99
