"""What happens between a start and the first epoch, in this order; the rules are pure functions at the end.

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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.errors import CheckpointConflict, ConfigError, Fenced
from headrace.model.checkpoints import START, JsonObject
from headrace.model.materializations import Binding
from headrace.pipeline.committing import Committing, graver
from headrace.pipeline.recovery_log import ALL, Decision, Recovered, RecoveryLog, last_rows, standing
from headrace.pipeline.runtime_checkpoint import (
    RuntimeCheckpoint,
    check_incarnations,
    check_sources,
    read_checkpoint,
)
from headrace.pipeline.sources import Reading, check_starts, starts_of
from headrace.pipeline.spark_checkpoint import CheckpointFolder
from headrace.pipeline.targets import Asked, AskedTarget, SinkTarget, TargetRules
from headrace.sinks.contract import Sink

if TYPE_CHECKING:
    from headrace.pipeline.binding_sink import BindingSink
    from headrace.pipeline.connector_sink import ConnectorSink
    from headrace.pipeline.coordinator import Coordinator
    from headrace.pipeline.dead_letters import DeadLetterSink

log = logging.getLogger(__name__)

LinkOf = Callable[[int], str | None]
"""The link of an epoch that stands in the log; empty if it has none, None if the log does not tell."""


@dataclass(frozen=True)
class ResumePlan:
    """What to do before the query starts."""

    lineage: str
    done: RuntimeCheckpoint
    """The last epoch that is done everywhere; the next one is run, or run again."""
    offsets: Mapping[int, str] = field(default_factory=dict)
    """What Spark's folder has to say of `done`, the epoch before it, and the next one if that was begun."""
    ahead: RuntimeCheckpoint | None = None
    """The epoch after `done`, if shards have committed it: it has to be run again as it was."""
    moves_log: str = ""
    """Why the log has to be moved to `done`; empty if it stands there."""
    is_rewound: bool = False
    """Whether epochs after `done` had been decided, and will be run again with other boundaries."""
    rebuilds_folder: str = ""
    """Why the folder has to be made anew; empty if it is right."""


