"""Writes by client, for a bounded number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from urllib.parse import unquote

from headrace.observe.source import ObservedSession

OTHERS = "(others)"
"""The label for all clients or collections without their own label; no collection can have this name."""
MOST_CLIENTS = 50


class ClientWrites:
    """Totals that only grow, though streams come and go. Writes of a stream between the last `look` and its
    end are not included."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._totals: dict[str, int] = {}
        self._counted: dict[int, int] = {}
        self._lock = Lock()

    def look(self, sessions: Sequence[ObservedSession]) -> dict[str, int]:
        """Returns the totals by client."""
        with self._lock:
            live = {client_of(session) for session in sessions}
            open_now = {session.id for session in sessions}
            self._counted = {known: writes for known, writes in self._counted.items() if known in open_now}
            for session in sessions:
                # The first message identifies the client; before that there is nothing to count.
                if writes := session.statistics.writes:
                    name = self._place_for(client_of(session), live)
                    self._totals[name] = self._totals.get(name, 0) + writes - self._counted.get(session.id, 0)
                    self._counted[session.id] = writes
            return dict(self._totals)

    def _place_for(self, name: str, live: set[str]) -> str:
        if name in self._totals or len(self._totals) < self._most:
            return name
        # The place of one that has no stream any more; oldest first.
        unused = next((old for old in self._totals if old not in live and old != OTHERS), None)
        if unused is None:
            return OTHERS
        del self._totals[unused]
        return name


def client_of(session: ObservedSession) -> str:
    """Returns the producer, or for other clients the host, since their port changes with each connection."""
    if session.producer:
        return session.producer
    kind, _, address = unquote(session.peer).partition(":")
    host = address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""
    return host or session.peer
