"""What was written, and everything that a server ever said about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, UnexpectedFailure
from headrace.model.tiers import Tier

WAIT_SECONDS = 120.0


class Broken(UnexpectedFailure):
    """What was promised is not so; the message says what."""


@dataclass
class Write:
    """A write of our own, known by its id, which is in each of its rows."""

    name: str
    collection: str
    rows: int
    is_once: bool
    """Whether it has to be in the table: it has a producer, or it is up to what was told of it."""
    told: dict[Tier, int] = field(default_factory=dict)
    """The LSN under which it was last said to have reached a tier."""
    snapshot_id: int | None = None
    error: HeadraceError | None = None

    def __str__(self) -> str:
        told = ", ".join(f"{tier.name} as {lsn}" for tier, lsn in sorted(self.told.items()))
        return f"{self.name} ({f'told {told}' if told else 'told nothing'})"


class Journal:
    """Thread-safe."""

    def __init__(self) -> None:
        self.writes: dict[str, Write] = {}
        self.given: dict[int, set[str]] = {}
        """Which writes were ever told that this is their LSN: one, or something is wrong."""
        self.disordered: list[str] = []
        """Writes without a producer that were told before one of the same writer that came first, or of a
        higher tier first."""
        self._last_lsns: dict[str, int] = {}
        self._notices = dict.fromkeys(Tier, 0)
        self._changed = threading.Condition()

    def wrote(self, name: str, collection: str, rows: int, *, is_once: bool) -> Write:
        """Before it is sent."""
        with self._changed:
            write = self.writes[name] = Write(name, collection, rows, is_once)
            return write

    def so_far(self) -> dict[str, Write]:
        """A copy, for a look while others write."""
        with self._changed:
            return dict(self.writes)

    def given_twice(self) -> list[tuple[int, set[str]]]:
        """LSNs that several writes were told to have, so far."""
        with self._changed:
            return [(lsn, set(names)) for lsn, names in self.given.items() if len(names) > 1]

    def told(self, write: Write, lsn: int, tier: Tier, snapshot_id: int | None = None) -> None:
        with self._changed:
            if lsn:
                self.given.setdefault(lsn, set()).add(write.name)
            if not write.is_once:
                self._look_at_order(write, lsn, tier)
            write.told[tier] = lsn
            write.snapshot_id = snapshot_id or write.snapshot_id
            self._notices[tier] += 1
            self._changed.notify_all()

    def _look_at_order(self, write: Write, lsn: int, tier: Tier) -> None:
        writer = write.name.rpartition("-")[0]
        if tier is Tier.MEMORY:
            last, self._last_lsns[writer] = self._last_lsns.get(writer, 0), lsn
            is_late = lsn <= last
        else:
            is_late = not write.told or tier < max(write.told)
        if is_late:
            self.disordered.append(write.name)

    def failed(self, write: Write, error: HeadraceError) -> None:
        with self._changed:
            write.error = error

    def notices(self, tier: Tier) -> int:
        """How many there were so far."""
        return self._notices[tier]

    def hears(self, tier: Tier, count: int, seconds: float) -> bool:
        """Whether so many notices more of a tier come in time."""
        wanted = self._notices[tier] + count
        with self._changed:
            return self._changed.wait_for(lambda: self._notices[tier] >= wanted, seconds)

    def await_news(self, tier: Tier, count: int = 1, is_over: Callable[[], bool] = lambda: False) -> None:
        """Returns after so many notices more of a tier, and fails if something else is over before."""
        wanted = self._notices[tier] + count
        with self._changed:
            for _ in range(int(WAIT_SECONDS)):
                if self._changed.wait_for(lambda: self._notices[tier] >= wanted, 1.0):
                    return
                if is_over():
                    raise Broken(f"over before any write reached {tier.name}")
        raise Broken(f"no write reached {tier.name} in {WAIT_SECONDS:.0f} s")
