"""Going back to an earlier epoch: rows of later ones are deleted, or a view is as it was at its snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.sinks.iceberg_names import Names
from headrace.sinks.iceberg_tables import (
    CHECKPOINT,
    EPOCH,
    ID,
    REWOUND,
    SINK,
    TRIES,
    WRITER,
    JavaTable,
    State,
    run_with_summary,
)
from headrace.sinks.iceberg_views import branch_of
from headrace.sinks.openings import replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Rewinding:
    """`own_rows` is a condition of SQL."""

    spark: SparkSession
    table: JavaTable
    names: Names
    fence: int
    own_rows: str

    def delete_after(self, epoch: int, column: str) -> None:
        """Rows of later epochs, of a table that is appended to.

        What staged them stays in the table's history, so that nobody can publish it once more.
        """
        self.refuse_deletion(epoch)
        self._go_back(epoch, lambda state: state.main, f"{column} > {epoch} AND {self.own_rows}")

    def refuse_deletion(self, epoch: int) -> None:
        """What `delete_after` would: a column tells the epochs of rows, and not whose they are."""
        if self.own_rows != "true":
            return
        if others := self.names.others_after(self.table.state(), epoch):
            raise ConfigError(
                f"{self.table.name} cannot go back to epoch {epoch}, since it has later epochs of "
                f"{', '.join(others)} from before it was taken over, which would be lost: restore the "
                "endpoint as it was, or start under another name with another table"
            )

    def roll_back(self, epoch: int) -> None:
        """A view. Main gets a snapshot that it never had, so that nobody takes it for where it was before."""
        if self.names.last_epoch(self.table.state()) > epoch:
            self._go_back(
                epoch, lambda state: self._start(state, epoch), self.own_rows if epoch < 0 else None
            )

    def refuse(self, epoch: int) -> None:
        """What `roll_back` would."""
        state = self.table.state()
        if self.names.last_epoch(state) > epoch:
            self._start(state, epoch)

    def _go_back(self, epoch: int, start_of: Callable[[State], int | None], deleted: str | None) -> None:
        """On a branch of its own, which main gets if nothing has come to main meanwhile."""
        for _ in range(TRIES):
            state = self.table.state()
            if self.names.last_fence(state) > self.fence:
                raise replaced(self.names.sink)
            start, kept = start_of(state), self._last(state, epoch)
            if start is None:
                return
            branch = self.names.new_id(epoch, self.fence)
            self.table.java.manageSnapshots().createBranch(branch, start).commit()
            summary = {REWOUND: str(epoch), WRITER: self.names.writer, SINK: self.names.sink, ID: branch}
            if deleted is None:
                self._mark(branch, {**summary, **({} if kept is None else _of(kept))})
            else:
                where = branch_of(self.table.name, branch)
                run_with_summary(self.spark, f"DELETE FROM {where} WHERE {deleted}", summary)  # noqa: S608
            now, told = self.table.state(), self._told(state, epoch, kept)
            is_same = now.main == state.main and self.names.last_fence(now) <= self.fence
            without = [] if self.names.checkpoint in told else [self.names.checkpoint]
            if is_same and self.table.swap(
                now, now.branch(branch), told, without=without, dropped=[branch], tags=self._tag(state, epoch)
            ):
                return
            self.table.drop_branches([branch])
        raise EndpointUnavailable(f"{self.table.name} changes too often to go back to epoch {epoch}")

    def _tag(self, state: State, epoch: int) -> dict[str, int]:
        """Keeps what is taken back from expiring, until as many epochs have come again (`release`)."""
        last = self.names.last_epoch(state)
        return {f"{self.names.hidden}{last}": state.main} if state.main is not None and last > epoch else {}

    def _start(self, state: State, epoch: int) -> int | None:
        return self._whole(state) if epoch < 0 else self._before(state, epoch)

    def _whole(self, state: State) -> int | None:
        if self.own_rows == "true":
            self._refuse_others(list(state.history(state.main)), -1)
        return state.main

    def _mark(self, branch: str, summary: dict[str, str]) -> None:
        """A snapshot that changes nothing."""
        update = self.table.java.newAppend().toBranch(branch)
        for key, value in summary.items():
            update.set(key, value)
        update.commit()

    def _before(self, state: State, epoch: int) -> int:
        """The snapshot that the first of the later epochs was put on."""
        later: list[Any] = []
        for snapshot in state.history(state.main):
            own = self.names.epoch_of(snapshot)
            if own is not None and own <= epoch:
                break
            later.append(snapshot)
        else:
            # A view's first snapshot is an empty one. Some who expire snapshots take the link to them away.
            is_whole = not later or (later[-1].parentId() is None and self.names.epoch_of(later[-1]) is None)
            if not is_whole:
                raise ConfigError(
                    f"{self.table.name} cannot go back to epoch {epoch}, since its snapshot has expired: "
                    "restore the endpoint as it was, or start under another name with another table"
                )
        while later and self.names.epoch_of(later[-1]) is None:
            later.pop()
        self._refuse_others(later, epoch)
        start = later[-1].parentId() if later else state.main
        assert start is not None  # it has one, or its history is not whole
        return int(start)

    def _refuse_others(self, snapshots: list[Any], epoch: int) -> None:
        for snapshot in snapshots:
            is_empty = snapshot.summary().get("changed-partition-count") in (None, "0")
            if not self.names.has_written(snapshot) and not is_empty and snapshot.operation() != "replace":
                raise ConfigError(
                    f"{self.table.name} cannot go back to epoch {epoch}, since others have written to it "
                    f"(snapshot {snapshot.snapshotId()}), which would be lost: restore the endpoint as it "
                    "was, or start under another name with another table"
                )

    def _last(self, state: State, epoch: int) -> Any:
        """The snapshot of the last epoch that stays; None if there is none, or it has expired."""
        for snapshot in state.history(state.main):
            own = self.names.epoch_of(snapshot)
            if own is not None and own <= epoch:
                return snapshot
        return None

    def _told(self, state: State, epoch: int, kept: Any) -> dict[str, str]:
        """All that was staged before is void from here on. It was all committed."""
        told = {self.names.rewound: str(self.fence)}
        if self.names.last_epoch(state) <= epoch:
            checkpoint = state.told(self.names.checkpoint)
        else:
            told[self.names.epoch] = str(epoch)
            checkpoint = None if kept is None else kept.summary().get(CHECKPOINT)
        return told if checkpoint is None else {**told, self.names.checkpoint: checkpoint}


def release(table: JavaTable, state: State, names: Names) -> None:
    """Lets go what was taken back, once as many epochs have come again."""
    last = names.last_epoch(state)
    hidden = [name for name in state.references() if name.startswith(names.hidden)]
    table.drop_tags([name for name in hidden if int(name.removeprefix(names.hidden)) <= last])


def _of(snapshot: Any) -> dict[str, str]:
    summary = snapshot.summary()
    return {key: summary.get(key) for key in (EPOCH, CHECKPOINT)}
