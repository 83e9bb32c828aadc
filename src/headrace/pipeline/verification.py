"""An audit of what a materialization has committed: each epoch is in each sink once, and every row in one.

The rows of a connector's endpoint cannot be counted by their epochs. It is asked where it stands, and whose
its tables are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from headrace.errors import ConfigError, HeadraceError
from headrace.model.checkpoints import START
from headrace.pipeline.dead_letters.sink import NAME as DEAD_LETTERS
from headrace.pipeline.dead_letters.sink import is_there, place_of
from headrace.pipeline.plan import PlannedSink, plan, planned_sinks
from headrace.pipeline.recovery_log import Decision, RecoveryLog, effective_decisions
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint, read_checkpoint
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings
from headrace.pipeline.state_paths import open_recovery_log_for_reading
from headrace.pipeline.targets import Asked, TargetRules, asked_targets
from headrace.sinks.registry import find_sink


@dataclass(frozen=True)
class Verdict:
    what: str
    looked_at: str
    problems: tuple[str, ...]


def verify(settings: PipelineSettings, one: MaterializationSettings) -> Iterator[Verdict]:
    """Reads the recovery log and the sinks, and changes nothing."""
    recovery_log = open_recovery_log_for_reading(settings, one.name)
    decisions = effective_decisions(recovery_log.recent())

    def last() -> int:
        decision = recovery_log.read().decision
        return -1 if decision is None else decision.epoch

    yield Verdict("recovery log", _epochs(decisions), tuple(_log_problems(decisions)))
    if one.connector:
        yield _endpoint_verdict(settings, one, recovery_log)
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


def _endpoint_verdict(
    settings: PipelineSettings, one: MaterializationSettings, recovery_log: RecoveryLog
) -> Verdict:
    """A pipeline may be running, so the log is read before the endpoint is asked, and after it."""
    before = _logged(recovery_log, one.name)
    try:
        planned = plan(one, settings.catalog)
        planned.close()
        validated = planned.validated
        said = validated.runtime_checkpoints
        where = f"endpoint {one.connector}"
        stands = None if said is None else [read_checkpoint(raw, one.name, where) for raw in said or (START,)]
        targets = asked_targets(one.name, planned.materialization.bindings, validated)
        problems = [] if stands is None else list(_standing_problems(stands, before, recovery_log))
        problems += _target_problems(one.name, before, Asked(stands, targets))
    except HeadraceError as error:
        stands, problems = None, [error.message]
    looked_at = "its tables" if stands is None else f"its tables, at {_epoch_of(stands)}"
    return Verdict(f"endpoint {one.connector}", looked_at, tuple(problems))


def _standing_problems(
    stands: Sequence[RuntimeCheckpoint], before: RuntimeCheckpoint, recovery_log: RecoveryLog
) -> Iterator[str]:
    """Compares where the endpoint stands with the log; it commits an epoch before that is decided."""
    if before.epoch < 0:
        return  # a log that was lost is made anew from the endpoint
    decisions = {one.epoch: one for one in effective_decisions(recovery_log.recent())}
    after = _logged(recovery_log, before.materialization)
    for stand in stands:
        logged = decisions.get(stand.epoch)
        link = "" if logged is None else str(logged.runtime_checkpoint.get("link", ""))
        if stand.epoch < before.epoch:
            yield (
                f"it stands at epoch {stand.epoch}, and the recovery log at epoch {before.epoch}: it was "
                "restored from an older copy"
            )
        elif stand.epoch > after.epoch + 1:
            yield f"it stands at epoch {stand.epoch}, and the recovery log at epoch {after.epoch}"
        elif link and stand.link and link != stand.link:
            yield f"its epoch {stand.epoch} is of another history than that of the recovery log"


def _target_problems(name: str, logged: RuntimeCheckpoint, asked: Asked) -> list[str]:
    rules = TargetRules(name, logged, asked.lineage(logged, logged.lineage), False, False, False)
    try:
        rules.check(asked)
    except ConfigError as error:
        return [error.message]
    return []


def _logged(recovery_log: RecoveryLog, name: str) -> RuntimeCheckpoint:
    return read_checkpoint(recovery_log.read().runtime_checkpoint, name, "recovery log")


def _epoch_of(stands: Sequence[RuntimeCheckpoint]) -> str:
    epochs = sorted({stand.epoch for stand in stands})
    if epochs == [-1]:
        return "the beginning"
    return " and ".join(f"epoch {epoch}" for epoch in epochs)


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
