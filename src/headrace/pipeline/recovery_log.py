"""The durable list of the epochs of a materialization that were decided, and of who may decide.

    00000000000000000001.json   {"kind": "opened", "fence": 1, ...}
    00000000000000000002.json   {"kind": "decided", "fence": 1, "epoch": 0, ...}
    00000000000000000003.json   {"kind": "settled", "fence": 1, ...}
    00000000000000000004.json   {"kind": "opened", "fence": 2, ...}

A record is an object that only one can create, at the index after the last. Whoever opens the log takes that
index from everybody who opened it before: their next record finds it taken, and they are fenced off. So the
order of records is the order of events, however late a frozen process wakes up.

Old records are removed, and a process that slept for so long could create one in the hole. So a record counts
only if there is none after it when it is created; readers look at the last ones alone.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from zlib import crc32

from headrace.errors import ConfigError, Fenced, HeadraceError, ProtocolError, Transient
from headrace.faults import reached
from headrace.model.checkpoints import START, JsonObject, to_json
from headrace.objects import NoSuchObject, ObjectExists, ObjectStore
from headrace.sinks.cleanup import cleaning_up

_VERSION = 2
_VERSIONS = (1, 2)
_CHECKSUM = b',"crc32":"%08x"}\n'
_CHECKSUM_BYTES = len(_CHECKSUM % 0)
_NAME = re.compile(r"\d{20}\.json")
REWINDS = "rewinds"
"""Key in the summary of a decision: sinks go back to its epoch, and have when it is settled."""
_KEPT = 100  # records before the last decision, for people who look
_REMOVED_EVERY = 20


@dataclass(frozen=True)
class Decision:
    """An epoch that will be committed, however often we crash, from what is in here alone."""

    epoch: int
    runtime_checkpoint: JsonObject
    handles: Mapping[str, JsonObject] = field(default_factory=dict)
    """The handle that each sink prepared, by the sink's name."""
    summary: JsonObject = field(default_factory=dict)
    """Counts and times, for people and for `good + dead = read`."""
    evidence: Mapping[str, JsonObject] = field(default_factory=dict)
    """By the sink's name, what it has got of rows, for as long as the log knows: `epoch` is the last one that
    brought some, `handle` what was prepared for it if that is not this one, and `rows` are all since the
    epoch `since`. The first epoch after an upgrade begins with it."""
    id: str = field(default_factory=lambda: uuid4().hex)
    """Tells a decision that was tried again from another one."""


@dataclass(frozen=True)
class Recovered:
    """The state of a log, as it is for whoever opens it."""

    fence: int
    decision: Decision | None
    """The last one."""
    is_settled: bool = False
    """Whether it is known to be committed everywhere."""
    plan: JsonObject = field(default_factory=dict)
    """How the epoch after it runs, if it was begun already."""

    @property
    def went_back(self) -> bool:
        """Whether the last decision takes sinks back to its epoch."""
        return self.decision is not None and bool(self.decision.summary.get(REWINDS))

    @property
    def rewinds(self) -> bool:
        """Whether some sinks may not have gone back yet."""
        return self.went_back and not self.is_settled

    @property
    def runtime_checkpoint(self) -> JsonObject:
        return START if self.decision is None else self.decision.runtime_checkpoint


@dataclass(frozen=True)
class LoggedDecision:
    """A decision that a log still has."""

    decision: Decision
    at: str
    """When it was made."""
    fence: int
    is_committed: bool
    """Whether it is known to be committed everywhere."""


@dataclass(frozen=True)
class _Record:
    kind: str
    fence: int
    holder: str
    at: str
    decided_at: int
    """The index of the last decision before this one; 0: there is none, or this is one."""
    is_settled: bool
    id: str
    decision: JsonObject | None = None
    plan: JsonObject = field(default_factory=dict)

    def encode(self) -> bytes:
        """JSON with a checksum as its last key, and a newline: what does not end so was cut off."""
        body = to_json({"version": _VERSION, **vars(self)}).encode()
        return body[:-1] + _CHECKSUM % crc32(body)


