"""Runs one materialization as a streaming query: opens it, recovers, and runs epoch by epoch."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ConfigError, HeadraceError, Transient
from headrace.faults import reached
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.combine.combiner import candidates, combiner
from headrace.pipeline.connector_sink import ConnectorSink
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.dead_letters.sink import DeadLetterSink
from headrace.pipeline.plan import Planned
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.quality.apply import RuleResult, apply_rules, check_rules, drops_rows
from headrace.pipeline.recovery import Recovery
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.pipeline.resume import ResumePlan
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.settings import MaterializationSettings, definition_digest
from headrace.pipeline.shards.latest import RowOrder
from headrace.pipeline.sinks import EpochRows
from headrace.pipeline.sources.frames import MakeFrame, within_limits
from headrace.pipeline.sources.streams import OpenedSource, combined_stream, rows_of
from headrace.protocol.messages import Delivery
from headrace.spark.checkpoint import (
    CheckpointFolder,
    OffsetEntry,
    forget_first_snapshots,
    forget_planned,
    read_folder,
    read_offsets,
    write_folder,
)
from headrace.spark.errors import failure_of, failure_of_query, wrong_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


class _Stopping(Exception):
    """An epoch is not begun any more."""


class Pipeline:
    """Runs one materialization until it stops or fails. Not reusable: build a new one to retry.

    `folder` is Spark's checkpoint folder, without which only `run_batch` can be called. `forgets` says that
    the recovery log survives nothing; `adopts`, that targets are to be taken over; `accepts_loss`, that rows
    may be missing which cannot be read any more. `refuse_weaker` may refuse what only sources could tell,
    before anything is changed. `on_recovered` is called before the first epoch; `on_epoch` is told of each
    epoch that is decided, `observe` of each step of the coordinator.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: MaterializationSettings,
        planned: Planned,
        opened_sources: list[OpenedSource],
        recovery_log: RecoveryLog,
        folder: Path | None,
        dead_letters: DeadLetterSink | None = None,
        *,
        forgets: bool = False,
        adopts: bool = False,
        accepts_loss: bool = False,
        refuse_weaker: Callable[[], None] = lambda: None,
        on_recovered: Callable[[], None] = lambda: None,
        on_epoch: Callable[[EpochProgress], None] = lambda _: None,
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark, self._settings, self._planned = spark, settings, planned
        self._opened_sources, self._log, self._folder = opened_sources, recovery_log, folder
        self._dead_letters = dead_letters
        self._forgets, self._adopts, self._accepts_loss = forgets, adopts, accepts_loss
        self._refuse_weaker = refuse_weaker
        self._on_recovered, self._on_epoch, self._observe = on_recovered, on_epoch, observe
        self._deliveries = {binding.delivery for binding in planned.validated.bindings}
        self._connector = (
            ConnectorSink(
                settings, planned.materialization, lambda: recovery_log.plan["shards"], self._deliveries
            )
            if settings.connector
            else None
        )
        self._row_sinks = [planned_sink.open(spark) for planned_sink in planned.sinks]
        if dead_letters is None and drops_rows(settings.bindings):
            raise ConfigError(
                f"materialization {settings.name!r}: rows may be dropped, and there is nowhere to keep them: "
                "say where dead letters go"
            )
        sinks = [dead_letters, *self._row_sinks, self._connector]
        self._coordinator = Coordinator(
            recovery_log, [sink for sink in sinks if sink is not None], observe=self._did
        )
        # Where a binding goes is a part of it: another table would lack what the one before has.
        self._sources = tuple(
            f"{source.description} to {' and '.join(planned.destinations(index))}"
            for index, source in enumerate(opened_sources)
        )
        self._frames = [
            within_limits(source.frame, binding, validated.limits)
            for source, binding, validated in zip(
                opened_sources, planned.materialization.bindings, planned.validated.bindings, strict=True
            )
        ]
        self._combining: list[tuple[RowOrder | None, MakeFrame]] = []
        self._definition = definition_digest(settings, planned.materialization)
        self._lineage, self._link = "", ""
        self._ahead: RuntimeCheckpoint | None = None
        self._failure: HeadraceError | None = None
        self._stopping = threading.Event()
        self._in_epoch = threading.Lock()

    def run(self) -> None:
        """Returns when the trigger has nothing left, or after `stop`; raises what went wrong."""
        assert self._folder is not None
        self._check()
        try:
            folder = read_folder(self._folder)
            start = self._recover(folder)
            if start.rebuilds_folder:
                self._rebuild(self._folder, start)
            elif self._is_cut(folder, start):
                forget_planned(self._folder, start.done.epoch + 1)
            if start.done.epoch >= 0:
                forget_first_snapshots(self._folder)
            self._on_recovered()
            self._stream(self._folder)
            if not self._stopping.is_set():
                self._coordinator.settle()
        except Transient:
            # What failed may have failed because somebody has taken over; then this is not tried again.
            if self._log.fence:
                self._log.verify()
            raise
        finally:
            self._coordinator.close()

    def run_batch(self, batch: str) -> EpochProgress | None:
        """Runs all rows of sources that do not stream as one epoch; None if the last one was this batch."""
        self._check()
        try:
            start = self._recover(CheckpointFolder())
            last = start.done.epoch
            begun = start.offsets.get(last + 1)
            if begun is not None and begun != batch:
                raise ConfigError(
                    f"materialization {self._settings.name!r}: batch {begun!r} was begun and not finished: "
                    f"run it again before {batch!r}"
                )
            if begun is None and start.offsets.get(last) == batch:
                return None
            rows = combined_stream(self._opened_sources)
            progress = self._run_epoch(rows, last + 1, {last + 1: batch}, datetime.now(UTC))
            self._coordinator.settle()
            return progress
        except Exception as error:
            if (why := _why(error)) is error:
                raise
            raise why from error
        finally:
            self._coordinator.close()

    def stop(self) -> None:
        """Stops after the epoch that is under way. Called from another thread."""
        self._stopping.set()
        self._coordinator.hurry()

    def _did(self, step: str) -> None:
        self._observe(step)
        reached(f"{self._settings.name} {step}")

    def _check(self) -> None:
        """Refuses what would only be found out in the middle of the first epoch."""
        for binding, source, make in zip(
            self._settings.bindings, self._opened_sources, self._frames, strict=True
        ):
            make(source.stream)  # that Spark can make sense of it
            check_rules(self._spark, binding)

    def _combining_of(self, index: int) -> tuple[RowOrder | None, MakeFrame]:
        """Returns what combines a binding's rows for sinks, and the row order that is left to tasks."""
        binding = self._planned.materialization.bindings[index]
        has_document = self._planned.needs_document(index)
        # Sinks write what is combined, and an endpoint without checkpoints has it combined while it waits for
        # the commit before. A document's text would be made of losers, too.
        keeps_checkpoints = self._connector is not None and self._connector.opened is not None
        is_for_sinks = any(sink.index == index for sink in self._row_sinks)
        is_left_to_tasks = keeps_checkpoints and not is_for_sinks and not has_document
        found = candidates(binding.collection, binding.values) if is_left_to_tasks else None
        if found is not None and (order := self._opened_sources[index].simple_order) is not None:
            winner, make = found
            return RowOrder(winner, order), make
        return None, combiner(binding.collection, binding.values, with_document=has_document)

    @cached_property
    def _incarnations(self) -> tuple[str, ...]:
        return tuple(source.incarnation() for source in self._opened_sources)

    def _recover(self, folder: CheckpointFolder) -> ResumePlan:
        resume = Recovery(
            self._settings.name,
            self._settings.shards,
            self._log,
            self._coordinator,
            self._opened_sources,
            self._sources,
            lambda: self._incarnations,
            self._definition,
            self._connector,
            self._row_sinks,
            self._dead_letters,
            self._planned.materialization.bindings,
            keeps_checkpoints=Delivery.TRANSACTIONAL in self._deliveries,
            has_staged_rows=Delivery.STAGED in self._deliveries,
            forgets=self._forgets,
            adopts=self._adopts,
            accepts_loss=self._accepts_loss,
            refuse_weaker=self._refuse_weaker,
        ).run(folder)
        self._lineage, self._link, self._ahead = resume.lineage, resume.done.link, resume.ahead
        self._combining = [self._combining_of(index) for index in range(len(self._opened_sources))]
        return resume

    def _is_cut(self, folder: CheckpointFolder, start: ResumePlan) -> bool:
        """Whether the epoch that Spark has planned next ends where a source must not be cut.

        Nobody has begun such an epoch, since sources are checked first, so it may be planned anew.
        """
        planned = folder.offsets.get(start.done.epoch + 1)
        if planned is None or start.ahead is not None:
            return False
        entry = OffsetEntry(planned)
        ends = [entry.position(index) for index in range(len(entry.sources))]
        return any(
            end and source.is_cut(end) for source, end in zip(self._opened_sources, ends, strict=False)
        )

    def _rebuild(self, folder: Path, start: ResumePlan) -> None:
        kept = [
            *(["state"] if (folder / "state").exists() else ()),
            *("a list of the files that were read" for source in self._opened_sources if source.lists_files),
        ]
        if kept and start.done.epoch >= 0:
            raise ConfigError(
                f"materialization {self._settings.name!r}: {folder} does not go on after epoch "
                f"{start.done.epoch}, and the query keeps {kept[0]} in it that cannot be made anew: restore "
                "the folder as it was then, or start under another name with another table"
            )
        log.info("materialization %r: making %s: %s", self._settings.name, folder, start.rebuilds_folder)
        write_folder(folder, start.lineage, start.done.epoch, start.offsets)

    def _stream(self, folder: Path) -> None:
        trigger = self._settings.trigger
        writer = (
            combined_stream(self._opened_sources)
            .writeStream.queryName(self._settings.name)
            .option("checkpointLocation", f"file://{folder}")  # Spark would take %20 for a name
            .foreachBatch(self._epoch)
        )
        if trigger.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(trigger.interval * 1000)} milliseconds")
        query = writer.start()
        try:
            decided = None
            while query.isActive and not self._stopping.is_set():
                query.awaitTermination(1)
                if decided == self._coordinator.decided:
                    self._note_committed()
                decided = self._coordinator.decided
        except Exception as error:
            # After `stop` an epoch that Spark begins is refused, and the query ends with that.
            if self._failure is not None or not self._stopping.is_set():
                raise self._failure or failure_of(error) from error
        finally:
            with self._in_epoch:
                pass  # the epoch that is under way; another one is not begun
            with suppress(Exception):
                query.stop()
        if self._failure is not None:
            raise self._failure
        failed = failure_of_query(query)
        if failed is not None and not self._stopping.is_set():
            raise failed

    def _note_committed(self) -> None:
        """Records for `headrace status` that the last epoch is committed, when no next decision says it."""
        if self._in_epoch.acquire(blocking=False):
            try:
                with suppress(Transient):
                    self._coordinator.note_committed()
            finally:
                self._in_epoch.release()

    def _epoch(self, rows: DataFrame, number: int) -> None:
        """Spark calls this, and only knows that it failed; why is kept."""
        assert self._folder is not None
        try:
            with self._in_epoch:
                if self._stopping.is_set():
                    raise _Stopping
                if self._coordinator.is_decided(number):
                    return  # Spark had not heard of it
                for source in self._opened_sources:
                    source.check()
                numbers = [epoch for epoch in (number - 1, number) if epoch >= 0]
                offsets = {epoch: read_offsets(self._folder, epoch) for epoch in numbers}
                self._run_epoch(rows, number, offsets, OffsetEntry(offsets[number]).planned_at)
        except _Stopping:
            raise
        except Exception as error:
            self._failure = _why(error)
            if self._failure is error:
                raise
            raise self._failure from error

    def _run_epoch(
        self, rows: DataFrame, number: int, offsets: dict[int, str], at: datetime
    ) -> EpochProgress:
        began = time.monotonic()
        checkpoint = self._checkpoint_of(number, offsets)
        bindings = self._settings.bindings
        is_alone = len(bindings) == 1
        frames = [make(rows_of(rows, index, is_alone)) for index, make in enumerate(self._frames)]
        shards = self._log.plan["shards"]
        with apply_rules(
            rows, frames, bindings, materialization=self._settings.name, epoch=number, at=at, shards=shards
        ) as result:
            judged_at = time.monotonic()
            combined = [
                combine(good) for (_, combine), good in zip(self._combining, result.good, strict=True)
            ]
            progress = EpochProgress(number, at, shards)

            def summarize() -> JsonObject:
                self._account(progress, result)
                progress.quality_ms = round(1000 * (judged_at - began))
                progress.total_ms = round(1000 * (time.monotonic() - began))
                return progress.to_json()

            next_plan = {**self._log.plan, "shards": self._settings.shards}
            good = tuple(counts.good for counts in result.counts) if result.counts is not None else None
            row_orders = tuple(row_order for row_order, _ in self._combining)
            rows_of_epoch = EpochRows(
                combined, row_orders, result.dead, result.dead_count, result.good_by_shard, good
            )
            with self._kept(combined):
                self._coordinator.run(number, checkpoint.to_json(), rows_of_epoch, summarize, next_plan)
        self._link = checkpoint.link
        self._on_epoch(progress)
        return progress

    def _checkpoint_of(self, number: int, offsets: dict[int, str]) -> RuntimeCheckpoint:
        if self._ahead is not None and self._ahead.epoch == number:
            return self._ahead  # as some shards have it, by whatever version they were written
        checkpoint = RuntimeCheckpoint(
            self._settings.name,
            self._lineage,
            number,
            self._sources,
            offsets,
            self._definition,
            self._incarnations,
        )
        return checkpoint.linked_to(self._link)

    @contextmanager
    def _kept(self, combined: list[DataFrame]) -> Iterator[None]:
        """Combines once what several sinks write: each would read the sources again."""
        uses = Counter(sink.index for sink in self._row_sinks)
        shared = [frame for index, frame in enumerate(combined) if uses[index] + bool(self._connector) > 1]
        for frame in shared:
            frame.persist()
        try:
            yield
        finally:
            for frame in shared:
                frame.unpersist()

    def _account(self, progress: EpochProgress, result: RuleResult) -> None:
        """Sums up the shards and sinks, each of which was held to what was judged to be good."""
        for sink in self._row_sinks:
            progress.sinks[sink.name] = sink.written.rows
            progress.staging_ms[sink.name] = sink.staging_ms
        if self._connector is not None:
            progress.add_shards(self._connector.results)
        else:
            firsts = {sink.index: sink.written for sink in reversed(self._row_sinks)}
            progress.keys = sum(written.keys for written in firsts.values())
            progress.documents = sum(written.documents for written in firsts.values())
            progress.stored = sum(progress.sinks.values())
        if result.counts is None:
            progress.read = progress.good = progress.documents
            return
        progress.read = sum(counts.read for counts in result.counts)
        progress.good = sum(counts.good for counts in result.counts)
        progress.dead = sum(counts.dead for counts in result.counts)
        for counts in result.counts:
            progress.count_rules(counts.failed, counts.warned)


def _why(error: Exception) -> HeadraceError:
    """Says why an epoch failed. A sink whose job failed says where; that rows are wrong is in the cause."""
    for one in (error, *([error.__cause__] if error.__cause__ else ())):
        if wrong := wrong_rows(one):
            return wrong
    return failure_of(error)
