"""Receipts, which a writer returns for each write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

from headrace.client.groups import Group
from headrace.client.ledger import Waiter
from headrace.errors import Closed, HeadraceError
from headrace.model.tiers import Tier

log = logging.getLogger("headrace.client")


class Receipt:
    """Represents one write. It has no state of its own, and queries the writer's ledger.

    Awaiting it is the same as awaiting `receipt.reached("LOCAL_DISK")`.
    """

    __slots__ = ("_group", "_index")

    def __init__(self, group: Group, index: int) -> None:
        self._group = group
        self._index = index

    @property
    def lsn(self) -> int:
        """The write's LSN; waits until the server has assigned it. Final from LOCAL_DISK on.

        It is 0 if a connection broke before the LSN arrived, and the write was committed and forgotten by
        then.
        """
        lsn = self._group.lsn_of(self._index)
        if lsn is None:
            self.wait(Tier.MEMORY)
            lsn = self._group.lsn_of(self._index)
            assert lsn is not None
        return lsn

    @property
    def level(self) -> Tier | None:
        """The highest tier that the write is known to have reached; does not wait."""
        with self._group.ledger.lock:
            return self._group.ledger.level(self._group, self._index)

    @property
    def snapshot_id(self) -> int | None:
        """The first Iceberg snapshot that contains the write, once it is COMMITTED and the snapshot is
        known."""
        lsn = self._group.lsn_of(self._index)
        return self._group.ledger.snapshots.find(lsn) if lsn and self.level is Tier.COMMITTED else None

    @property
    def error(self) -> HeadraceError | None:
        """The reason why the write will get no further; None while it may, and also when its writer was just
        closed."""
        with self._group.ledger.lock:
            verdict = self._group.ledger.verdict(self._group, self._index, Tier.COMMITTED)
        if not isinstance(verdict, HeadraceError):
            return None
        if isinstance(verdict, Closed) and self.level is not None:
            return None
        self._group.ledger.note_seen(self._group, verdict)
        return verdict

    def wait(self, level: str | Tier = Tier.LOCAL_DISK, timeout: float | None = None) -> Receipt:
        """Returns when the write has reached the level; raises the reason why it will not, or
        `WriteTimeout`."""
        tier = Tier.parse(level)
        group, index, ledger = self._group, self._index, self._group.ledger
        try:
            ledger.wait(
                lambda: ledger.verdict(group, index, tier), timeout, f"the write did not reach {tier.name}"
            )
        except HeadraceError as error:
            ledger.note_seen(group, error)
            raise
        return self

    def on(
        self,
        level: str | Tier,
        callback: Callable[[Receipt], object],
        on_error: Callable[[Receipt, HeadraceError], object] | None = None,
    ) -> Receipt:
        """Has `callback(receipt)` called when the write reaches the level: at once if it has already.

        Otherwise it runs on the writer's thread for acknowledgements, which waits for it: it must not block.
        If the write can no longer reach the level, `on_error(receipt, error)` is called instead.
        """

        def failed(error: HeadraceError) -> None:
            if on_error is None:
                log.warning("a write with a callback for %s failed: %s", tier.name, error)
            else:
                self._group.ledger.note_seen(self._group, error)
                on_error(self, error)

        def reached() -> None:
            callback(self)

        tier = Tier.parse(level)
        self._group.ledger.register(Waiter(self._group, self._index, tier, reached, failed))
        return self

    async def reached(self, level: str | Tier = Tier.LOCAL_DISK) -> Receipt:
        """Waits like `wait`, for asyncio. To limit the time, use `asyncio.timeout`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(error: HeadraceError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def hand_over(error: HeadraceError | None) -> None:
            if error is not None:
                self._group.ledger.note_seen(self._group, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, error)

        waiter = Waiter(self._group, self._index, Tier.parse(level), lambda: hand_over(None), hand_over)
        self._group.ledger.register(waiter)
        try:
            await future
        except asyncio.CancelledError:
            self._group.ledger.forget(waiter)
            raise
        return self

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self.reached().__await__()

    def __repr__(self) -> str:
        lsn, level = self._group.lsn_of(self._index), self.level
        return f"<Receipt lsn={lsn} level={None if level is None else level.name}>"
