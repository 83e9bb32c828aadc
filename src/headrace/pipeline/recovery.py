"""Recovers a materialization between its start and the first epoch; the rules are in `resume` and `targets`.

Endpoint, sinks and log are asked, which changes nothing, and whatever they say that cannot be right is
refused. The log is opened, which fences off every coordinator before, and compared once more. The endpoint is
made ready, the sinks are started, and what was decided is committed. Then endpoint, sinks, log and Spark's
checkpoint folder are compared: an endpoint that keeps checkpoints takes precedence over the log, and the log
over the folder. If the endpoint was restored to an older epoch, the sinks are rewound to it. Last, tasks of
the previous coordinator are fenced off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.errors import ConfigError, Fenced
from headrace.model.checkpoints import START, JsonObject
from headrace.model.materializations import Binding
from headrace.pipeline.committing import EpochCommitter, graver
from headrace.pipeline.recovery_log import Decision, Recovered, RecoveryLog, effective_decisions, last_rows
from headrace.pipeline.resume import ResumePlan, check_definition, plan_resume, reconcile_sinks
from headrace.pipeline.runtime_checkpoint import (
    RuntimeCheckpoint,
    check_incarnations,
    check_sources,
    read_checkpoint,
)
from headrace.pipeline.sources.streams import OpenedSource, check_starts, starts_of
from headrace.pipeline.targets import MARKED_SINCE, Asked, SinkTarget, TargetRules, asked_targets
from headrace.sinks.contract import Sink
from headrace.spark.checkpoint import CheckpointFolder

if TYPE_CHECKING:
    from headrace.pipeline.connector_sink import ConnectorSink
    from headrace.pipeline.coordinator import Coordinator
    from headrace.pipeline.dead_letters.sink import DeadLetterSink
    from headrace.pipeline.sinks import BindingSink

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """All that takes part in the epochs of a materialization, and what its checkpoints are compared with."""

    name: str
    shards: int
    """How many the first epoch of all has."""
    log: RecoveryLog
    coordinator: Coordinator
    opened_sources: list[OpenedSource]
    sources: tuple[str, ...]
    """Describes for each binding what it reads, and where its rows go."""
    incarnations: Callable[[], tuple[str, ...]]
    """Tells which one of those that go by its name each source is."""
    definition: str
    """Digest of what makes rows of the sources into rows of the endpoint."""
    connector: ConnectorSink | None
    row_sinks: Sequence[BindingSink]
    dead_letters: DeadLetterSink | None
    bindings: Sequence[Binding]
    keeps_checkpoints: bool
    """True if the endpoint keeps checkpoints; then the log does not tell where to resume."""
    has_staged_rows: bool
    """True if the connector stages rows and applies them after the decision."""
    forgets: bool = False
    """Whether the state survives nothing."""
    adopts: bool = False
    """Whether a person has said that targets are to be taken over."""
    accepts_loss: bool = False
    """Whether a person has said that rows may be missing which cannot be read any more."""
    refuse_weaker: Callable[[], None] = lambda: None
    """Refuses if what only sources can tell allows less than is asked for."""

    def run(self, folder: CheckpointFolder) -> ResumePlan:
        """Brings all of them to one epoch and returns where to resume. The caller rebuilds Spark's folder."""
        asked, before = self._ask(), self.log.read()
        is_new = not before.fence
        self._refuse(asked, before, folder, is_new=is_new)
        self.refuse_weaker()
        first_plan = {"lineage": str(uuid4()), "shards": self.shards, **starts_of(self.opened_sources)}

        def make_ready(opened: Recovered) -> None:
            """Called before sinks get handles of another format, or of another location."""
            check_starts(self.opened_sources, opened.plan)
            lineage = self._refuse(asked, opened, folder, is_new=is_new)
            if self.connector is not None:
                self.connector.make_ready(lineage, adopts=self.adopts)

        recovered = self.coordinator.start(first_plan, make_ready)  # open_log, start_sinks, finish_decided
        logged, endpoint = self._logged(recovered), self._in_endpoint()
        if recovered.rewinds:
            assert recovered.decision is not None
            self._rewind_sinks(recovered.decision.epoch)
        endpoint = self._reconcile(recovered, logged, endpoint)
        self._refuse_undone(recovered, min((one.epoch for one in endpoint or ()), default=logged.epoch))
        resume = plan_resume(self.name, recovered.plan["lineage"], logged, endpoint, folder, self._link_of)
        check_definition(self.name, resume.ahead, self.definition)
        if self.keeps_checkpoints and asked.endpoint is None:  # only opening has told where it stands
            self._refuse_lost(resume.done, was_read=logged.epoch >= 0)
        for sink in self.row_sinks:
            sink.claim(resume.lineage, adopts=self.adopts)
        if resume.moves_log:
            self._move_log(resume)
        self._fence_previous_tasks(resume)
        if resume.done.epoch >= 0 and resume.done.version < MARKED_SINCE:
            log.warning(
                "materialization %r: epoch %d was written by an earlier version; from now on its sources and "
                "targets are known by more than their names, and another one of the same name is refused",
                self.name,
                resume.done.epoch,
            )
        return resume

    def _ask(self) -> Asked:
        """Changes nothing, not even a fence."""
        endpoint, targets = None, []
        if self.connector is not None:
            validated = self.connector.ask()
            if validated.runtime_checkpoints is not None:
                where = f"materialization {self.name!r}, endpoint"
                endpoint = [self._checkpoint(raw, where) for raw in validated.runtime_checkpoints or (START,)]
            targets = asked_targets(self.name, self.bindings, validated)
        sinks, committed = [], {}
        for sink in self.row_sinks:
            target = sink.inspect()
            # What another materialization has committed there is not compared.
            is_others = target is not None and target.owner and target.owner.materialization != self.name
            committed[sink.name] = None if is_others else self._in_sink(sink)
            if target is not None:
                where = f"sink {sink.name}, {sink.place.location},"
                sinks.append(SinkTarget(where, target, sink.place.owner(""), committed[sink.name]))
        return Asked(endpoint, targets, sinks, committed)

    def _refuse(self, asked: Asked, recovered: Recovered, folder: CheckpointFolder, *, is_new: bool) -> str:
        """Refuses what cannot be right, as far as that is known before sinks are started.

        Returns the lineage of the epochs that come.
        """
        logged = self._logged(recovered)
        planned = str(recovered.plan.get("lineage", ""))
        lineage = asked.lineage(logged, planned)
        TargetRules(self.name, logged, lineage, is_new, self.forgets, self.adopts).check(asked)
        for sink in self.row_sinks:
            sink.refuse_start(adopts=self.adopts)
        if asked.endpoint is not None or not self.keeps_checkpoints:
            resume = plan_resume(self.name, planned, logged, asked.endpoint, folder, self._link_of)
            check_definition(self.name, resume.ahead, self.definition)
            if not recovered.rewinds:
                dead = None if self.forgets or logged.epoch >= 0 else self._in_dead_letters()
                self._compare(recovered, logged, asked.endpoint, asked.committed, dead=dead)
            self._refuse_rewind(resume)
            self._refuse_lost(resume.done, was_read=logged.epoch >= 0)
        return lineage

    def _refuse_lost(self, done: RuntimeCheckpoint, *, was_read: bool) -> None:
        """Refuses to go on from where rows cannot be read any more, unless a person has said so."""
        for index, source in enumerate(self.opened_sources):
            lost = source.lost and source.lost(done.position(index), was_read)
            if not lost:
                continue
            place = f"after epoch {done.epoch}" if done.epoch >= 0 else "from the beginning"
            loss = f"{source.description} is to be read {place}, and {lost.what}"
            if not (self.accepts_loss and lost.can_be_skipped):
                skip = f", or go on without them: `--accept-loss {self.name}`" if lost.can_be_skipped else ""
                raise ConfigError(
                    f"materialization {self.name!r}: {loss}, so that rows would be missing: bring them back, "
                    "or restore the endpoint from a later copy, or start under another name with another "
                    f"table{skip}"
                )
            if self.log.fence:
                log.warning("materialization %r: goes on without rows: %s", self.name, loss)
                self.log.keep(accepted_losses=[*self.log.plan.get("accepted_losses", ()), loss])

    def _in_endpoint(self) -> Sequence[RuntimeCheckpoint] | None:
        """Returns the checkpoint of each shard; None if the endpoint keeps none."""
        if self.connector is None or self.connector.opened is None:
            return None
        where = f"materialization {self.name!r}, endpoint"
        return [self._checkpoint(raw, where) for raw in self.connector.opened]

    def _reconcile(
        self, recovered: Recovered, logged: RuntimeCheckpoint, endpoint: Sequence[RuntimeCheckpoint] | None
    ) -> Sequence[RuntimeCheckpoint] | None:
        committed = self._in_sinks()
        # An endpoint that was rolled back takes the sinks along: they need no more than it has.
        had_rows = self._had_rows(committed, min(one.epoch for one in (logged, *(endpoint or ()))))
        dead = self._in_dead_letters() if logged.epoch < 0 else None
        return self._compare(recovered, logged, endpoint, committed, had_rows, dead)

    def _compare(
        self,
        recovered: Recovered,
        logged: RuntimeCheckpoint,
        endpoint: Sequence[RuntimeCheckpoint] | None,
        committed: Mapping[str, RuntimeCheckpoint | None],
        had_rows: Mapping[str, int] | None = None,
        dead: RuntimeCheckpoint | None = None,
    ) -> Sequence[RuntimeCheckpoint] | None:
        """Before the start, `had_rows` is left out: until then sinks lack what is only decided."""
        return reconcile_sinks(
            self.name,
            recovered.plan.get("lineage", ""),
            logged,
            endpoint,
            committed,
            had_rows=had_rows,
            dead=dead,
            went_back=recovered.went_back and self.dead_letters is not None,
            link_of=self._link_of,
        )

    def _link_of(self, epoch: int) -> str | None:
        """Returns that of an epoch that stands in the log; empty if it has none, None if it is not known."""
        found = {decision.epoch: decision for decision in effective_decisions(self.log.recent())}.get(epoch)
        return None if found is None else str(found.runtime_checkpoint.get("link", ""))

    def _move_log(self, resume: ResumePlan) -> None:
        log.warning("materialization %r: %s", self.name, resume.moves_log)
        done = resume.done
        self._refuse_rewind(resume)
        moved = {**self.log.plan, "lineage": resume.lineage}
        # Recorded first: if we die when only some sinks are rewound, the next start rewinds the others.
        self.coordinator.move_to(
            done.epoch, done.to_json(), resume.moves_log, moved, rewinds=resume.is_rewound
        )
        if resume.is_rewound:
            self._rewind_sinks(done.epoch)

    def _refuse_rewind(self, resume: ResumePlan) -> None:
        if resume.is_rewound:
            for sink in self._rewindable():
                sink.refuse_rewind(resume.done.epoch)

    def _rewind_sinks(self, epoch: int) -> None:
        """Rewinds all sinks to the epoch that the log was moved to, and records when they are there."""
        self.log.verify()
        for sink in self._rewindable():
            sink.rewind(epoch)
        self.log.settle()

    def _fence_previous_tasks(self, resume: ResumePlan) -> None:
        if self.connector is not None:
            ahead = resume.ahead.to_json() if resume.ahead else None
            self.connector.fence_previous_tasks(resume.done.to_json(), ahead)

    def _in_sinks(self) -> dict[str, RuntimeCheckpoint | None]:
        """Returns what readers see of each sink; None for one that has nothing, or cannot report it."""
        found = {sink.name: self._in_sink(sink) for sink in self.row_sinks}
        if self.connector is not None and self.connector.opened is None and self.has_staged_rows:
            found[self.connector.name] = None  # what it has staged is known to the log alone
        return found

    def _in_sink(self, sink: BindingSink) -> RuntimeCheckpoint | None:
        raw, where = sink.committed(), f"materialization {self.name!r}, sink {sink.name}"
        return None if raw is None else self._checkpoint(raw, where)

    def _had_rows(self, committed: Mapping[str, RuntimeCheckpoint | None], last: int) -> dict[str, int]:
        """Finds the last epoch up to `last` that brought rows to sinks that stand before it.

        Where the log does not tell that any more, it is the last epoch of all that did: a sink that does not
        have its rows either has lost some.
        """
        behind = [name for name, checkpoint in committed.items() if checkpoint and checkpoint.epoch < last]
        behind += [sink.name for sink in self.row_sinks if sink.can_tell and committed[sink.name] is None]
        if not behind or last < 0:
            return {}
        found = {
            name: decision.epoch
            for decision in effective_decisions(self.log.recent())
            for name in behind
            if decision.epoch <= last and decision.handles.get(name, {}).get("rows")
        }
        # However long ago that was.
        known = {name: epoch for name, (epoch, _) in last_rows(self.log.read().decision).items()}
        return {name: epoch for name, epoch in known.items() if name in behind} | found

    def _refuse_undone(self, recovered: Recovered, last: int) -> None:
        """Refuses a sink whose last rows somebody has taken back with means of its own."""
        rows = last_rows(recovered.decision)
        for sink in self.row_sinks:
            epoch, handle = rows.get(sink.name, (-1, {}))
            # Of an endpoint that was rolled back, sinks need no more than it has.
            if epoch < 0 or epoch > last or not (undone := sink.undone(epoch, handle)):
                continue
            missing = f"sink {sink.name}, {sink.place.location}, {undone}, and had the rows of epoch {epoch}"
            if not self.adopts:
                raise ConfigError(
                    f"materialization {self.name!r}: {missing}: restore it as it was, or start under another "
                    f"name with another table. If you know that it is right as it is, `--adopt {self.name}` "
                    "takes it over"
                )
            log.warning("materialization %r: goes on, though %s", self.name, missing)

    def _in_dead_letters(self) -> RuntimeCheckpoint | None:
        raw = None if self.dead_letters is None else self.dead_letters.committed()
        # Not `check_sources`: they may have been stored elsewhere.
        where = f"materialization {self.name!r}, dead letters"
        return None if raw is None else read_checkpoint(raw, self.name, where)

    def _rewindable(self) -> list[DeadLetterSink | BindingSink]:
        return [*([self.dead_letters] if self.dead_letters else ()), *self.row_sinks]

    def _logged(self, recovered: Recovered) -> RuntimeCheckpoint:
        where = f"materialization {self.name!r}, recovery log"
        return self._checkpoint(recovered.runtime_checkpoint, where)

    def _checkpoint(self, raw: JsonObject, where: str) -> RuntimeCheckpoint:
        checkpoint = read_checkpoint(raw, self.name, where)
        check_sources(checkpoint, self.sources, where)
        if checkpoint.incarnations:
            check_incarnations(checkpoint, self.sources, self.incarnations(), where)
        return checkpoint


