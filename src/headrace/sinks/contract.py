"""What a sink is: it prepares an epoch where nobody sees it, and then commits or aborts it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Mode, Owner, Target
from headrace.sinks.audits import never_decided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Epoch:
    """One transaction of a materialization, as a sink sees it while it prepares."""

    number: int
    fence: int
    """Of the coordinator; it goes up with every start."""
    runtime_checkpoint: JsonObject
    """Where the epoch ends in its sources."""
    wait_for_previous: Callable[[], None]
    """Returns when every sink has committed the epoch before; raises why that will not be."""
    is_previous_committed: Callable[[], bool] = lambda: True
    """Whether `wait_for_previous` would return, or raise, at once."""


class Sink(ABC):
    """Errors are raised as `headrace.errors`: a `Transient` one is tried again, a `Terminal` one stops."""

    name: str
    """Of this sink in its materialization; its handles are kept under it."""

    cannot_undo = False
    """Whether `prepare` is seen by readers at once. Such a sink is prepared after all others, and must itself
    recognise an epoch that it has had before."""

    @abstractmethod
    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        """Makes order after whoever ran before, who may have died at any point, on any host.

        Called once by each coordinator, before anything else. `decided` is the last epoch that was decided
        and `handle` what this sink prepared for it: None if there is none, or if the sink is new. The epoch
        may or may not be committed; `commit` follows. What was prepared for any other epoch was never
        decided and never will be: remove it. Somebody who does not know that he was replaced may still be
        preparing, and what he leaves behind is found at the next start; he cannot decide or commit it. If
        something cannot be removed, do not fail: the next start removes it (`cleaning_up`).
        """

    @abstractmethod
    def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
        """Does all of an epoch's work but the last step, and returns what that step needs, as JSON.

        Called for each epoch in order, on the driver; `rows` is the epoch's DataFrame. After a crash the
        same epoch may be prepared again, with the same rows in another order, and the first attempt's
        leavings may still be there. Nothing may be seen by a reader yet, nor be lost when this process
        dies: once the epoch is decided, the handle alone has to be enough. It says where the work was done,
        since by the time of `commit` the configuration may name another place. An empty one says that there
        is nothing to commit.
        """

    @abstractmethod
    def commit(self, epoch: int, handle: JsonObject) -> None:
        """Lets readers see the epoch, all of it at once.

        Called after the decision, as often as it takes, also for an epoch that is committed already (by
        this process or another), in a new process and on another host: it has one effect. Not guaranteed:
        that the process that prepared is still there, that other sinks have committed, or that nobody else
        is doing the same at this moment. Once readers see the epoch, a failed clean-up must
        not fail the commit (`cleaning_up`).
        """

    @abstractmethod
    def abort(self, epoch: int, handle: JsonObject) -> None:
        """Removes what `prepare` left. Called at most for an epoch that was not decided, any number of times.

        Not guaranteed to be called: a process may die first. Then `start` finds what is left.
        """


@dataclass(frozen=True)
class Place:
    """Where rows go, whose they are, and how they are kept there."""

    location: str
    """As the format has it: a folder's URL, the name of a table, a topic."""
    writer: str
    """The name of the materialization; several may write to one location."""
    schema: str = ""
    """Of the rows, in Spark's DDL; that of the first rows if empty."""
    owned: str = ""
    """The column that holds the writer's name."""
    catalog: CatalogSettings | None = None
    """For formats that have tables. Its settings are those of the Spark session already."""
    epoch: str = "epoch"
    """The column that holds the epoch's number; empty if rows do not tell."""
    keys: tuple[str, ...] = ()
    """The key's columns, of a full view: one row for each key, which the next row with it replaces. Empty
    where rows are appended."""
    key: tuple[str, ...] = ()
    """The key's columns also where rows are appended, if they have one."""
    partitions: tuple[str, ...] = ()
    """Columns by whose values the format lays its files out."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the format and of its storage, as the user wrote them; may hold secrets."""

    @property
    def is_view(self) -> bool:
        return bool(self.keys)

    def owner(self, lineage: str) -> Owner:
        """What the place says of itself once its materialization writes it."""
        return Owner(self.writer, lineage, self.key, Mode.VIEW if self.is_view else Mode.APPEND)


