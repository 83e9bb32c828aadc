"""Which defect each scenario has to notice, and the run that shows whether it does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headrace.certify.chain import Chain, Surroundings
from headrace.certify.defects.names import (
    APPLIED_FIRST,
    BEGUN_IS_DECIDED,
    BROKEN_IS_DONE,
    CHECKPOINT_OUTSIDE,
    COMMIT_AGAIN,
    DECIDED_IS_COMMITTED,
    ENDPOINT_FENCE_NOT_CHECKED,
    EVIDENCE_IGNORED,
    FAILED_IS_COMMITTED,
    FAILED_IS_DECIDED,
    FENCE_NOT_CHECKED,
    FOLDER_TRUSTED,
    HANDLE_LOST,
    HISTORY_BY_NUMBER,
    LAST_BY_CLOCK,
    LEFT_BEHIND,
    LOG_OUTRANKS,
    LOST_ATTEMPT_COUNTS,
    MARK_UNKNOWN,
    NUMBERED_ANEW,
    OFFSETS_REWOUND,
    OPENING_FORGETS,
    OWNER_NOT_ASKED,
    PUBLISHED_IN_PREPARE,
    SINK_NOT_ASKED,
    SOURCE_BY_NAME,
    STATE_ON_HOST,
)
from headrace.certify.feeds import CollectionFeed
from headrace.certify.lanes import Lane
from headrace.certify.progress import Steps
from headrace.certify.results import Evidence, Outcome, Seeded
from headrace.certify.rounds import rounds_of
from headrace.certify.scenarios import MESSAGES, Scenario
from headrace.certify.targets.embedded import embedded_targets
from headrace.ingest.iceberg.settings import embedded_catalog

MODULES = ("headrace.certify.defects.coordination", "headrace.certify.defects.endpoints")


_LOST = r"documents? .*(is|are) not there|has \d+ of \d+ documents"
_TWICE = "more than once"
_LEFT = "left behind"
_GONE = r"has no epoch \d+ any more"
_UNKNOWN = "the recovery log ends with"
_NOT_REFUSED = "the start was not refused"


@dataclass(frozen=True)
class Seed:
    """A scenario, what is wrong in its lane, and where the lane goes."""

    scenario: str
    defects: tuple[str, ...]
    target: str
    notice: str
    """A pattern in what is found; a run that fails for another reason has not noticed it."""


SEEDS = [
    Seed("killed before prepare", (BEGUN_IS_DECIDED,), "parquet", _LOST),
    Seed("killed in prepare", (LEFT_BEHIND,), "parquet", _LEFT),
    Seed("killed between two prepares", (LEFT_BEHIND,), "delta", _LEFT),
    Seed("killed before the decision", (PUBLISHED_IN_PREPARE,), "parquet", _UNKNOWN),
    Seed("killed after the decision", (HANDLE_LOST,), "parquet", _LOST),
    Seed("killed in commit", (DECIDED_IS_COMMITTED,), "delta", _LOST),
    Seed("killed after commit", (COMMIT_AGAIN,), "parquet", _TWICE),
    Seed("killed while shards are taken over", (MARK_UNKNOWN,), "sqlite", "while it was taken over"),
    Seed("killed again while recovering", (OPENING_FORGETS,), "parquet", f"{_LOST}|{_GONE}"),
    Seed("killed again while settling", (COMMIT_AGAIN,), "parquet", _TWICE),
    Seed("killed in abort", (LEFT_BEHIND,), "delta", _LEFT),
    *(Seed(f"killed at {message}", (BEGUN_IS_DECIDED,), "sqlite", _LOST) for message in MESSAGES[:-1]),
    Seed("killed at received StartedCommit", (CHECKPOINT_OUTSIDE,), "sqlite", _TWICE),
    Seed("woken before the decision", (FENCE_NOT_CHECKED,), "parquet", "was not refused"),
    Seed("woken after the decision", (FENCE_NOT_CHECKED,), "parquet", "was not refused"),
    Seed("woken task", (ENDPOINT_FENCE_NOT_CHECKED,), "sqlite", f"after it had seen|{_LOST}|{_TWICE}"),
    Seed("task attempt lost", (LOST_ATTEMPT_COUNTS,), "parquet", "keys .* and 14 rows were written"),
    Seed("disk full in a task", (LOST_ATTEMPT_COUNTS,), "parquet", "keys .* and 14 rows were written"),
    Seed("connection cut", (BROKEN_IS_DONE, LOG_OUTRANKS), "sqlite-grpc", _LOST),
    Seed("connection stalled", (BROKEN_IS_DONE, LOG_OUTRANKS), "sqlite-grpc", _LOST),
    Seed("commit entry deleted", (FOLDER_TRUSTED, NUMBERED_ANEW), "parquet", _TWICE),
    Seed("checkpoint lost", (OFFSETS_REWOUND,), "parquet", _TWICE),
    Seed("log unavailable", (FAILED_IS_DECIDED,), "parquet", _UNKNOWN),
    Seed("sink unavailable", (FAILED_IS_COMMITTED,), "parquet", _LOST),
    Seed("clock stepped back", (LAST_BY_CLOCK,), "parquet", _UNKNOWN),
    Seed("endpoint restored", (SINK_NOT_ASKED,), "parquet", _LOST),
    Seed("restored twice and failed back", (HISTORY_BY_NUMBER,), "sqlite", _NOT_REFUSED),
    Seed("table shared", (OWNER_NOT_ASKED,), "parquet", _NOT_REFUSED),
    Seed("file changed between crash and restart", (APPLIED_FIRST,), "sqlite", "it does not go on"),
    Seed("sink rolled back", (EVIDENCE_IGNORED,), "iceberg", _NOT_REFUSED),
    Seed("source recreated", (SOURCE_BY_NAME,), "parquet", _NOT_REFUSED),
    # In the profile that this is run in, that is so.
    Seed("host lost", (STATE_ON_HOST,), "parquet", f"{_LEFT}|{_LOST}"),
]


def seeded(folder: Path, scenarios: Iterable[Scenario], steps: Steps) -> list[Seeded]:
    """Runs each of the scenarios with its defect, all lanes at once."""
    known = {scenario.name: scenario for scenario in scenarios}
    seeds = [seed for seed in SEEDS if seed.scenario in known]
    surroundings = Surroundings(folder, modules=MODULES)
    surroundings.data.mkdir(parents=True, exist_ok=True)
    catalog = embedded_catalog(surroundings.data)
    targets = {target.name: target for target in embedded_targets(folder / "endpoints", catalog)}
    feed = CollectionFeed(catalog)
    lanes = [Lane(feed, targets[seed.target], f"-{number:02}") for number, seed in enumerate(seeds)]
    defects: dict[str, list[str]] = {}
    for lane, seed in zip(lanes, seeds, strict=True):
        for defect in seed.defects:
            defects.setdefault(defect, []).append(lane.name)
    with ExitStack() as stack:
        for target in dict.fromkeys(lane.target for lane in lanes):
            stack.enter_context(target.running())
        rounds = rounds_of([(lane, known[seed.scenario]) for lane, seed in zip(lanes, seeds, strict=True)])
        steps.expect(1 + len(rounds))
        chain = Chain(surroundings, lanes, report=steps, defects=defects)
        chain.run(rounds)
    return [
        _verdict(seed, [one for one in chain.evidence[lane.name] if one.outcome is not Outcome.NOT_RUN])
        for lane, seed in zip(lanes, seeds, strict=True)
    ]


def _verdict(seed: Seed, evidence: list[Evidence]) -> Seeded:
    defect = " and ".join(seed.defects)
    own = [one for one in evidence if one.scenario == seed.scenario]
    if not own:
        why = evidence[0].told if evidence else "the scenario was not run"
        return Seeded(seed.scenario, defect, caught=False, told=why)
    last = own[-1]
    if last.outcome in (Outcome.BROKEN, Outcome.TWICE) and re.search(seed.notice, last.told):
        return Seeded(seed.scenario, defect, True, last.told, last.seconds)
    told = f"expected: {seed.notice}; found: {last.told or 'nothing'}"
    return Seeded(seed.scenario, defect, False, told, last.seconds)
