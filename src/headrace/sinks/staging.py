"""What was begun in a place and is not committed: one small object for each attempt at an epoch.

It is there before anything else of the attempt is, so that whatever an attempt leaves behind is found, also
where the place is too large to be looked through. It is removed last of all.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.model.checkpoints import JsonObject, to_json
from headrace.objects import NoSuchObject, ObjectStore

_NAME = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{16})")
_RANDOM_BITS = 22


@dataclass(frozen=True)
class Attempt:
    """At an epoch, by one coordinator."""

    epoch: int
    fence: int
    id: int
    """Of 63 bits, never the same twice."""

    @classmethod
    def new(cls, epoch: int, fence: int) -> Attempt:
        now = time.time_ns() // 1_000_000
        return cls(epoch, fence, now << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))

    @classmethod
    def named(cls, name: str) -> Attempt | None:
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), int(found[2]), int(found[3], 16)) if found else None

    @property
    def name(self) -> str:
        return f"{self.epoch:020}-{self.fence}-{self.id:016x}"

    @property
    def began_at(self) -> datetime:
        return datetime.fromtimestamp((self.id >> _RANDOM_BITS) / 1000, UTC)


class Staging:
    """The attempts of one writer in one place."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def begin(self, attempt: Attempt) -> None:
        self._store.create(self._path(attempt.name), b"{}", f"stage epoch {attempt.epoch}")

    def finish(self, attempt: Attempt, what: JsonObject) -> None:
        """Says what is needed to commit it."""
        self._store.put(self._path(attempt.name), to_json(what).encode(), f"stage epoch {attempt.epoch}")

    def read(self, name: str) -> JsonObject | None:
        """What `finish` was told; None if the attempt is committed, or was removed."""
        try:
            found: JsonObject = json.loads(self._store.get(self._path(name), f"read what {name} staged"))
        except NoSuchObject:
            return None
        return found

    def attempts(self) -> Iterator[Attempt]:
        for path in self._store.list(self._folder, "look for what was never decided"):
            attempt = Attempt.named(path.removeprefix(f"{self._folder}/").removesuffix(".json"))
            if attempt is not None:
                yield attempt

    def remove(self, name: str) -> None:
        self._store.remove(self._path(name), f"remove what is known of {name}")

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"