@dataclass(frozen=True)
class Recovery:
    """All that takes part in the epochs of a materialization, and what its checkpoints are compared with."""

    name: str
    shards: int
    """How many the first epoch of all has."""
    log: RecoveryLog
    coordinator: Coordinator
    readings: list[Reading]
    sources: tuple[str, ...]
    """What each binding reads, and where its rows go."""
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

    def run(self, folder: CheckpointFolder) -> ResumePlan:
        """Brings all of them to one epoch and returns where to resume. The caller rebuilds Spark's folder."""
        asked, before = self._ask(), self.log.read()
        is_new = not before.fence
        self._refuse(asked, before, folder, is_new=is_new)
        first_plan = {"lineage": str(uuid4()), "shards": self.shards, **starts_of(self.readings)}

        def make_ready(opened: Recovered) -> None:
            """Called before sinks get handles of another format, or of another location."""
            check_starts(self.readings, opened.plan)
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
        for sink in self.row_sinks:
            sink.claim(resume.lineage, adopts=self.adopts)
        if resume.moves_log:
            self._move_log(resume)
        self._fence_previous_tasks(resume)
        return resume

    def _ask(self) -> Asked:
        """Changes nothing, not even a fence."""
        endpoint, targets = None, []
        if self.connector is not None:
            validated = self.connector.ask()
            if validated.runtime_checkpoints is not None:
                where = f"materialization {self.name!r}, endpoint"
                endpoint = [self._checkpoint(raw, where) for raw in validated.runtime_checkpoints or (START,)]
            targets = [
                AskedTarget(".".join(binding.resource_path), one.target, binding.owner(self.name, ""))
                for binding, one in zip(self.bindings, validated.bindings, strict=True)
                if one.target is not None
            ]
        committed = self._in_sinks()
        sinks = [
            SinkTarget(
                f"sink {sink.name}, {sink.place.location},",
                target,
                sink.place.owner(""),
                committed[sink.name],
            )
            for sink in self.row_sinks
            if (target := sink.inspect()) is not None
        ]
        return Asked(endpoint, targets, sinks)

    def _refuse(self, asked: Asked, recovered: Recovered, folder: CheckpointFolder, *, is_new: bool) -> str:
        """Refuses what cannot be right, as far as that can be told before sinks are started.

        Returns the lineage of the epochs that come.
        """
        logged = self._logged(recovered)
        planned = str(recovered.plan.get("lineage", ""))
        lineage = asked.lineage(logged, planned)
        TargetRules(self.name, logged, lineage, is_new, self.forgets, self.adopts).check(asked)
        if asked.endpoint is not None or not self.keeps_checkpoints:
            resume = plan_resume(self.name, planned, logged, asked.endpoint, folder, self._link_of)
            check_definition(self.name, resume.ahead, self.definition)
            self._refuse_lost(resume.done, was_read=logged.epoch >= 0)
        return lineage

    def _refuse_lost(self, done: RuntimeCheckpoint, *, was_read: bool) -> None:
        """Refuses to go on from where rows cannot be read any more, unless a person has said so."""
        for index, reading in enumerate(self.readings):
            lost = reading.lost and reading.lost(done.position(index), was_read)
            if not lost:
                continue
            place = f"after epoch {done.epoch}" if done.epoch >= 0 else "from the beginning"
            told = f"{reading.description} is to be read {place}, and {lost.what}"
            if not (self.accepts_loss and lost.can_be_skipped):
                skip = f", or go on without them: `--accept-loss {self.name}`" if lost.can_be_skipped else ""
                raise ConfigError(
                    f"materialization {self.name!r}: {told}, so that rows would be missing: bring them back, "
                    "or restore the endpoint from a later copy, or start under another name with another "
                    f"table{skip}"
                )
            if self.log.fence:
                log.warning("materialization %r: goes on without rows: %s", self.name, told)
                self.log.keep(accepted_losses=[*self.log.plan.get("accepted_losses", ()), told])

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
        return reconcile_sinks(
            self.name,
            recovered.plan["lineage"],
            logged,
            endpoint,
            committed,
            # An endpoint that was rolled back takes the sinks along: they need no more than it has.
            had_rows=self._had_rows(committed, min(one.epoch for one in (logged, *(endpoint or ())))),
            dead=self._in_dead_letters() if logged.epoch < 0 else None,
            went_back=recovered.went_back and self.dead_letters is not None,
            link_of=self._link_of,
        )

    def _link_of(self, epoch: int) -> str | None:
        """Returns that of an epoch that stands in the log; empty if it has none, None if it is not known."""
        found = {decision.epoch: decision for decision in standing(self.log.recent(ALL))}.get(epoch)
        return None if found is None else str(found.runtime_checkpoint.get("link", ""))

    def _move_log(self, resume: ResumePlan) -> None:
        log.warning("materialization %r: %s", self.name, resume.moves_log)
        done = resume.done
        if resume.is_rewound:
            for sink in self._rewindable():
                sink.refuse_rewind(done.epoch)
        moved = {**self.log.plan, "lineage": resume.lineage}
        # Recorded first: if we die when only some sinks are rewound, the next start rewinds the others.
        self.coordinator.move_to(
            done.epoch, done.to_json(), resume.moves_log, moved, rewinds=resume.is_rewound
        )
        if resume.is_rewound:
            self._rewind_sinks(done.epoch)

    def _rewind_sinks(self, epoch: int) -> None:
        """Rewinds all sinks to the epoch that the log was moved to, and records when they are there."""
        self.log.verify()
        for sink in self._rewindable():
            sink.rewind(epoch)
        self.log.settle()

    def _fence_previous_tasks(self, resume: ResumePlan) -> None:
        if self.connector is not None:
            ahead = resume.ahead.to_json() if resume.ahead else None
            self.connector.take_over(resume.done.to_json(), ahead)

    def _in_sinks(self) -> dict[str, RuntimeCheckpoint | None]:
        """Returns what readers see of each sink; None for one that has nothing, or cannot report it."""
        found: dict[str, RuntimeCheckpoint | None] = {}
        for sink in self.row_sinks:
            raw, where = sink.committed(), f"materialization {self.name!r}, sink {sink.name}"
            found[sink.name] = None if raw is None else self._checkpoint(raw, where)
        if self.connector is not None and self.connector.opened is None and self.has_staged_rows:
            found[self.connector.name] = None  # what it has staged is known to the log alone
        return found

    def _had_rows(self, committed: Mapping[str, RuntimeCheckpoint | None], last: int) -> dict[str, int]:
        """Finds the last epoch up to `last` that brought rows to sinks that stand before it."""
        behind = [name for name, checkpoint in committed.items() if checkpoint and checkpoint.epoch < last]
        behind += [sink.name for sink in self.row_sinks if sink.can_tell and committed[sink.name] is None]
        if not behind:
            return {}
        found = {
            name: decision.epoch
            for decision in standing(self.log.recent(ALL))
            for name in behind
            if decision.epoch <= last and decision.handles.get(name, {}).get("rows")
        }
        # However long ago that was.
        known = {name: epoch for name, (epoch, _) in last_rows(self.log.read().decision).items()}
        return {name: epoch for name, epoch in known.items() if name in behind and epoch <= last} | found

    def _refuse_undone(self, recovered: Recovered, last: int) -> None:
        """Refuses a sink whose last rows somebody has taken back with means of its own."""
        rows = last_rows(recovered.decision)
        for sink in self.row_sinks:
            epoch, handle = rows.get(sink.name, (-1, {}))
            # Of an endpoint that was rolled back, sinks need no more than it has.
            if epoch < 0 or epoch > last or not (undone := sink.undone(epoch, handle)):
                continue
            told = f"sink {sink.name}, {sink.place.location}, {undone}, and had the rows of epoch {epoch}"
            if not self.adopts:
                raise ConfigError(
                    f"materialization {self.name!r}: {told}: restore it as it was, or start under another "
                    f"name with another table. If you know that it is right as it is, `--adopt {self.name}` "
                    "takes it over"
                )
            log.warning("materialization %r: goes on, though %s", self.name, told)

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
    committing: Committing,
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


