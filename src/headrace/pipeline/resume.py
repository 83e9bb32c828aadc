"""The rules by which a start finds where to resume, as pure functions.

Endpoint, sinks, log and Spark's checkpoint folder each say where they stand. What they say is compared: an
endpoint that keeps checkpoints takes precedence over the log, and the log over the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import CheckpointConflict, ConfigError
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.spark.checkpoint import CheckpointFolder

LinkOf = Callable[[int], str | None]
"""The link of an epoch that stands in the log; empty if it has none, None if the log does not tell."""


@dataclass(frozen=True)
class ResumePlan:
    """The epochs to finish, and what has to be put right, before the query starts."""

    lineage: str
    done: RuntimeCheckpoint
    """The last epoch that is done everywhere; the next one is run, or run again."""
    offsets: Mapping[int, str] = field(default_factory=dict)
    """Offset-log entries that the checkpoint directory must hold: of `done`, of the epoch before it, and of
    the next one if that was begun."""
    ahead: RuntimeCheckpoint | None = None
    """The epoch after `done`, if shards have committed it: it has to be run again as it was."""
    moves_log: str = ""
    """Why the log has to be moved to `done`; empty if it stands there."""
    is_rewound: bool = False
    """Whether epochs after `done` had been decided, and will be run again with other boundaries."""
    rebuilds_folder: str = ""
    """Why the folder has to be made anew; empty if it is right."""


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
    """Returns what to take for the endpoint's checkpoints, where sinks tell what readers see of each of them.

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
