"""Who started last in a place that has only files, and what was taken back there.

    00000000000000000001.json   {"fence": 1, "generation": 0, "rewinds": [], "writer": "sales"}
    00000000000000000002.json   {"fence": 1, ..., "owner": {"materialization": "sales", "lineage": ..., ...}}
    00000000000000000003.json   {"fence": 2, "generation": 0, "rewinds": [], ...}
    00000000000000000004.json   {"fence": 2, "generation": 1, "rewinds": [{"generation": 1, "after": 7}], ...}

Each record is an object that only one can create, after the last, and says all that the ones before it said.
Whoever starts takes the place at which everybody before him would have taken something back. So one who was
replaced and wakes up late takes back nothing, and the order of records is the order of events.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from headrace.errors import Fenced
from headrace.model.checkpoints import to_json
from headrace.model.ownership import Mode, Owner
from headrace.objects import NoSuchObject, ObjectExists, ObjectStore
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.ownership import refuse_other

_KEPT = 20  # records before the last, for people who look


@dataclass(frozen=True)
class Rewind:
    generation: int
    """The first that is not touched by it."""
    after: int
    """The last epoch that stays."""


@dataclass(frozen=True)
class Opening:
    number: int = 0
    """0: there is no record of it."""
    fence: int = 0
    generation: int = 0
    """How often something was taken back."""
    rewinds: tuple[Rewind, ...] = ()
    writer: str = ""
    """Whose place it is; empty if nobody has said."""
    owner: Owner | None = None
    """What `writer` has claimed; None if it was of a version that noted names alone."""

    def owner_beside(self, wanted: Owner) -> Owner | None:
        """Who owns the place; of whom only the name is known is taken to write it as `wanted` does."""
        if self.owner is None and self.writer not in ("", wanted.materialization):
            return replace(wanted, materialization=self.writer, lineage="")
        return self.owner

    def counts(self, generation: int, epoch: int) -> bool:
        """Whether what was prepared in a generation was not taken back since."""
        return all(epoch <= rewind.after for rewind in self.rewinds if rewind.generation > generation)

    def rewound(self, after: int) -> Opening:
        """One that is further back makes those before it needless."""
        generation = self.generation + 1
        kept = tuple(rewind for rewind in self.rewinds if rewind.after < after)
        rewinds = (*kept, Rewind(generation, after))
        return replace(self, number=self.number + 1, generation=generation, rewinds=rewinds)

    def encode(self) -> bytes:
        """Never the same twice, so that whoever has created it knows it again."""
        rewinds = [vars(rewind) for rewind in self.rewinds]
        said = {"fence": self.fence, "generation": self.generation, "rewinds": rewinds}
        owner = {"owner": json.loads(self.owner.encode())} if self.owner else {}
        return to_json({**said, "writer": self.writer, **owner, "id": uuid4().hex}).encode()

    @classmethod
    def decode(cls, number: int, data: bytes) -> Opening:
        raw: Mapping[str, Any] = json.loads(data)
        rewinds = tuple(Rewind(**rewind) for rewind in raw["rewinds"])
        owner = Owner.decode(json.dumps(raw["owner"])) if "owner" in raw else None
        return cls(number, raw["fence"], raw["generation"], rewinds, raw.get("writer", ""), owner)


class Openings:
    """The records of one writer in one place."""

    def __init__(self, store: ObjectStore, folder: str, name: str, writer: str = "") -> None:
        self._store, self._folder, self._name, self._writer = store, folder, name, writer

    def last(self) -> Opening:
        while True:
            numbers = self._numbers()
            if not numbers:
                return Opening()
            try:
                data = self._store.get(self._path(numbers[-1]), "read who started last")
            except NoSuchObject:
                continue  # removed, since there are many later ones
            return Opening.decode(numbers[-1], data)

    def start(self, decided: int | None, fence: int) -> Opening:
        """Called by `Sink.start`: takes the place, unless it is another writer's.

        Fences are each writer's own, and nobody can know what another has decided. So nothing is noted there
        before `claim` knows whether it is to be taken over; what this returns has no number then.
        """
        if self._is_of_other(self.last()):
            return Opening(fence=told(fence))
        return self.take(decided, fence)

    def take(self, decided: int | None, fence: int) -> Opening:
        """One who was replaced before he came here is refused, and so is another writer.

        A log that was lost begins anew, also with its fences; nothing is decided in it.
        """
        while True:
            last = self.last()
            self._refuse_other(last)
            check_fence(self._name, last.fence, decided, fence)
            taken = replace(
                last, number=last.number + 1, fence=told(fence), writer=self._writer or last.writer
            )
            if self._create(taken):
                with cleaning_up(f"remove old records of sink {self._name} from {self._store.url}"):
                    for number in self._numbers():
                        if number < taken.number - _KEPT:
                            self._store.remove(self._path(number), "remove old records")
                return taken

    def claim(self, opened: Opening, owner: Owner, *, adopts: bool) -> Opening:
        """Called by `RowSink.claim`, with what `start` or `take` returned, or with the fence alone."""
        while True:
            last = self.last()
            found = last.owner_beside(owner)
            refuse_other(self._name, self._store.url, found, owner, adopts=adopts)
            if opened.number and last.number != opened.number:
                raise replaced(self._name)
            if opened.number and last.owner == owner:
                return opened
            fence, writer = told(opened.fence), owner.materialization
            claimed = replace(last, number=last.number + 1, fence=fence, writer=writer, owner=owner)
            if self._create(claimed):
                return claimed

    def rewind(self, opened: Opening | None, after: int) -> Opening:
        """Called by `RowSink.rewind`, with what `take` returned; None if it was not called."""
        last = self.last()
        self._refuse_other(last)
        rewound = (opened or last).rewound(after)
        if last.number != rewound.number - 1 or not self._create(rewound):
            raise replaced(self._name)
        return rewound

    def _is_of_other(self, last: Opening) -> bool:
        return bool(self._writer) and last.writer not in ("", self._writer)

    def _refuse_other(self, last: Opening) -> None:
        if self._is_of_other(last):
            found, wanted = (Owner(writer, "", (), Mode.APPEND) for writer in (last.writer, self._writer))
            refuse_other(self._name, self._store.url, found, wanted)

    def _create(self, opening: Opening) -> bool:
        """False if somebody else has created it, or a later one."""
        path, data, what = self._path(opening.number), opening.encode(), "say who started last"
        try:
            self._store.create(path, data, what)
        except ObjectExists:
            with suppress(NoSuchObject):
                # It may be our own: the answer was lost, and the store was asked again.
                return self._store.get(path, what) == data and self._numbers()[-1] == opening.number
            return False
        return self._numbers()[-1] == opening.number

    def _numbers(self) -> list[int]:
        paths = self._store.list(self._folder, "look who started last")
        names = [path.rpartition("/")[2].removesuffix(".json") for path in paths]
        return sorted(int(name) for name in names if name.isdecimal())

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020}.json"


def told(fence: int) -> int:
    """The largest number is for who wants all removed that was there before, whatever fences it had."""
    return fence if fence < sys.maxsize else 0


def check_fence(name: str, last: int, decided: int | None, fence: int) -> None:
    if fence < last and decided is not None:
        raise replaced(name)


def replaced(name: str) -> Fenced:
    return Fenced(f"sink {name}: another coordinator has started since, so this one may take back nothing")
