"""An audit of what a materialization has committed: each epoch is in each sink once, and every row in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from headrace.pipeline.dead_letters import NAME as DEAD_LETTERS
from headrace.pipeline.dead_letters import is_there, place_of
from headrace.pipeline.places import look_at_recovery_log
from headrace.pipeline.planning import planned_sinks
from headrace.pipeline.recovery_log import ALL, Decision, standing
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings
from headrace.pipeline.sink_planning import PlannedSink
from headrace.sinks.registry import find_sink


@dataclass(frozen=True)
class Verdict:
    what: str
    looked_at: str
    problems: tuple[str, ...]


def verify(settings: PipelineSettings, one: MaterializationSettings) -> Iterator[Verdict]:
    """Reads the recovery log and the sinks, and changes nothing."""
    recovery_log = look_at_recovery_log(settings, one.name)
    decisions = standing(recovery_log.recent(ALL))

    def last() -> int:
        decision = recovery_log.read().decision
        return -1 if decision is None else decision.epoch

    yield Verdict("recovery log", _epochs(decisions), tuple(_log_problems(decisions)))
    for sink in planned_sinks(one, settings.catalog):
        problems = tuple(find_sink(sink.format).audit(sink.place, _rows(decisions, sink.name), last))
        problems += tuple(_older_problems(sink, decisions))
        yield Verdict(f"{sink.name} ({sink.format} {sink.place.location})", _epochs(decisions), problems)
    dead = one.dead_letters
    if dead is not None:
        place = place_of(dead, one.name, settings.catalog)
        here = [one for one in decisions if is_there(one.handles.get(DEAD_LETTERS, {}), dead)]
        problems = tuple(find_sink(dead.format).audit(place, _rows(here, DEAD_LETTERS), last))
        yield Verdict(f"dead letters ({dead.format} {dead.location})", _epochs(here), problems)


def _older_problems(sink: PlannedSink, decisions: Sequence[Decision]) -> Iterator[str]:
    """Counts the rows of epochs that the log has only the sum of."""
    evidence = decisions[-1].evidence.get(sink.name) if decisions else None
    if evidence is None or not sink.place.epoch or evidence["since"] >= decisions[0].epoch:
        return
    first, last, found = evidence["since"], decisions[-1].epoch, 0
    for batch in find_sink(sink.format).read(sink.place, [sink.place.epoch], None):
        epochs = batch.column(0)
        found += pc.sum(pc.and_(pc.greater_equal(epochs, first), pc.less_equal(epochs, last))).as_py() or 0
    if found != evidence["rows"]:
        yield f"epochs {first} to {last} were committed with {evidence['rows']} rows, and {found} are there"


def _log_problems(decisions: Sequence[Decision]) -> Iterator[str]:
    for decision in decisions:
        read, good, dead = (decision.summary.get(name, 0) for name in ("read", "good", "dead"))
        if good + dead != read:
            yield f"epoch {decision.epoch} has read {read} rows, of which {good} are good and {dead} dead"


def _rows(decisions: Sequence[Decision], sink: str) -> dict[int, int]:
    return {
        decision.epoch: int(decision.handles.get(sink, {}).get("rows", 0))
        for decision in decisions
        if sink in decision.handles
    }


def _epochs(decisions: Sequence[Decision]) -> str:
    if not decisions:
        return "no epochs"
    first, last = decisions[0].epoch, decisions[-1].epoch
    return f"epoch {last}" if first == last else f"epochs {first} to {last}"