def open_log(recovery_log: RecoveryLog, plan: JsonObject | None, observe: Callable[[str], None]) -> Recovered:
    """Fences off every coordinator before; `plan` is how the first epoch of all runs."""
    recovered = recovery_log.open(plan)
    observe("opened")
    return recovered


def start_sinks(sinks: Sequence[Sink], recovered: Recovered) -> dict[str, Exception]:
    """Has each sink clean up after the previous coordinator; returns the errors by sink.

    A sink that cannot be started holds up no other.
    """
    decision = recovered.decision
    unstarted: dict[str, Exception] = {}
    for sink in sinks:
        handle = decision.handles.get(sink.name) if decision else None
        try:
            sink.start(decision.epoch if decision else None, handle, recovered.fence)
        except Fenced:
            raise  # the next coordinator cleans up
        except Exception as error:  # noqa: BLE001 - raised when the others have had their turn
            unstarted[sink.name] = error
    return unstarted


def finish_decided(
    recovery_log: RecoveryLog,
    recovered: Recovered,
    sinks: Sequence[Sink],
    committing: EpochCommitter,
    unstarted: Mapping[str, Exception],
) -> None:
    """Commits the last decided epoch in every sink that could be started; raises why one could not.

    A decision that rewinds sinks has nothing to commit; `Recovery` rewinds them.
    """
    decision = recovered.decision
    if decision is not None and not recovered.is_settled and not recovered.rewinds:
        _refuse_missing(decision, sinks)
        committing.commit(decision, unstarted)
        recovery_log.settle()
    if unstarted:
        raise graver(unstarted.values())


def _refuse_missing(decision: Decision, sinks: Sequence[Sink]) -> None:
    left = {name for name, handle in decision.handles.items() if handle}
    missing = left - {sink.name for sink in sinks}
    if missing:
        raise ConfigError(
            f"epoch {decision.epoch} was decided with the sinks {', '.join(sorted(missing))}, which are "
            "not configured any more: configure them until the materialization has been stopped in good "
            "order, then remove them"
        )
