"""A table that refuses its collection, as if somebody had put another one in its place."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from headrace.certify.ingest.journal import WAIT_SECONDS, Broken
from headrace.certify.ingest.surroundings import Surroundings
from headrace.client import connect
from headrace.testing.ingest_process import IngestProcess

_LOG_ID = "headrace.log-id"
_LOOK_EVERY = 0.05


class RefusingTable:
    def __init__(self, surroundings: Surroundings, collection: str) -> None:
        self._surroundings, self._collection = surroundings, collection
        self._owner = self._table().properties[_LOG_ID]

    def refuse_until(self, condition: Callable[[], bool], what: str) -> None:
        """Says that it is of another log. A commit under way may set that right, so it is said again."""

        def is_reached() -> bool:
            if self._table().properties[_LOG_ID] == self._owner:
                self._set_owner("another")
            return condition()

        self._await(is_reached, what)

    def mend(self) -> None:
        self._set_owner(self._owner)

    def await_quarantine(self, server: IngestProcess) -> None:
        """Refuses until the server keeps the collection apart, and its log is released of it."""
        self.refuse_until(lambda: self.is_apart(server), "a quarantine")
        there = set((server.data / "wal").iterdir())
        self._await(lambda: not there & set((server.data / "wal").iterdir()), "a release of the log")

    def is_apart(self, server: IngestProcess) -> bool:
        """Returns whether the collection is in quarantine, with a side log."""
        with connect(server.url) as client:
            found = {one["collection"]: one["side_log_bytes"] for one in client.quarantine()}
        return bool(found.get(self._collection))

    def release(self, server: IngestProcess) -> None:
        with connect(server.url) as client:
            client.release_quarantine(self._collection, WAIT_SECONDS)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise Broken(f"{what} of {self._collection!r} did not come in {WAIT_SECONDS:.0f} s")
            time.sleep(_LOOK_EVERY)

    def _set_owner(self, log_id: str) -> None:
        while True:
            try:
                with self._table().transaction() as transaction:
                    transaction.set_properties({_LOG_ID: log_id})
            except CommitFailedException:  # the server was faster
                continue
            return

    def _table(self) -> Table:
        return self._surroundings.catalog().load_table((self._surroundings.namespace, self._collection))
