"""Defects of the coordinator, of the recovery log, and of how a pipeline goes on after a crash.

Imported in every process of a certification's pipelines (`headrace.faults.Faults.load`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.certify.defects.names import (
    APPLIED_FIRST,
    BEGUN_IS_DECIDED,
    DECIDED_IS_COMMITTED,
    EVIDENCE_IGNORED,
    FAILED_IS_COMMITTED,
    FAILED_IS_DECIDED,
    FENCE_NOT_CHECKED,
    FOLDER_TRUSTED,
    HANDLE_LOST,
    HISTORY_BY_NUMBER,
    LAST_BY_CLOCK,
    LOG_OUTRANKS,
    MARK_UNKNOWN,
    NUMBERED_ANEW,
    OFFSETS_REWOUND,
    OPENING_FORGETS,
    OWNER_NOT_ASKED,
    SINK_NOT_ASKED,
    SOURCE_BY_NAME,
)
from headrace.certify.defects.switching import Replacement, defective, lane_of_sink
from headrace.certify.interference import lane_of
from headrace.connectors import ownership as of_connectors
from headrace.errors import Fenced, Transient
from headrace.objects import ObjectExists
from headrace.pipeline import pipeline, recovery, resume, targets
from headrace.pipeline.committing import EpochCommitter
from headrace.pipeline.connector_sink import ConnectorSink
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.recovery import Recovery
from headrace.pipeline.recovery_log import Decision, Recovered, RecoveryLog
from headrace.sinks import ownership as of_sinks
from headrace.spark.checkpoint import CheckpointFolder


def _of_log(log: RecoveryLog, *_: Any, **__: Any) -> str:
    return log._prefix.split("/")[1]


def _of_coordinator(coordinator: Coordinator, *_: Any, **__: Any) -> str:
    return _of_log(coordinator._log)


@defective(Pipeline, "_recover", BEGUN_IS_DECIDED, lambda self, _: self._settings.name)
def _begun_is_decided(original: Replacement, self: Pipeline, folder: CheckpointFolder) -> Any:
    start = original(self, folder)
    begun = max(folder.offsets, default=-1)
    if begun not in folder.commits and not self._coordinator.is_decided(begun):
        self._coordinator._decided = begun
    return start


@defective(Recovery, "_had_rows", SINK_NOT_ASKED, lambda self, *_: self.name)
def _not_asked(*_: Any) -> dict[str, int]:
    """So that nobody sees where they stand behind what the log knows of them."""
    return {}


@defective(Recovery, "_refuse_undone", SINK_NOT_ASKED, lambda self, *_: self.name)
def _not_missed(*_: Any) -> None:
    """Nor that their last rows are gone."""


@defective(Recovery, "_refuse_undone", EVIDENCE_IGNORED, lambda self, *_: self.name)
def _evidence_ignored(*_: Any) -> None:
    pass


@defective(resume, "_refuse_other_history", HISTORY_BY_NUMBER, lambda name, *_: name)
def _history_by_number(*_: Any) -> None:
    pass


@defective(recovery, "check_incarnations", SOURCE_BY_NAME, lambda checkpoint, *_: checkpoint.materialization)
def _source_by_name(*_: Any) -> None:
    pass


@defective(Recovery, "_refuse", APPLIED_FIRST, lambda self, *_, **__: self.name)
def _applied_first(original: Replacement, self: Recovery, *given: Any, **more: Any) -> Any:
    if self.connector is not None:
        self.connector.make_ready(str(self.log.read().plan.get("lineage", "")), adopts=False)
    return original(self, *given, **more)


def _owner_not_asked(*_: Any) -> str:
    return ""


for _module in (targets, of_connectors, of_sinks):
    defective(_module, "owner_conflict", OWNER_NOT_ASKED, lambda _, wanted: lane_of(wanted.materialization))(
        _owner_not_asked
    )


@defective(RecoveryLog, "decide", HANDLE_LOST, _of_log)
def _handle_lost(original: Replacement, self: RecoveryLog, decision: Decision, plan: Any = None) -> None:
    original(self, replace(decision, handles={}, evidence={}), plan)


@defective(RecoveryLog, "open", DECIDED_IS_COMMITTED, _of_log)
def _decided_is_committed(original: Replacement, self: RecoveryLog, plan: Any = None) -> Recovered:
    recovered: Recovered = original(self, plan)
    return replace(recovered, is_settled=True)


@defective(RecoveryLog, "open", OPENING_FORGETS, _of_log)
def _opening_forgets(original: Replacement, self: RecoveryLog, plan: Any = None) -> Recovered:
    _, last = self._last()
    recovered: Recovered = original(self, plan)
    return replace(recovered, is_settled=True) if last and last.kind == "opened" else recovered


class _Recovering(threading.local):
    """On this thread."""

    lane = ""


_RECOVERING = _Recovering()


@defective(CheckpointFolder, "follows", FOLDER_TRUSTED, lambda *_: _RECOVERING.lane)
def _folder_trusted(*_: Any) -> bool:
    return True


@defective(Pipeline, "_recover", FOLDER_TRUSTED, lambda self, _: self._settings.name)
def _recovers(original: Replacement, self: Pipeline, folder: CheckpointFolder) -> Any:
    _RECOVERING.lane = self._settings.name
    try:
        return original(self, folder)
    finally:
        _RECOVERING.lane = ""


@defective(Coordinator, "is_decided", NUMBERED_ANEW, _of_coordinator)
def _never_decided(*_: Any) -> bool:
    return False


@defective(Coordinator, "run", NUMBERED_ANEW, _of_coordinator)
def _numbered_anew(original: Replacement, self: Coordinator, number: int, *given: Any, **more: Any) -> bool:
    later = number if self._decided is None else self._decided + 1
    return bool(original(self, later, *given, **more))


def _of_folder(path: Path, *_: Any, **__: Any) -> str:
    return path.parent.name


@defective(pipeline, "write_folder", OFFSETS_REWOUND, _of_folder)
def _offsets_rewound(
    original: Replacement, path: Path, lineage: str, done: int, offsets: Mapping[int, str]
) -> None:
    before = offsets.get(done - 1, offsets.get(done, ""))
    original(
        path, lineage, done, {epoch: before if epoch == done else text for epoch, text in offsets.items()}
    )


@defective(ConnectorSink, "_mark", MARK_UNKNOWN, lambda self, *_: self._materialization.name)
def _mark_unknown(original: Replacement, self: ConnectorSink, *given: Any) -> Any:
    done, ahead, _, opened = given
    if opened.runtime_checkpoint and opened.runtime_checkpoint not in (done, ahead):
        raise self._moved()
    return original(self, *given)


@defective(ConnectorSink, "start", LOG_OUTRANKS, lambda self, *_: self._materialization.name)
def _log_outranks(original: Replacement, self: ConnectorSink, *given: Any) -> None:
    original(self, *given)
    self.opened = None


@defective(RecoveryLog, "_last", LAST_BY_CLOCK, _of_log)
def _last_by_clock(_: Replacement, self: RecoveryLog) -> Any:
    found = [(index, record) for index in self._indexes() if (record := self._get(index)) is not None]
    if not found:
        return 0, None
    index, last = max(found, key=lambda one: (one[1].at, one[0]))
    if last.kind == "decided":
        last = replace(last, decided_at=index)
    return self._indexes()[-1], last


@defective(RecoveryLog, "verify", FENCE_NOT_CHECKED, _of_log)
def _not_verified(_: Replacement, __: RecoveryLog) -> None:
    pass


@defective(RecoveryLog, "_append", FENCE_NOT_CHECKED, _of_log)
def _appended_anywhere(original: Replacement, self: RecoveryLog, record: Any) -> None:
    self._index = max([self._index, *self._indexes()])
    try:
        original(self, record)
    except (Fenced, ObjectExists):
        _appended_anywhere(original, self, record)


@defective(Coordinator, "_decide", FAILED_IS_DECIDED, _of_coordinator)
def _failed_is_decided(_: Replacement, self: Coordinator, decision: Decision, plan: Any) -> None:
    with suppress(Transient):
        self._log.decide(decision, plan)


@defective(EpochCommitter, "_is_done", FAILED_IS_COMMITTED, lambda _, sink, *__: lane_of_sink(sink))
def _failed_is_committed(original: Replacement, *given: Any) -> bool:
    original(*given)
    return True
