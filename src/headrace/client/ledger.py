"""Records how far a writer's writes have come, and who waits for them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.client.groups import Group
from headrace.client.ranges import LsnRanges, Snapshots
from headrace.errors import ConfigError, HeadraceError, WriteLost, WriteTimeout
from headrace.model.tiers import Tier

log = logging.getLogger("headrace.client")

# Without a flush, failures are only logged; there is no need to keep more of them than this.
MOST_UNSEEN = 1000


@dataclass(eq=False, slots=True)
class Waiter:
    """Is called when a write reaches a tier, or no longer can."""

    group: Group
    index: int
    tier: Tier
    on_reached: Callable[[], None]
    on_failed: Callable[[HeadraceError], None]


@dataclass(frozen=True, slots=True)
class Vanished:
    """Sequence numbers that a server no longer has, although their data was released; unless they are
    committed."""

    after: int
    last: int
    committed: int


Ready = list[tuple[Waiter, HeadraceError | None]]


class Ledger:
    """Holds watermarks, losses and waiters. A write is compared with them only when somebody asks.

    The writer's only lock is here. Methods called `..._locked` require it to be held.
    """

    def __init__(self, retain: Tier) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.retain = retain
        self.watermarks = [0] * len(Tier)
        self.last_lsn = 0
        self.snapshots = Snapshots()
        self.lost = LsnRanges()
        self.vanished: list[Vanished] = []
        self.failure: HeadraceError | None = None
        """The reason why nothing more will be learned."""
        self.failure_seen = False
        self.trouble: HeadraceError | None = None
        """The reason why there is no connection at the moment."""
        self.throttled: str | None = None
        self.on_watermark: list[Callable[[Tier, int], object]] = []
        self._unseen: list[Group | HeadraceError] = []
        self._waiting: list[list[tuple[int, int, Waiter]]] = [[] for _ in Tier]
        self._order = itertools.count()
        self._telling: set[int] = set()

    def verdict(self, group: Group, index: int, tier: Tier) -> HeadraceError | bool:
        """Returns True if the write has reached the tier, False if it has not yet, or the reason why it will
        not."""
        lsn = group.lsn_of(index)
        if lsn is None:
            return group.error or self.failure or False
        if lsn == 0:
            return True
        if self._is_lost(group.first + index, lsn):
            return WriteLost(
                f"the write with LSN {lsn} was lost by the server after it had reached {self.retain.name}",
                lsn=lsn,
                level=self.retain.name,
            )
        if tier is Tier.MEMORY or self.watermarks[tier] >= lsn:
            return True
        return self.failure or False

    def level(self, group: Group, index: int) -> Tier | None:
        lsn = group.lsn_of(index)
        if lsn is None or (lsn and self._is_lost(group.first + index, lsn)):
            return None
        return max((tier for tier in Tier if not lsn or self.watermarks[tier] >= lsn), default=Tier.MEMORY)

    def _is_lost(self, seq: int, lsn: int) -> bool:
        if self.lost and lsn in self.lost:
            return True
        return any(gone.after < seq <= gone.last and lsn > gone.committed for gone in self.vanished)

    def wait(self, is_done: Callable[[], HeadraceError | bool], timeout: float | None, what: str) -> None:
        """Returns when `is_done` returns True; raises the error that it returns instead, or
        `WriteTimeout`."""
        with self.lock:
            self.wait_locked(is_done, None if timeout is None else time.monotonic() + timeout, what)

    def wait_locked(
        self, is_done: Callable[[], HeadraceError | bool], deadline: float | None, what: str
    ) -> None:
        while True:
            done = is_done()
            if done is True:
                return
            if isinstance(done, HeadraceError):
                raise done.with_traceback(None)  # many callers may raise the same error
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WriteTimeout(f"{what} in the time given{self._why_not_yet()}")
            if self.is_telling:
                raise ConfigError(f"{what} yet, and a callback cannot wait for it: it would wait for itself")
            self.changed.wait(left)

    def _why_not_yet(self) -> str:
        if self.trouble is not None:
            return f"; the server is not connected: {self.trouble}"
        return f"; the server holds back: {self.throttled}" if self.throttled else ""

    def register(self, waiter: Waiter) -> None:
        """Calls the waiter when there is a verdict: now, or later on the thread that learns it."""
        with self.lock:
            verdict = self.verdict(waiter.group, waiter.index, waiter.tier)
            if verdict is False:
                entry = (waiter.group.first + waiter.index, next(self._order), waiter)
                heapq.heappush(self._waiting[waiter.tier], entry)
                return
        _call(waiter, None if verdict is True else verdict)

    def forget(self, waiter: Waiter) -> None:
        with self.lock:
            heap = self._waiting[waiter.tier]
            heap[:] = [entry for entry in heap if entry[2] is not waiter]
            heapq.heapify(heap)

    def has_waiters_locked(self) -> bool:
        return any(self._waiting)

    def ready_locked(self, *, after_failure: bool = False) -> Ready:
        """Removes and returns the waiters for whom there is a verdict now, and wakes waiting threads."""
        ready: Ready = []
        for heap in self._waiting:
            if after_failure and heap:
                ready += self._sift(heap)
            # LSNs rise with sequence numbers, so nothing behind one that has to wait has got any further.
            while heap:
                waiter = heap[0][2]
                verdict = self.verdict(waiter.group, waiter.index, waiter.tier)
                if verdict is False:
                    break
                heapq.heappop(heap)
                ready.append((waiter, verdict if isinstance(verdict, HeadraceError) else None))
        self.changed.notify_all()
        return ready

    def _sift(self, heap: list[tuple[int, int, Waiter]]) -> Iterator[tuple[Waiter, HeadraceError]]:
        """Removes the waiters that failed, wherever they are."""
        for entry in list(heap):
            waiter = entry[2]
            verdict = self.verdict(waiter.group, waiter.index, waiter.tier)
            if isinstance(verdict, HeadraceError):
                heap.remove(entry)
                yield waiter, verdict
        heapq.heapify(heap)

    def tell(self, ready: Ready, passed: Sequence[tuple[Tier, int]] = ()) -> None:
        """Notifies waiters for writes and watermarks, on a thread of the writer's own, without the lock."""
        if not ready and not (passed and self.on_watermark):
            return
        self._telling.add(threading.get_ident())
        try:
            for waiter, error in ready:
                _call(waiter, error)
            for callback, (tier, lsn) in itertools.product(list(self.on_watermark), passed):
                try:
                    callback(tier, lsn)
                except Exception:
                    log.exception("a callback for the watermark of %s failed", tier.name)
        finally:
            self._telling.discard(threading.get_ident())

    @property
    def is_telling(self) -> bool:
        """Whether this is a callback: then the writer waits for it, and it must not wait for the writer."""
        return threading.get_ident() in self._telling

    def note_seen(self, group: Group, error: HeadraceError) -> None:
        """Records that the user holds this error now, so neither flush nor close need raise it again."""
        group.seen = group.seen or error is group.error
        self.failure_seen = self.failure_seen or error is self.failure

    def note_failure_locked(self, failed: Group | HeadraceError) -> None:
        """Records a failure that the next flush must raise, unless a receipt has raised it by then."""
        if len(self._unseen) < MOST_UNSEEN:
            self._unseen.append(failed)

    def unseen_failure_locked(self) -> HeadraceError | None:
        """Returns the first failure that was raised to nobody, and marks all of them as raised."""
        unseen, self._unseen = self._unseen, []
        for failed in unseen:
            if isinstance(failed, HeadraceError):
                return failed
            if not failed.seen and failed.error is not None:
                return failed.error
        return None


def _call(waiter: Waiter, error: HeadraceError | None) -> None:
    """Calls a callback. Its exceptions are its own, and are logged."""
    try:
        if error is None:
            waiter.on_reached()
        else:
            waiter.on_failed(error)
    except Exception:
        log.exception("a callback for a write and %s failed", waiter.tier.name)
