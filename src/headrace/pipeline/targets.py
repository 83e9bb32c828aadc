"""Asks whose the targets of a materialization are, and refuses before anything is changed.

That a table has the right name says nothing: it may be somebody else's, it may have been dropped and created
again, or it may have rows of which no checkpoint tells.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import ConfigError
from headrace.model.materializations import Binding
from headrace.model.ownership import Owner, Target, owner_conflict
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.protocol.messages import Validated

log = logging.getLogger(__name__)

_UNKNOWN_ROWS = (
    "has rows, and no checkpoint says which: what is read from the beginning would be added to them"
)
MARKED_SINCE = 2
"""The version of runtime checkpoints since which every target says whose it is."""


@dataclass(frozen=True)
class AskedTarget:
    """A target as it was found."""

    where: str
    """Describes the place in words."""
    found: Target
    wanted: Owner
    """Whose it is to be; the lineage is left out."""


def asked_targets(name: str, bindings: Sequence[Binding], validated: Validated) -> list[AskedTarget]:
    """Returns the targets of a connector's bindings, as far as Validate tells of them."""
    return [
        AskedTarget(".".join(binding.resource_path), answer.target, binding.owner(name, ""))
        for binding, answer in zip(bindings, validated.bindings, strict=True)
        if answer.target is not None
    ]


@dataclass(frozen=True)
class SinkTarget(AskedTarget):
    """A target of a sink, which says itself what it has."""

    committed: RuntimeCheckpoint | None = None


@dataclass(frozen=True)
class Asked:
    """The answers of endpoint and sinks about themselves."""

    endpoint: Sequence[RuntimeCheckpoint] | None = None
    """None if the endpoint keeps none, or its connector tells only whoever opens it."""
    targets: Sequence[AskedTarget] = ()
    """The connector's targets, as far as it says."""
    sinks: Sequence[SinkTarget] = ()
    committed: Mapping[str, RuntimeCheckpoint | None] = field(default_factory=dict)
    """What readers see of each sink, as `Sink.committed` tells it; None of one that is another's."""

    def lineage(self, logged: RuntimeCheckpoint, planned: str) -> str:
        """The lineage of the epochs that come: the log's, or that of what is there if the log is new."""
        if logged.epoch >= 0:
            return planned
        there = (*(self.endpoint or ()), *(sink.committed for sink in self.sinks))
        return next((one.lineage for one in there if one is not None and one.epoch >= 0), planned)


@dataclass(frozen=True)
class TargetRules:
    """Checks what endpoint and sinks say against what is expected of a materialization's targets."""

    name: str
    logged: RuntimeCheckpoint
    lineage: str
    is_new: bool
    """Whether the recovery log was never opened before."""
    forgets: bool
    """Whether the state survives nothing, so that everything is written again and the guarantee says so."""
    adopts: bool
    """Whether a person has said that what is there is to be taken over."""

    def check(self, asked: Asked) -> None:
        for target in asked.targets:
            self._refuse(target, self._problem(target, asked.endpoint))
        for sink in asked.sinks:
            self._refuse(sink, self._sink_problem(sink))

    def _refuse(self, target: AskedTarget, problem: str) -> None:
        if not problem:
            return
        if self.adopts:
            log.warning("materialization %r: takes over %s, which %s", self.name, target.where, problem)
            return
        raise ConfigError(
            f"materialization {self.name!r}: {target.where} {problem}. Restore it as it was, or start under "
            f"another name with another table. If you know that it is right as it is, `--adopt {self.name}` "
            "takes it over"
        )

    def _problem(self, target: AskedTarget, endpoint: Sequence[RuntimeCheckpoint] | None) -> str:
        found, keeps = target.found, endpoint is not None
        if conflict := owner_conflict(found.owner, replace(target.wanted, lineage=self.lineage)):
            return conflict
        done = max(endpoint or (), key=lambda one: one.epoch, default=None) if keeps else self.logged
        if done is not None and done.epoch >= 0:
            return self._problem_after(done, found)
        if not found.has_rows:
            return ""
        if not keeps and (not self.is_new or (self.forgets and found.owner is not None)):
            return ""  # rows of an epoch that was begun, or that are written again
        return _UNKNOWN_ROWS

    def _problem_after(self, done: RuntimeCheckpoint, found: Target) -> str:
        if not found.exists:
            return f"is gone, and up to epoch {done.epoch} everything was written to it"
        if found.owner is None:
            if done.version < MARKED_SINCE:
                return ""
            return (
                f"is another one than epoch {done.epoch} was written to, and has only its name: it was "
                "dropped and created again, or restored without what it says of itself"
            )
        if found.owner.lineage != done.lineage:
            return (
                f"has rows of lineage {found.owner.lineage}, and epoch {done.epoch} is of lineage "
                f"{done.lineage}"
            )
        return ""

    def _sink_problem(self, sink: SinkTarget) -> str:
        found = sink.found
        if conflict := owner_conflict(found.owner, replace(sink.wanted, lineage=self.lineage)):
            return conflict
        if sink.committed is not None:
            return self._problem_after(sink.committed, found)  # and it is compared with the log
        if not found.has_rows:
            return ""
        if found.owner is not None and (self.forgets or found.owner.lineage == self.lineage):
            return ""
        if found.owner is None and self.logged.epoch >= 0 and self.logged.version < MARKED_SINCE:
            return ""
        return _UNKNOWN_ROWS
