"""Which scenarios are tried at once."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.certify.lanes import Lane
from headrace.certify.scenarios import Between, How, Scenario

Round = Sequence[tuple[Lane, Scenario]]
"""In each lane one scenario, and in all of them the process meets the same end."""

_ALONE = (
    Between.HOST_LOST,
    Between.CLOCK_BACK,
    Between.FILE_CHANGED,
    Between.FAILED_BACK,
    Between.SHARED,
    Between.ROLLED_BACK,
    Between.RESTORED,
    Between.SOURCE_RECREATED,
)


def rounds_of(trials: Sequence[tuple[Lane, Scenario]]) -> list[Round]:
    """As few as can be: those together that meet the same end, each lane once in a round.

    The clock is set back for all at once. What is restored comes late, since a lane may refuse to go on, and
    last comes what no lane goes on after.
    """
    rounds: list[Round] = []
    for kind in (*How, *_ALONE):
        left: dict[Lane, list[Scenario]] = {}
        for lane, scenario in trials:
            if _kind(scenario) is kind:
                left.setdefault(lane, []).append(scenario)
        while any(left.values()):
            rounds.append([(lane, some.pop(0)) for lane, some in left.items() if some])
    return rounds


def _kind(scenario: Scenario) -> How | Between:
    return scenario.between if scenario.between in _ALONE else scenario.how