def plan_resume(
    name: str,
    lineage: str,
    logged: RuntimeCheckpoint,
    endpoint: Sequence[RuntimeCheckpoint] | None,
    folder: CheckpointFolder,
    link_of: LinkOf = lambda _: None,
) -> ResumePlan:
    """`lineage` is the log's; `endpoint` has a checkpoint for each shard, or None if it keeps none.

    A log in which nothing was decided yet takes over the endpoint's lineage: the log before it was lost.
    """
    if endpoint is None:
        return _with_folder(ResumePlan(lineage, logged, _offsets(logged)), name, folder)
    theirs = next((checkpoint.lineage for checkpoint in endpoint if checkpoint.epoch >= 0), lineage)
    is_lost = logged.epoch < 0 and theirs != lineage
    lineage = theirs if is_lost else lineage
    _refuse_other_lineages(name, lineage, endpoint)
    low, high = _extremes(name, endpoint)
    if not is_lost:
        for checkpoint in (low, high):
            _refuse_other_history(name, "the endpoint", checkpoint, logged, link_of)
    if low.epoch == high.epoch == logged.epoch + 1 and not is_lost:
        # It committed an epoch that nobody decided: what other sinks do for it is still to be done.
        low = logged
    move = ""
    if logged.epoch > low.epoch:
        move = f"the endpoint stands at epoch {low.epoch}, and epoch {logged.epoch} had been decided"
    elif logged.epoch < low.epoch or is_lost:
        move = f"the endpoint stands at epoch {low.epoch}, of which the recovery log knows nothing"
    ahead = high if high.epoch > low.epoch else None
    begun = {ahead.epoch: _offsets(ahead)[ahead.epoch]} if ahead else {}
    start = ResumePlan(lineage, low, {**_offsets(low), **begun}, ahead, move, logged.epoch > low.epoch)
    return _with_folder(start, name, folder)


