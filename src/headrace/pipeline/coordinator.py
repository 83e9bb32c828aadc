"""Takes an epoch through its steps: prepare every sink, decide, commit every sink.

Before the decision an epoch can be aborted, and after a crash it is as if it had never been. After it, it
will be committed, however often we crash. The commit goes on while the next epoch is being read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headrace.errors import ConfigError, Fenced, Transient
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.committing import EpochCommitter, RetryPolicy
from headrace.pipeline.recovery import finish_decided, open_log, start_sinks
from headrace.pipeline.recovery_log import (
    REWINDS,
    Decision,
    Recovered,
    RecoveryLog,
    last_rows,
    with_evidence,
)
from headrace.sinks.contract import Epoch, Sink

__all__ = ["Coordinator", "RetryPolicy"]

log = logging.getLogger(__name__)


class Coordinator:
    """Runs the epochs of one materialization in one process: `start` it, `run` them in order, `close` it.

    `observe` is told of each step that was just done: `opened`, `prepared NAME`, `decided`, `committed NAME`
    and `aborted NAME`.
    """

    def __init__(
        self,
        recovery_log: RecoveryLog,
        sinks: Sequence[Sink],
        *,
        retry_policy: RetryPolicy | None = None,
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        names = [sink.name for sink in sinks]
        if len(set(names)) != len(names):
            raise ConfigError(f"two sinks have one name: {', '.join(sorted(names))}")
        self._log = recovery_log
        # What cannot be undone comes last, so that all that can fail before it has not failed.
        self._sinks = sorted(sinks, key=lambda sink: sink.cannot_undo)
        self._retry_policy, self._observe = retry_policy or RetryPolicy(), observe
        self._decided: int | None = None
        self._last_decision: Decision | None = None
        self._kept: dict[str, JsonObject] = {}  # handles that outlive the epochs of a log that is moved
        self._closing = threading.Event()
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="headrace-commit")
        self._commit: Future[None] | None = None
        self._committing = EpochCommitter(
            self._sinks, self._retry_policy, self._closing, recovery_log.record_stuck, observe
        )

    @property
    def stuck(self) -> dict[str, str]:
        """Why a sink has not committed the last epoch yet, by its name."""
        return self._committing.stuck

    def start(
        self, plan: JsonObject | None = None, make_ready: Callable[[Recovered], None] = lambda _: None
    ) -> Recovered:
        """Fences off every coordinator before, finishes what they decided, and removes what they did not.

        `plan` is how the first epoch of all will run (`RecoveryLog.open`). `make_ready` is called when the
        others are fenced off, before the sinks are started, and may refuse. A sink that cannot be started
        holds up no other. A rewind that `move_to` began is not finished here: `Recovered.rewinds` says so.
        """
        recovered = open_log(self._log, plan, self._observe)
        make_ready(recovered)
        if decision := recovered.decision:
            self._decided, self._last_decision = decision.epoch, decision
            final = {sink.name for sink in self._sinks if sink.cannot_undo}
            self._kept = {name: handle for name, handle in decision.handles.items() if name in final}
        unstarted = start_sinks(self._sinks, recovered)
        finish_decided(self._log, recovered, self._sinks, self._committing, unstarted)
        return recovered

    def run(
        self,
        number: int,
        runtime_checkpoint: JsonObject,
        rows: Any,
        summarize: Callable[[], JsonObject] = dict,
        plan: JsonObject | None = None,
    ) -> bool:
        """Returns when the epoch is decided; False if it had been before, and nothing was done.

        `summarize` is asked once everything is prepared; an error of its own aborts the epoch. `plan` is how
        the next epoch will run, if not as this one.
        """
        if self.is_decided(number):
            self.settle()
            return False
        if self._decided is not None and number > self._decided + 1:
            raise ConfigError(
                f"epoch {number} comes after epoch {self._decided}, and those between are nowhere: the "
                "checkpoint of the query is not the one that belongs to this recovery log"
            )
        epoch = Epoch(number, self._log.fence, runtime_checkpoint, self.settle, self.is_committed)
        handles: dict[str, JsonObject] = {}
        try:
            for sink in self._sinks:
                if sink.cannot_undo:  # so that one who was replaced and does not know it stops here
                    self._log.verify()
                handles[sink.name] = sink.prepare(epoch, rows)
                self._observe(f"prepared {sink.name}")
            self.settle()  # so that a decision says of the epoch before that it is committed
            decision = with_evidence(
                Decision(number, runtime_checkpoint, handles, summarize()), self._last_decision
            )
        except Fenced:
            raise  # whoever took over makes order
        except Exception:
            self._abort(number, handles)
            raise
        self._decide(decision, plan)
        self._decided, self._last_decision = number, decision
        self._observe("decided")
        self._commit = self._commits.submit(self._committing.commit, decision)
        return True

    def is_decided(self, number: int) -> bool:
        return self._decided is not None and number <= self._decided

    @property
    def decided(self) -> int | None:
        """The last epoch that was decided."""
        return self._decided

    def is_committed(self) -> bool:
        """Whether nothing of the last epoch is left to do, or nothing can be done about it."""
        return self._commit is None or self._commit.done()

    def settle(self) -> None:
        """Returns when every sink has committed the last epoch; raises why one never will."""
        if self._commit is not None:
            self._commit.result()

    def note_committed(self) -> None:
        """Says so in the log, if every sink has committed the last epoch. Not while another one runs."""
        if self._commit is not None and self._commit.done() and self._commit.exception() is None:
            self._log.settle()

    def hurry(self) -> None:
        """Gives up on what fails, in place of trying it again; for who wants to stop. From any thread."""
        self._closing.set()

    def close(self) -> None:
        """Finishes the commit that is under way, unless a sink is stuck; then the next start does."""
        self._closing.set()
        self._commits.shutdown(wait=True)
        self._committing.close()
        self.note_committed()

    def move_to(
        self,
        epoch: int,
        runtime_checkpoint: JsonObject,
        why: str,
        plan: JsonObject,
        *,
        rewinds: bool = False,
    ) -> None:
        """Takes an epoch for the last one, since an endpoint that outranks the log is there; -1: before all.

        Called after `start`, before any epoch runs. What a sink that cannot be undone has asked to keep is
        kept; nothing is left to commit. With `rewinds` sinks have yet to go back there: the log is settled by
        whoever has seen to that.
        """
        summary: JsonObject = {"moved": why, REWINDS: True} if rewinds else {"moved": why}
        # Of a sink that had rows after the epoch it is not known any more when it had some before.
        known = {name: one for name, one in last_rows(self._last_decision).items() if one[0] <= epoch}
        before = self._last_decision.evidence if self._last_decision else {}
        evidence = {name: {**before[name], "handle": handle} for name, (_, handle) in known.items()}
        decision = Decision(epoch, runtime_checkpoint, self._kept, summary, evidence)
        self._decide(decision, plan)
        self._decided, self._last_decision = epoch, decision
        if not rewinds:
            self._log.settle()

    def _decide(self, decision: Decision, plan: JsonObject | None) -> None:
        """Nothing is aborted when this fails: it may have been decided."""
        retry_policy = self._retry_policy
        pauses, until = retry_policy.pauses(), retry_policy.clock() + retry_policy.decide_for
        while True:
            try:
                self._log.decide(decision, plan)
            except Transient as error:
                if retry_policy.clock() > until or self._closing.is_set():
                    raise
                log.warning("epoch %d is not decided yet: %s", decision.epoch, error.message)
                self._closing.wait(pauses.next())
            else:
                return

    def _abort(self, number: int, handles: dict[str, JsonObject]) -> None:
        for sink in self._sinks:
            if sink.name not in handles or sink.cannot_undo:
                continue
            try:
                sink.abort(number, handles[sink.name])
                self._observe(f"aborted {sink.name}")
            except Exception as error:  # noqa: BLE001 - why the epoch failed is more than why this did
                log.warning("epoch %d, sink %s was not aborted: %s", number, sink.name, error)
