"""Applies a server's messages: LSNs, watermarks, and which writes must be resent."""

from __future__ import annotations

import logging
from itertools import chain, islice

from headrace.client.buffer import Buffer
from headrace.client.groups import Group
from headrace.client.ledger import Vanished
from headrace.client.messages import Notice, Run, Session
from headrace.errors import ConfigError, Fenced, ProtocolError, UnknownProducer, WriteLost
from headrace.model.tiers import Tier

log = logging.getLogger("headrace.client")


class Acknowledgements:
    """Arranges a buffer according to a server's messages. One instance serves all of a writer's streams, one
    stream at a time.

    With `resends`, writes are resent even if the server has forgotten the producer and cannot know whether it
    has them.
    """

    def __init__(self, buffer: Buffer, collection: str, producer: str, *, resends: bool = False) -> None:
        self._buffer = buffer
        self._ledger = buffer.ledger
        self._collection, self._producer, self._resends = collection, producer, resends
        self._resumed_lsn = 0
        """A lower bound: every write of the last stream that has an LSN has a higher one."""
        self._let_go_seq = 0
        self._let_go_lsn = 0

    def resume(self, session: Session) -> None:
        """Rearranges everything for a server with this knowledge: the writes that it lacks go to the
        outbox."""
        ledger = self._ledger
        with ledger.lock:
            if self._buffer.base is None:
                self._buffer.base = (session.last_seq or 0) + 1 - self._buffer.first_to_send
            else:
                self._refuse_doubt(session)
            last = (session.last_seq or 0) - self._buffer.base
            for first_lost, last_lost in session.lost:
                ledger.lost.add(first_lost, last_lost)
            ledger.last_lsn = ledger.lost.below(ledger.last_lsn)
            for tier, lsn in session.watermarks.items():
                ledger.watermarks[tier] = lsn
            ledger.throttled = ledger.trouble = None
            self._note_vanished(last)
            self._take_back(last)
            self._assign_known(session.assigned, last)
            self._release()
            self._buffer.tells_first_seq = session.forgotten_lsn is not None
            self._resumed_lsn = session.watermarks.get(Tier.MEMORY, 0)
            ready = ledger.ready_locked(after_failure=True)
        ledger.tell(ready)

    def _refuse_doubt(self, session: Session) -> None:
        """Raises if the server's state of the producer cannot be the result of our writes."""
        buffer = self._buffer
        assert buffer.base is not None
        first, last = buffer.first_to_send, buffer.sent_through
        if session.last_seq is not None:
            if session.last_seq - buffer.base > last:
                raise Fenced(
                    "another writer uses this producer's id: the server has writes that it did not send",
                    taken_by="another writer",
                )
            self._refuse_unsure(session, last)
            return
        was_forgotten = (session.forgotten_lsn or 0) > self._resumed_lsn
        if last < first or not was_forgotten or self._resends:
            return
        raise UnknownProducer(
            f"the server has forgotten producer {self._producer!r}, and {last - first + 1} of the writes "
            f"that were sent to it may be in collection {self._collection!r} or not: look for them, and "
            "write those that are missing with a new writer; or give the writer on_forgotten='resend', and "
            "they are written again",
            producer=self._producer,
            collection=self._collection,
            first_seq=buffer.base + first,
        )

    def _refuse_unsure(self, session: Session, last: int) -> None:
        """Raises if nobody knows whether a write was given up that the server has and does not report."""
        buffer = self._buffer
        waiting = next(chain(buffer.sent, buffer.outbox), None)
        if waiting is None or buffer.base is None:
            return
        first, last = waiting.first + waiting.accepted, min(last, session.unsure_until - buffer.base)
        unsure = last + 1 - first
        for run in session.assigned:
            seq = run.seq - buffer.base
            unsure -= max(min(seq + run.count, last + 1) - max(seq, first), 0)
        if unsure > 0:
            raise ConfigError(
                f"it cannot be told whether {unsure} of the writes that were sent to collection "
                f"{self._collection!r} were committed, or given up by who runs the server: look for them, "
                "and write those that are missing with a new writer"
            )

    def _note_vanished(self, last: int) -> None:
        committed = self._ledger.watermarks[Tier.COMMITTED]
        if self._let_go_seq > last and self._let_go_lsn > committed:
            self._ledger.vanished.append(Vanished(last, self._let_go_seq, committed))
            error = WriteLost(
                f"the server lost writes up to LSN {self._let_go_lsn} that had reached "
                f"{self._ledger.retain.name}",
                lsn=self._let_go_lsn,
                level=self._ledger.retain.name,
            )
            log.error("%s", error)
            self._ledger.note_failure_locked(error)

    def _take_back(self, last: int) -> None:
        """Leaves the writes to be sent in the outbox, and those that the server has in `sent`."""
        buffer = self._buffer
        buffer.recall_locked()
        # A server that has committed everything may have forgotten who wrote it.
        while buffer.held and buffer.held[-1].last > last and not self._is_committed(buffer.held[-1]):
            buffer.outbox.appendleft(buffer.held.pop())
        while buffer.outbox and buffer.outbox[0].last <= last:
            buffer.sent.append(buffer.outbox.popleft())
        for group in buffer.outbox:
            if not group.accepted:
                break
            group.unassign(max(last - group.first + 1, 0))

    def _is_committed(self, group: Group) -> bool:
        lsn = group.last_lsn
        return lsn <= self._ledger.watermarks[Tier.COMMITTED] and lsn not in self._ledger.lost

    def _assign_known(self, runs: tuple[Run, ...], last: int) -> None:
        """Assigns LSNs to all writes that the server has, up to sequence number `last`.

        A server remembers every LSN that is not committed: a write that it has but does not report is
        committed.
        """
        buffer = self._buffer
        assert buffer.base is not None
        for run in sorted(runs, key=lambda run: run.seq):
            self._note_lsn(run)
            seq = run.seq - buffer.base
            for group in chain(buffer.sent, islice(buffer.outbox, 1)):
                known = min(group.count, last - group.first + 1)
                self._forget_until(group, min(seq - group.first, known))
                stop = min(seq + run.count - group.first, known)
                start = group.accepted
                if start < stop:
                    group.assign(start, run.lsn and run.lsn + group.first + start - seq, stop - start)
                if group.accepted < group.count:
                    break
            while buffer.sent and buffer.sent[0].accepted == buffer.sent[0].count:
                buffer.held.append(buffer.sent.popleft())
        for group in chain(buffer.sent, islice(buffer.outbox, 1)):
            self._forget_until(group, min(group.count, last - group.first + 1))
        buffer.held.extend(buffer.sent)
        buffer.sent.clear()

    def _forget_until(self, group: Group, index: int) -> None:
        if group.accepted < index:
            group.assign(group.accepted, 0, index - group.accepted)

    def _assign(self, run: Run) -> None:
        """Assigns the LSNs of a run to the groups that wait for them. A complete group moves on."""
        buffer = self._buffer
        assert buffer.base is not None
        seq = run.seq - buffer.base
        end = seq + run.count
        while buffer.sent and seq < end:
            group = buffer.sent[0]
            wanted = group.first + group.accepted
            if seq > wanted:
                raise ProtocolError(f"the server gave an LSN to write {seq} before it gave one to {wanted}")
            stop = min(end, group.first + group.count)
            if wanted < stop:
                group.assign(
                    wanted - group.first, run.lsn and run.lsn + wanted - run.seq + buffer.base, stop - wanted
                )
            if group.accepted < group.count:
                break
            buffer.held.append(buffer.sent.popleft())
        self._note_lsn(run)

    def _note_lsn(self, run: Run) -> None:
        if run.lsn:
            self._ledger.last_lsn = max(self._ledger.last_lsn, run.lsn + run.count - 1)

    def acknowledge(self, notice: Notice) -> None:
        """Applies a message: an assignment first, since watermarks refer to LSNs."""
        ledger = self._ledger
        with ledger.lock:
            for run in notice.assigned:
                self._assign(run)
            passed = [(tier, lsn) for tier, lsn in notice.watermarks if lsn > ledger.watermarks[tier]]
            for tier, lsn in passed:
                ledger.watermarks[tier] = lsn
            if notice.snapshot_id is not None:
                for tier, lsn in notice.watermarks:
                    if tier is Tier.COMMITTED:
                        ledger.snapshots.add(lsn, notice.snapshot_id)
            if notice.is_throttle:
                ledger.throttled = notice.throttled
            self._release()
            ready = ledger.ready_locked()
        ledger.tell(ready, passed)

    def _release(self) -> None:
        trusted, retain = self._ledger.watermarks, self._ledger.retain
        freed = 0
        while self._buffer.held:
            group = self._buffer.held[0]
            lsn = group.last_lsn
            if retain is not Tier.MEMORY and lsn > trusted[retain]:
                break
            self._buffer.held.popleft()
            self._let_go_seq, self._let_go_lsn = group.last, lsn
            freed += group.size
            group.let_go()
        if freed:
            self._buffer.free_locked(freed)