def reconcile_sinks(
    name: str,
    lineage: str,
    logged: RuntimeCheckpoint,
    endpoint: Sequence[RuntimeCheckpoint] | None,
    committed: Mapping[str, RuntimeCheckpoint | None],
    *,
    had_rows: Mapping[str, int] | None = None,
    dead: RuntimeCheckpoint | None = None,
    went_back: bool = False,
    link_of: LinkOf = lambda _: None,
) -> Sequence[RuntimeCheckpoint] | None:
    """What to take for the endpoint's checkpoints, where sinks tell what readers see of each of them.

    The log outranks sinks, and refuses those that know more than it does. A log that was lost is made anew
    from them if they agree: one that stands before the others may have had no rows, or may have been about to
    commit, which only the log knew. So may one that has nothing, or cannot tell: None. Few epochs have dead
    letters; of those only that they are of no later epoch is asked.

    `had_rows` has the last epoch that brought a sink rows, as far as the log still tells: one that stands
    before it was restored from an older copy, and one that has nothing has lost it. One that stands before
    the log alone had none since.

    `went_back`: the last thing in the log is that what comes after it was taken back, dead letters too.
    """
    is_lost = logged.epoch < 0 and all(one.epoch < 0 or one.lineage != lineage for one in endpoint or ())
    if is_lost:
        return _agreed(name, endpoint, committed, dead) if committed else endpoint
    for sink, checkpoint in committed.items():
        if checkpoint is not None:
            _refuse_unknown(name, lineage, logged, sink, checkpoint)
            _refuse_other_history(name, f"sink {sink}", checkpoint, logged, link_of)
        _refuse_behind(name, sink, checkpoint, (had_rows or {}).get(sink, -1))
    low = min(endpoint or (), key=lambda checkpoint: checkpoint.epoch, default=logged)
    if low.lineage == lineage and low.epoch > logged.epoch + 1 and (committed or went_back):
        lacking = ", ".join(committed) or "dead letters"
        raise ConfigError(
            f"materialization {name!r}: the endpoint stands at epoch {low.epoch}, and the recovery log ends "
            f"with epoch {logged.epoch}, so that {lacking} would lack what is between: restore the endpoint "
            f"from a copy of epoch {logged.epoch + 1} or before, or start under another name with other "
            "tables"
        )
    return endpoint


def _refuse_other_history(
    name: str, who: str, checkpoint: RuntimeCheckpoint, logged: RuntimeCheckpoint, link_of: LinkOf
) -> None:
    """Refuses epochs that have the log's numbers and are others.

    What is further than the epoch after the log's last, or older than all that the log has, cannot be told.
    """
    if not checkpoint.link:
        return
    if checkpoint.epoch == logged.epoch + 1:
        expected: str | None = checkpoint.linked_to(logged.link).link
    elif checkpoint.epoch == logged.epoch:
        expected = logged.link
    else:
        expected = link_of(checkpoint.epoch) if checkpoint.epoch < logged.epoch else None
    if expected and expected != checkpoint.link:
        raise ConfigError(
            f"materialization {name!r}: {who} stands at epoch {checkpoint.epoch} of another history than the "
            f"recovery log: its link is {checkpoint.link}, and in the log that epoch would be {expected}. It "
            "was restored from a copy of before the log was taken back, or the log was restored: restore the "
            f"copy whose link is {expected}, or log and sinks as they were when {who} was copied"
        )


def _refuse_unknown(
    name: str, lineage: str, logged: RuntimeCheckpoint, sink: str, checkpoint: RuntimeCheckpoint
) -> None:
    if checkpoint.lineage != lineage:
        raise ConfigError(
            f"materialization {name!r}: sink {sink} was written by lineage {checkpoint.lineage}, and the "
            f"recovery log is of {lineage}: point `state` to where that lineage was run, or let another "
            "table be written"
        )
    if checkpoint.epoch > logged.epoch:
        raise ConfigError(
            f"materialization {name!r}: sink {sink} has epoch {checkpoint.epoch}, and the recovery log "
            f"ends with {logged.epoch}: restore the log as it was then, or let another table be written"
        )


def _refuse_behind(name: str, sink: str, checkpoint: RuntimeCheckpoint | None, had_rows: int) -> None:
    if checkpoint is None and had_rows >= 0:
        raise ConfigError(
            f"materialization {name!r}: sink {sink} has nothing, and by the recovery log it has committed "
            f"rows up to epoch {had_rows}: restore it as it was, or start under another name with other "
            "tables"
        )
    if checkpoint is not None and checkpoint.epoch < had_rows:
        raise ConfigError(
            f"materialization {name!r}: sink {sink} stands at epoch {checkpoint.epoch}, and by the recovery "
            f"log it has committed rows up to epoch {had_rows}: it was restored from an older copy, and "
            "would lack what is between; restore it as it was, or start under another name with other tables"
        )


