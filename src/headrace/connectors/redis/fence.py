"""The fence: a hash in Redis that lets one instance write for a key, and no other.

For each key range of a materialization it names the instance that opened it last. Opening a range removes the
entries of all ranges that overlap it. A chunk of writes is one transaction of Redis that watches the hash: it
runs only if the entry is still the writer's own, and nobody has changed the hash since it was read. So on one
server, an instance that was replaced writes nothing from then on.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.connectors.redis.config import OWN_PREFIX
from headrace.connectors.redis.session import Command, Session
from headrace.errors import Fenced
from headrace.model.key_range import KeyRange


@dataclass(frozen=True)
class Fence:
    """The right to write for a key range, until another instance opens an overlapping one."""

    materialization: str
    key_range: KeyRange
    holder: str
    """The id of the instance, which is unique."""

    @property
    def key(self) -> str:
        return fences_key(self.materialization)

    def verify(self, session: Session) -> None:
        """Raises `Fenced` if the range was taken over; otherwise watches for that."""
        _, holder = session.pipeline([("WATCH", self.key), ("HGET", self.key, str(self.key_range))])
        if holder is None or holder.decode() != self.holder:
            raise self._fenced(session)

    def write(self, session: Session, commands: Sequence[Command]) -> None:
        """Runs all of the commands if the fence is still ours, and none if it is not."""
        written = False
        while not written:  # repeats only if another range was opened meanwhile
            self.verify(session)
            written = session.transaction(commands)

    def _fenced(self, session: Session) -> Fenced:
        others = [
            f"{holder} with keys {key_range}"
            for key_range, holder in _holders(session, self.key).items()
            if key_range.overlaps(self.key_range)
        ]
        taken_by = ", ".join(others) or "somebody who removed its entry"
        return Fenced(
            f"materialization {self.materialization!r}, keys {self.key_range}: the range was taken over by "
            f"{taken_by}; nothing more is written",
            materialization=self.materialization,
            key_range=str(self.key_range),
            taken_by=taken_by,
        )


def install_fence(session: Session, materialization: str, key_range: KeyRange) -> Fence:
    """Takes over a key range from every instance that holds an overlapping one."""
    fence = Fence(materialization, key_range, _this_process())
    installed = False
    while not installed:
        session.call("WATCH", fence.key)
        replaced = [str(other) for other in _holders(session, fence.key) if other.overlaps(key_range)]
        commands: list[Command] = [("HSET", fence.key, str(key_range), fence.holder)]
        if replaced:
            commands.insert(0, ("HDEL", fence.key, *replaced))
        installed = session.transaction(commands)
    session.await_replicas()
    return fence


def fences_key(materialization: str) -> str:
    return f"{OWN_PREFIX}:fences:{materialization}"


def _holders(session: Session, key: str) -> dict[KeyRange, str]:
    entries = [entry.decode() for entry in session.call("HGETALL", key)]
    ranges = (text.partition("-") for text in entries[::2])
    return {
        KeyRange(int(begin, 16), int(end, 16)): holder
        for (begin, _, end), holder in zip(ranges, entries[1::2], strict=True)
    }


def _this_process() -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} at {now} ({secrets.token_hex(4)})"
