"""The fence: a hash in Redis that lets one instance write for a key, and no other.

For each range of keys of a materialization it names the instance that opened it last. Whoever opens a range
takes the entries of all that overlap it away. A chunk of writes is one transaction of Redis that watches
the hash: it runs only if the entry is still the writer's own, and nobody has touched the hash since it
looked. So on one server, an instance that was replaced writes nothing from then on.
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
    """The right to write for a range of keys, until somebody else opens one of them."""

    materialization: str
    key_range: KeyRange
    holder: str
    """Never the same twice."""

    @property
    def key(self) -> str:
        return fences_key(self.materialization)

    def verify(self, session: Session) -> None:
        """Raises `Fenced` where the range was taken over, and watches that it is not."""
        _, holder = session.pipeline([("WATCH", self.key), ("HGET", self.key, str(self.key_range))])
        if holder is None or holder.decode() != self.holder:
            raise self._fenced(session)

    def write(self, session: Session, commands: Sequence[Command]) -> None:
        """Runs all of the commands if the fence is ours still, and none if it is not."""
        written = False
        while not written:  # again only where somebody has opened another range meanwhile
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
    """Takes over a range of keys from whoever has one of them."""
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