def _agreed(
    name: str,
    endpoint: Sequence[RuntimeCheckpoint] | None,
    committed: Mapping[str, RuntimeCheckpoint | None],
    dead: RuntimeCheckpoint | None,
) -> Sequence[RuntimeCheckpoint] | None:
    """Where all of them stand, without a log."""
    first, *others = [
        one if one and one.epoch >= 0 else None for one in (*committed.values(), *(endpoint or ()))
    ]
    last = first.epoch if first else -1
    if any(one != first for one in others) or (dead is not None and dead.epoch > last):
        stand = [f"{sink} at {_epoch(checkpoint)}" for sink, checkpoint in sorted(committed.items())]
        stand += [f"the endpoint at {_epoch(one)}" for one in endpoint or ()]
        stand += [f"dead letters at {_epoch(dead)}"] if dead is not None else []
        raise ConfigError(
            f"materialization {name!r}: the recovery log is lost, and its sinks do not stand at one epoch "
            f"({', '.join(stand)}): restore the log from a backup (the profile dev-local keeps none), or "
            "start under another name with other tables"
        )
    return endpoint if endpoint or first is None else [first]


def _epoch(checkpoint: RuntimeCheckpoint | None) -> str:
    return str(checkpoint.epoch) if checkpoint is not None and checkpoint.epoch >= 0 else "none"


def check_definition(name: str, ahead: RuntimeCheckpoint | None, content: str) -> None:
    """Refuses to finish an epoch by other rules than it was begun by: its shards would not fit together."""
    if ahead is not None and ahead.content not in ("", content):
        raise ConfigError(
            f"materialization {name!r}: some shards have committed epoch {ahead.epoch} by other rules, "
            "another schema or other fields than the file has now: put those back, let the epoch be finished "
            "(`headrace run FILE --once`), then change them"
        )


def _refuse_other_lineages(name: str, lineage: str, endpoint: Sequence[RuntimeCheckpoint]) -> None:
    for checkpoint in endpoint:
        if checkpoint.epoch >= 0 and checkpoint.lineage != lineage:
            raise ConfigError(
                f"materialization {name!r}: the checkpoint in the endpoint is of lineage "
                f"{checkpoint.lineage}, and the recovery log is of {lineage}: point `state` to where that "
                "lineage was run, or start under another name with other tables"
            )


def _extremes(
    name: str, endpoint: Sequence[RuntimeCheckpoint]
) -> tuple[RuntimeCheckpoint, RuntimeCheckpoint]:
    """The checkpoint that all shards have reached, and the one that some have."""
    low = min(endpoint, key=lambda checkpoint: checkpoint.epoch)
    high = max(endpoint, key=lambda checkpoint: checkpoint.epoch)
    for checkpoint in endpoint:
        if checkpoint not in (low, high) or high.epoch > low.epoch + 1:
            raise CheckpointConflict(
                f"materialization {name!r}: its shards stand at epochs {low.epoch} and {high.epoch}, which "
                "do not follow each other: restore all tables of the endpoint from one moment"
            )
    return low, high


def _with_folder(start: ResumePlan, name: str, folder: CheckpointFolder) -> ResumePlan:
    if not folder.lineage:
        why = "there is none yet"
    elif folder.lineage != start.lineage:
        raise ConfigError(
            f"materialization {name!r}: Spark's checkpoint folder is of lineage {folder.lineage}, not of "
            f"{start.lineage}: it belongs to another materialization; move it away, and it is made anew"
        )
    elif not folder.follows(start.lineage, start.done.epoch, start.offsets):
        why = f"it does not go on after epoch {start.done.epoch}"
    else:
        return start
    return replace(start, rebuilds_folder=why)


def _offsets(checkpoint: RuntimeCheckpoint) -> Mapping[int, str]:
    return checkpoint.offsets or {}