class _Overtaken(Exception):
    """The log has moved on while it was read."""


class RecoveryLog:
    """Keeps the decisions of one materialization. `open` it first; not for several threads at once."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix.strip("/")
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._index = 0  # of the last record
        self._decided_at = 0
        self._is_settled = False
        self._fence = 0
        self._plan: JsonObject = {}
        self._unremoved = 0

    @property
    def fence(self) -> int:
        """0 before the log is opened."""
        return self._fence

    @property
    def plan(self) -> JsonObject:
        """How the next epoch runs."""
        return self._plan

    def read(self) -> Recovered:
        """Reads the log for somebody who will not decide anything."""
        while True:
            index, last = self._last()
            if last is None:
                return Recovered(0, None)
            with suppress(_Overtaken):
                decision = self._decision(last.decided_at, index)
                return Recovered(last.fence, decision, last.is_settled, last.plan)

    def recent(self, limit: int | None = None) -> list[LoggedDecision]:
        """Returns the last decisions that were not removed yet, the latest first."""
        found: list[LoggedDecision] = []
        is_committed = False
        for index in reversed(self._indexes()):
            if len(found) == limit:
                break
            record = self._get(index)
            if record is None:
                continue
            is_committed = is_committed or record.is_settled
            if record.decision is not None:
                decision = Decision(**record.decision, id=record.id)
                nothing_left = not any(decision.handles.values())
                found.append(LoggedDecision(decision, record.at, record.fence, is_committed or nothing_left))
                is_committed = True  # the one before: this one waited for its commit
        return found

    def keep(self, **more: Any) -> None:
        """Adds to the plan; it is written with the next decision."""
        self._plan = {**self._plan, **more}

    def open(self, plan: JsonObject | None = None) -> Recovered:
        """Fences off whoever has opened it before, and says where they got to.

        `plan` is how the first epoch of all runs. Later ones run as the decision before them says, since one
        may have been begun.
        """
        self._fence = 0
        while True:
            self._index, last = self._last()
            self._plan = last.plan if last and last.plan else plan or {}
            fence, decided_at, is_settled = (
                (last.fence + 1, last.decided_at, last.is_settled) if last else (1, 0, False)
            )
            try:
                decision = self._decision(decided_at, self._index)
                if decision:  # who made it may have died before it was synced, and from here on we go by it
                    self._store.sync(self._path(decided_at), "read the recovery log")
                self._append(self._record("opened", fence, decided_at, is_settled, uuid4().hex))
            except (_Overtaken, NoSuchObject, Fenced):
                continue  # another one was there at the same moment: this one is later
            self._fence, self._decided_at, self._is_settled = fence, decided_at, is_settled
            return Recovered(fence, decision, is_settled, self._plan)

    def verify(self) -> None:
        """Raises `Fenced` if somebody else has opened the log."""
        self._check_open()
        later = self._indexes(after=self._index)
        found = self._get(later[-1]) if later else None
        if later and not (found and self._is_own_settlement(found)):
            raise self._fenced(found)

    def decide(self, decision: Decision, plan: JsonObject | None = None) -> None:
        """Returns when the epoch is decided. After a `Transient` error it may be: call again with the same.

        After `Fenced` it may be as well, and then its commit is the other's task: abort nothing. `plan` is
        how the next epoch runs; without one, as this one did.
        """
        self._check_open()
        body = {
            "epoch": decision.epoch,
            "runtime_checkpoint": decision.runtime_checkpoint,
            "handles": dict(decision.handles),
            "summary": decision.summary,
            "evidence": dict(decision.evidence),
        }
        next_plan = self._plan if plan is None else plan
        record = self._record("decided", self._fence, 0, False, decision.id, body)
        self._append(replace(record, plan=next_plan))
        self._plan = next_plan
        self._decided_at, self._is_settled = self._index, False
        self._unremoved += 1
        if self._unremoved >= _REMOVED_EVERY:
            self._remove_old()

    def settle(self) -> None:
        """Says that the last decision is committed everywhere. Decisions after it say so of it as well."""
        self._check_open()
        if self._decided_at and not self._is_settled:
            name = f"settled {self._decided_at} under fence {self._fence}"
            self._append(self._record("settled", self._fence, self._decided_at, True, name))
            self._is_settled = True
            self._remove_old()  # a run of a few epochs removes nothing otherwise

    def record_stuck(self, epoch: int, sinks: Mapping[str, str]) -> None:
        """Why sinks have not committed the last decision yet, for people who look; nobody goes by it."""
        report = {"fence": self._fence, "epoch": epoch, "sinks": dict(sinks)}
        with suppress(Transient):
            self._store.put(self._stuck, to_json(report).encode(), "write the recovery log")

    def stuck(self) -> dict[str, str]:
        """Returns why sinks have not committed, as recorded by whoever has the log now."""
        try:
            report: JsonObject = json.loads(self._store.get(self._stuck, "read the recovery log"))
        except (NoSuchObject, ValueError):
            return {}
        now = self.read()
        if now.decision is None or now.is_settled:
            return {}
        is_current = (report.get("fence"), report.get("epoch")) == (now.fence, now.decision.epoch)
        return dict(report.get("sinks", {})) if is_current else {}

    def record_failure(self, message: str) -> None:
        """Why an attempt to run has failed, for people who look; nobody goes by it. Empty: none has."""
        with suppress(HeadraceError):
            last = self.read().decision
            report = {"at": _now(), "after": last.id if last else "", "message": message}
            self._store.put(self._failure, to_json(report).encode(), "write the recovery log")

    def failure(self) -> str:
        """The last one, and when, if no epoch was decided since; or nothing."""
        try:
            report: JsonObject = json.loads(self._store.get(self._failure, "read the recovery log"))
        except (NoSuchObject, ValueError):
            return ""
        last = self.read().decision
        is_current = report.get("message") and report.get("after") == (last.id if last else "")
        return f"{report['at']}: {report['message']}" if is_current else ""

    def _check_open(self) -> None:
        if not self._fence:
            raise ProtocolError("something is decided before the recovery log was opened", expected="open")

    def _record(
        self,
        kind: str,
        fence: int,
        decided_at: int,
        is_settled: bool,
        name: str,
        decision: JsonObject | None = None,
    ) -> _Record:
        return _Record(kind, fence, self._holder, _now(), decided_at, is_settled, name, decision, self._plan)

    def _append(self, record: _Record) -> None:
        what = "write the recovery log"
        reached(f"{self._prefix} writing {record.kind}")
        while True:
            index = self._index + 1
            try:
                self._store.create(self._path(index), record.encode(), what)
            except NoSuchObject:  # removed as soon as it was put: it was far behind
                raise self._fenced(None) from None
            except ObjectExists:
                found = self._get(index)
                if found is not None and self._is_own_settlement(found) and found.id != record.id:
                    self._index = index  # its answer was lost
                    continue
                if found is None or found.id != record.id:
                    raise self._fenced(found) from None
            break
        later = self._indexes(after=index)
        if later:
            raise self._fenced(self._get(later[-1]))
        self._index = index
        reached(f"{self._prefix} wrote {record.kind}")

    def _is_own_settlement(self, record: _Record) -> bool:
        return record.kind == "settled" and record.fence == self._fence

    def _fenced(self, by: _Record | None) -> Fenced:
        who = f"{by.holder} at {by.at}" if by else "somebody"
        return Fenced(
            f"{self} was taken over by {who}: only one coordinator may run a materialization",
            fence=self._fence,
            taken_by=by.holder if by else "",
        )

    def _last(self) -> tuple[int, _Record | None]:
        """Returns the last index that is taken, and the last record that was not cut off.

        One that was, by the machine's stop, was never told of to anybody.
        """
        indexes = self._indexes()
        for index in reversed(indexes):
            record = self._get(index)
            if record is not None:
                if record.kind == "decided":
                    record = replace(record, decided_at=index)
                return indexes[-1], record
        return (indexes[-1] if indexes else 0), None

    def _decision(self, index: int, last: int) -> Decision | None:
        """Returns the decision at an index; `last` is where the log ended when that was read."""
        if not index:
            return None
        record = self._get(index)
        # A folder that changes while it is listed may show nothing of what came and went meanwhile. But of
        # what came before the last record was removed nothing had gone.
        if record is None and (self._indexes(after=last) or last not in self._indexes()):
            raise _Overtaken
        if record is None or record.decision is None:
            raise ConfigError(
                f"{self} has lost its record {index}, which says what was decided last: restore it from a "
                "backup, or start under another name with other tables"
            )
        return Decision(**record.decision, id=record.id)

    def _get(self, index: int) -> _Record | None:
        """None if it is not there, or was cut off."""
        try:
            data = self._store.get(self._path(index), "read the recovery log")
        except NoSuchObject:
            return None
        if not data.endswith(b"}\n"):
            return None
        try:
            raw: dict[str, Any] = json.loads(data)
            version = raw.pop("version")
            raw.pop("crc32", None)
            if version in _VERSIONS and data.endswith(_CHECKSUM % crc32(data[:-_CHECKSUM_BYTES] + b"}")):
                return _Record(**raw)
        except (ValueError, TypeError, KeyError, AttributeError):
            version = _VERSION
        if version not in _VERSIONS:
            raise ConfigError(f"{self} was written by another version ({version!r}): upgrade this one")
        raise ConfigError(f"{self}: record {index} is damaged: restore it from a backup")

    def __str__(self) -> str:
        return f"the recovery log {self._store.url} {self._prefix}"

    def _indexes(self, after: int = 0) -> list[int]:
        offset = self._path(after) if after else None
        paths = self._store.list(self._prefix, "read the recovery log", after=offset)
        return [int(path[-25:-5]) for path in paths if _NAME.fullmatch(path.removeprefix(f"{self._prefix}/"))]

    def _remove_old(self) -> None:
        self._unremoved = 0
        with cleaning_up(f"remove old records of {self}"):
            for index in self._indexes():
                if index >= self._decided_at - _KEPT:
                    return
                self._store.remove(self._path(index), "remove old records of the recovery log")

    @property
    def _stuck(self) -> str:
        return f"{self._prefix}/stuck.json"

    @property
    def _failure(self) -> str:
        return f"{self._prefix}/failure.json"

    def _path(self, index: int) -> str:
        return f"{self._prefix}/{index:020}.json"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def with_evidence(decision: Decision, before: Decision | None) -> Decision:
    """Adds what its sinks have got up to this decision, given the decision before it."""
    found: dict[str, JsonObject] = {}
    if before is not None:
        for name, (_, handle) in last_rows(before).items():
            found[name] = {**before.evidence[name], "handle": handle}
    for name, handle in decision.handles.items():
        if rows := handle.get("rows"):
            known = found.get(name, {"since": decision.epoch, "rows": 0})
            found[name] = {
                "epoch": decision.epoch,
                "since": known["since"],
                "rows": known["rows"] + rows,
            }
    return replace(decision, evidence=found)


def last_rows(decision: Decision | None) -> dict[str, tuple[int, JsonObject]]:
    """The last epoch that brought rows to each sink, and what was prepared for it, as a decision tells it."""
    if decision is None:
        return {}
    return {
        name: (one["epoch"], one.get("handle") or decision.handles.get(name, {}))
        for name, one in decision.evidence.items()
    }


def effective_decisions(past: Sequence[LoggedDecision]) -> list[Decision]:
    """Returns those committed and not taken back, the earliest first; `past` has the latest first."""
    found: dict[int, Decision] = {}
    at_most: int | None = None
    for one in past:
        decision = one.decision
        if at_most is not None and decision.epoch > at_most:
            continue  # the endpoint was restored from before it, and the epoch came again
        if "moved" in decision.summary:
            at_most = decision.epoch
        elif one.is_committed:
            found.setdefault(decision.epoch, decision)
    return [found[epoch] for epoch in sorted(found)]
