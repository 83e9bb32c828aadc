"""The committer as the server sees it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.errors import HeadraceError, Transient
from headrace.ingest.iceberg.errors import CommitterDied, CommitterKilled, CommitterSilent
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.iceberg.parent import Child, ChildGone, ChildKilled, ChildSilent, python_module
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.wal.position import LogPosition
from headrace.wal.state import Committed

Outcome = Committed | HeadraceError

_KINDS: dict[type[Exception], type[CommitterDied]] = {
    ChildSilent: CommitterSilent,
    ChildKilled: CommitterKilled,
}

# A commit can wait for a processor; the acknowledgements of writes, which it would compete with, cannot.
_NICENESS = 10


class CommitterProcess:
    """A process that commits to Iceberg tables. One request is answered at a time; other callers wait.

    A process that ended or did not answer in time is replaced at the next call. The request may have been
    carried out nevertheless, so ask for the watermarks, or for the same commit again, which does no harm.
    """

    def __init__(self, settings: CatalogSettings, command: Sequence[str] = ()) -> None:
        self._settings = settings
        self._command = command or python_module("headrace.ingest.iceberg.committer_process")
        self._child: Child | None = None
        self._last_id = 0
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        child = self._child
        return None if child is None else child.pid

    def start(self) -> None:
        """Starts the process, without waiting until it is ready; a call does it as well."""
        with self._lock:
            self._running(time.monotonic() + 10)

    def watermarks(
        self, collections: Iterable[str], timeout: float = 60, log_id: str = ""
    ) -> dict[str, Outcome]:
        """How far the tables are; LSN 0 for one that does not exist."""
        return self._call({"watermarks": {"collections": list(collections), "log_id": log_id}}, timeout)

    def commit(self, job: CommitJob, timeout: float = 300) -> dict[str, Outcome]:
        """For each of the job's collections how far it is now, or what is wrong with it."""
        return self._call({"commit": job.to_json()}, timeout)

    def positions(self, log_id: str, collections: Iterable[str], timeout: float) -> dict[str, LogPosition]:
        """Returns where the tables are, for a log that must know it before it goes on: all have to answer.

        What is wrong with a table itself does not go away; it is told when its collection is committed.
        """
        answers = self.watermarks(collections, timeout, log_id)
        for answer in answers.values():
            if isinstance(answer, Transient):
                raise answer
        return {name: answer.position for name, answer in answers.items() if isinstance(answer, Committed)}

    def kill(self) -> None:
        """Ends the process at once, even while another thread waits for its answer."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Ends the process once it has answered."""
        with self._lock:
            self._discard()

    def __enter__(self) -> CommitterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, request: dict[str, Any], timeout: float) -> dict[str, Outcome]:
        with self._lock:
            deadline = time.monotonic() + timeout
            self._last_id += 1
            try:
                child = self._running(deadline)
                child.send({"id": self._last_id, **request}, deadline)
                answer = json.loads(child.read_line(deadline))
                if answer["id"] != self._last_id:
                    raise ChildGone("it answered another request")
            except (ChildGone, OSError, ValueError, KeyError) as error:
                self._discard()
                kind = _KINDS.get(type(error), CommitterDied)
                raise kind(f"the process that commits is of no more use: {error}") from error
        if "error" in answer:
            raise _error(answer["error"])
        return {name: _outcome(raw) for name, raw in answer["outcomes"].items()}

    def _running(self, deadline: float) -> Child:
        if self._child is not None and not self._child.is_alive:
            self._discard()
        if self._child is None:
            self._child = Child(self._command, _NICENESS)
            self._child.send(self._settings.to_json(), deadline)
        return self._child

    def _discard(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _outcome(raw: dict[str, Any]) -> Outcome:
    if "error" in raw:
        return _error(raw["error"])
    return Committed(raw["lsn"], raw["snapshot_id"], LogPosition.from_json(raw["position"]))


def _error(raw: dict[str, Any]) -> HeadraceError:
    return HeadraceError.from_json(json.dumps(raw))