class RowSink(Sink):
    """Keeps an epoch's rows somewhere, in one format: appended, or one for each key (`Place.keys`).

    Its handles say under `rows` how many there were. `prepare` refuses, before anything is staged, rows that
    the place cannot take: it may get new columns, which are null in what it has, and nothing else changes.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    """What Spark has to have for it, of what `headrace run` can get by itself: `hudi`, `kafka`."""
    can_keep_views: ClassVar[bool] = True
    """Whether the format takes places that have keys."""
    can_tell: ClassVar[bool] = False
    """Whether `committed` knows of everything that was ever committed there."""

    @classmethod
    @abstractmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        """One that is called `name` in its materialization; refuses a place that the format cannot have.

        Touches nothing there yet.
        """

    @classmethod
    @abstractmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        """Rows of the writer that are committed, of one epoch or of all, in no order and without Spark."""

    @classmethod
    def look(cls, name: str, place: Place) -> Owner | None:  # noqa: ARG003
        """Returns the owner of the place, for somebody who has no Spark; changes nothing there.

        None if the place does not say, or if the format cannot tell without Spark. Raises why a place cannot
        be reached.
        """
        return None

    def inspect(self) -> Target | None:
        """What is in the place now; None if the format cannot tell. Changes nothing there, not even a fence.

        Called before `start`, as `committed` may be. It takes no longer for a large place than for a small
        one.
        """
        return None

    def refuse_start(self, owner: Owner, *, adopts: bool = False) -> None:
        """Refuses what `start` and `claim` would refuse, `owner_conflict` apart, and touches nothing.

        Called after `inspect` and before `start`, with the same `adopts` as `claim`, so that a refusal comes
        before any change. The owner's lineage is left out.
        """

    def claim(self, owner: Owner, *, adopts: bool = False) -> None:
        """Has the place say whose it is, in something that lives and dies with it; `inspect` reads it.

        Called by each start, after `start` and before the first `prepare`, when nothing is refused any more.
        A place that is not there yet says it as soon as it is made. One that somebody else has claimed
        meanwhile (`owner_conflict`) is refused with an `EndpointError`, unless a person has said that it
        is to be taken over: `adopts`.
        """

    @abstractmethod
    def rewind(self, epoch: int) -> None:
        """Removes what later epochs brought, which will come again; -1: all of it. May be repeated.

        Called between `start` and the first `prepare`. Everything that was decided is committed by then;
        somebody who was replaced may still commit it once more, and that must not bring it back. A place that
        cannot go back refuses with what to do.
        """

    def refuse_rewind(self, epoch: int) -> None:
        """Refuses what `rewind` would refuse, and touches nothing.

        Called before the recovery log says that all sinks go back, so that either all do or none: a sink that
        refuses only in `rewind` keeps the materialization from starting when others have gone back already.
        """

    def current(self) -> DataFrame | None:
        """All rows of a view as readers see them now; None if there are none yet.

        Called on the driver before `prepare` of an epoch, when the one before is committed. What comes is
        reduced with it, if the collection's schema asks for that.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no views")

    def committed(self) -> JsonObject | None:
        """The runtime checkpoint of the last epoch that readers see, as the place itself tells it.

        None if nothing was committed yet, or the format cannot tell (`can_tell`). Called before `start`, and
        again after the commit of what was decided; a recovery log that was lost is made anew from it.
        """
        return None

    def undone(self, epoch: int, handle: JsonObject) -> str:  # noqa: ARG002
        """What has become of an epoch that was committed with rows and is not there any more, as the end of a
        sentence: `was rolled back to snapshot 17`. Empty if it is there, or if the format cannot tell.

        Called by each start, after what was decided is committed, with the last epoch that brought rows here,
        however long ago, and what `prepare` returned for it. Somebody may have taken the place back with
        means of its own, which keep what the place says of its last epoch. Reads no rows.
        """
        return ""

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:  # noqa: ARG002
        """Compacts small files, expires what is older than `age`, and removes files that nothing refers to.

        Yields a sentence on each thing that was done. Called at any time and in any process, also while a
        pipeline writes to the place: it never touches what is younger than `age`, nor what anybody has
        staged, nor what `kept`, the handle of the last decided epoch, still needs.
        """
        return iter(())

    @classmethod
    def audit(
        cls, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None = None
    ) -> Iterator[str]:
        """Sentences on what is wrong with the place: an epoch that is missing, there twice, or never decided.

        `decided` has the rows of each epoch that the recovery log still knows and that is committed. `last`
        tells the last epoch that the log knows by now, committed or not: a pipeline may be running, so it is
        asked after the place was read. Nothing is changed, and Spark is not needed. By default rows are
        counted by their epoch.
        """
        if place.is_view or not place.epoch:
            return
        found: Counter[int] = Counter()
        for batch in cls.read(place, [place.epoch], None):
            found.update(batch.column(0).to_pylist())
        for epoch, rows in sorted(decided.items()):
            if found[epoch] != rows:
                yield f"epoch {epoch} was committed with {rows} rows, and {found[epoch]} are there"
        yield from never_decided(found, decided, last)
