"""Where recent epochs end in their sources, beside a Delta table.

The log has it too, in what it tells of each commit; but those entries are removed after a while, and
checkpoints of the log do not keep them. The table names the attempt that its last epoch came from, and that
one's object is here before the commit is.
"""

from __future__ import annotations

import json
from contextlib import suppress

from headrace.model.checkpoints import JsonObject, to_json
from headrace.objects import NoSuchObject, ObjectStore
from headrace.sinks.staging import Attempt

_KEPT = 100  # so that it can be told also after going back
_PRUNED_EVERY = 20


class Checkpoints:
    """Of one writer."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self._written = 0

    def write(self, attempt: Attempt, checkpoint: JsonObject) -> None:
        path = f"{self._folder}/{attempt.name}.json"
        self._written += 1
        self._store.put(path, to_json(checkpoint).encode(), f"keep the checkpoint of epoch {attempt.epoch}")

    def read(self, came_from: int) -> JsonObject | None:
        """Of an attempt; None if it is not known."""
        for attempt in self._attempts():
            if attempt.id == came_from:
                with suppress(NoSuchObject):
                    found: JsonObject = json.loads(
                        self._store.get(f"{self._folder}/{attempt.name}.json", "read a checkpoint")
                    )
                    return found
        return None

    def last(self, epoch: int) -> int:
        """The attempt that an epoch came from, or the last one before it; 0: not known."""
        known = [attempt for attempt in self._attempts() if attempt.epoch <= epoch]
        return max(known, key=lambda attempt: (attempt.epoch, attempt.id)).id if known else 0

    def prune(self, epoch: int) -> None:
        """Now and then; what an epoch came from stays."""
        if self._written % _PRUNED_EVERY != 1:
            return
        # Ordered by when they began: after a rewind, attempts of later epochs may be older.
        for attempt in sorted(self._attempts(), key=lambda one: one.id)[:-_KEPT]:
            if attempt.epoch != epoch:
                self._store.remove(f"{self._folder}/{attempt.name}.json", "remove old checkpoints")

    def _attempts(self) -> list[Attempt]:
        paths = self._store.list(self._folder, "look for checkpoints")
        found = [Attempt.named(path.rpartition("/")[2].removesuffix(".json")) for path in paths]
        return [attempt for attempt in found if attempt is not None]
