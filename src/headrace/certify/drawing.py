"""Faults by chance: the same for the same seed, however far it gets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.certify.lanes import Lane
from headrace.certify.rounds import Round
from headrace.certify.scenarios import How, Scenario

_MOST_WRITES = 3
_TAKES_PART = 0.75
_WEIGHTS = {How.KILLED: 6, How.WOKEN: 2, How.GOES_ON: 2}


def drawn_rounds(
    lanes: Sequence[Lane], scenarios: Sequence[Scenario], seed: int, until: float
) -> Iterator[Round]:
    draw = random.Random(seed)  # noqa: S311 - to be drawn again
    ends = [how for how in How if any(one.how is how for one in scenarios)]
    while time.monotonic() < until:
        how = draw.choices(ends, weights=[_WEIGHTS[one] for one in ends])[0]
        some = [one for one in scenarios if one.how is how]
        writes = draw.randint(1, _MOST_WRITES)
        chosen = [
            (lane, _at_random(draw.choice(some), writes, draw.randint(1, writes)))
            for lane in lanes
            if draw.random() < _TAKES_PART
        ]
        yield [(lane, scenario) for lane, scenario in chosen if scenario.arms(lane)]


def _at_random(scenario: Scenario, writes: int, epoch: int) -> Scenario:
    """In one of several epochs."""
    if scenario.is_once or scenario.again is not None:
        return scenario
    return replace(
        scenario,
        writes=writes,
        arms=lambda lane: [
            replace(arm, occurrence=epoch if number == 0 else 1)
            for number, arm in enumerate(scenario.arms(lane))
        ],
    )
