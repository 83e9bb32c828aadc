"""Runs the materializations of a file, each on a thread, and starts again what failed for a while."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.errors import ConfigError, Fenced, HeadraceError, Transient
from headrace.ingest.iceberg.settings import CatalogSettings, missing_file
from headrace.pipeline.coordinator import RetryPolicy
from headrace.pipeline.dead_letters.sink import make_dead_letter_sink
from headrace.pipeline.guarantee import Compiled, compile_guarantee, refuse_above, without_topic_ids
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.plan import Planned, apply, needs, plan
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.settings import (
    CollectionSource,
    FormatSource,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    Profile,
    Source,
)
from headrace.pipeline.sources.kafka_groups import KafkaGroups
from headrace.pipeline.sources.kafka_offsets import has_topic_ids
from headrace.pipeline.sources.streams import STARTS, OpenedSource, open_sources, table_of
from headrace.pipeline.state_paths import check_state, checkpoint_folder, open_recovery_log, refuse_folders
from headrace.spark.catalogs import own_session
from headrace.spark.checkpoint import read_offsets
from headrace.spark.errors import failure_of
from headrace.spark.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LOOK_EVERY = 0.5
RETRY_POLICY = RetryPolicy(first_pause=1.0, longest_pause=30.0)
ATTEMPTS = 8
"""How often in a row a materialization that is to end may fail; with the pauses, a minute and a half."""


class Reporter(Protocol):
    """Is told what happens, on the threads of the materializations."""

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        """Before the start: what is guaranteed, and what will be done to the endpoint."""

    def state(self, name: str, text: str) -> None:
        """The state that a materialization is in now."""

    def failed(self, name: str, error: HeadraceError) -> None:
        """A materialization has ended, and not by itself."""

    def epoch(self, name: str, progress: EpochProgress) -> None:
        """An epoch was decided."""

    def step(self, name: str, step: str) -> None:
        """The coordinator has done a step."""


class Runner:
    """`attempts`: how often in a row a materialization may fail whose trigger is `once`.

    `adopts` names materializations that take over what is in their targets, and `accepts_loss` those that go
    on without rows which cannot be read any more.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        reporter: Reporter,
        retry_policy: RetryPolicy = RETRY_POLICY,
        attempts: int = ATTEMPTS,
        adopts: Collection[str] = (),
        accepts_loss: Collection[str] = (),
    ) -> None:
        self._settings, self._reporter = settings, reporter
        self._adopts, self._accepts_loss = adopts, accepts_loss
        self._retry_policy, self._attempts = retry_policy, attempts
        self._stopping = threading.Event()
        self._running: dict[str, Pipeline] = {}
        self.failures: dict[str, HeadraceError] = {}

    def run(self) -> None:
        """Returns when all materializations have ended; what ended one for good is in `failures`."""
        if self._settings.profile is not Profile.DEV_LOCAL:
            self._run()
            return
        with tempfile.TemporaryDirectory(prefix="headrace-state-") as folder:  # nothing is to survive
            self._settings = replace(self._settings, state_url=Path(folder).as_uri(), state_options={})
            self._run()

    def _run(self) -> None:
        if not self._settings.materializations:
            raise ConfigError("there is no materialization to run: write one under `materializations`")
        # All are asked before any is started, so that what is wrong is said at once.
        plans = [(one, *self._plan(one)) for one in self._settings.materializations]
        for one, planned, compiled in plans:
            actions = apply(planned, dry_run=True, adopts=one.name in self._adopts)
            self._reporter.planned(one.name, compiled, actions)
            planned.close()
        spark = make_session(self._settings.spark, "headrace", needs(self._settings))
        for one, _, _ in plans:
            refuse_folders(spark.sparkContext.master or "local", one)
        threads = [
            threading.Thread(
                # A session for all starts of a materialization: sinks set options on it for a while.
                target=self._keep_running,
                args=(own_session(spark, self._settings.catalog), one, planned, compiled),
                name=f"headrace-{one.name}",
            )
            for one, planned, compiled in plans
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # not for ever at once, or a signal may not be heard
                thread.join(1.0)

    def stop(self) -> None:
        """Ends each materialization after the epoch that it is in; may be called from a signal's handler."""
        self._stopping.set()
        for pipeline in list(self._running.values()):
            pipeline.stop()

    def _plan(self, one: MaterializationSettings) -> tuple[Planned, Compiled]:
        planned = plan(one, self._settings.catalog)
        compiled = compile_guarantee(self._settings, one, planned.validated)
        refuse_above(one, compiled)
        return planned, compiled

    def _keep_running(
        self, spark: SparkSession, one: MaterializationSettings, planned: Planned, compiled: Compiled
    ) -> None:
        """Until it has ended, or nothing helps: an error that stays, too many attempts, or being stopped."""
        pauses, failed = self._retry_policy.pauses(), 0
        epochs = 0

        def on_epoch(progress: EpochProgress) -> None:
            nonlocal epochs
            epochs += 1
            self._reporter.epoch(one.name, progress)

        while not self._stopping.is_set():
            epochs = 0
            try:
                self._try_once(spark, one, planned, compiled, on_epoch)
            except Transient as error:
                if epochs:
                    pauses, failed = self._retry_policy.pauses(), 0
                failed += 1
                if one.trigger.once and failed >= self._attempts:
                    self._end(one.name, error, f"gave up after {failed} attempts: {error.message}")
                    return
                self._tell_failure(one.name, error.message)
                pause = pauses.next()
                log.warning("materialization %r: %s; again in %.0f s", one.name, error.message, pause)
                self._reporter.state(one.name, f"failed, again in {pause:.0f} s: {error.message}")
                if self._stopping.wait(pause):
                    self._end(one.name, error, f"it was stopped while it failed: {error.message}")
            except HeadraceError as error:
                self._end(one.name, error, error.message)
                return
            else:
                self._reporter.state(one.name, "done")
                return

    def _end(self, name: str, error: HeadraceError, message: str) -> None:
        error.message = message
        self.failures[name] = error
        if not isinstance(error, Fenced):  # who has taken over has failures of its own
            self._tell_failure(name, message)
        self._reporter.failed(name, error)

    def _tell_failure(self, name: str, message: str) -> None:
        """Records why an attempt failed, for `headrace status`."""
        with suppress(HeadraceError):
            open_recovery_log(self._settings, name).record_failure(message)

    def _try_once(
        self,
        spark: SparkSession,
        one: MaterializationSettings,
        planned: Planned,
        compiled: Compiled,
        on_epoch: Callable[[EpochProgress], None],
    ) -> None:
        """Runs once, and translates what Spark or a catalog raises into one of our errors."""
        try:
            self._run_once(spark, one, planned, compiled, on_epoch)
        except HeadraceError:
            raise
        except Exception as error:
            log.debug("materialization %r", one.name, exc_info=True)
            raise failure_of(error) from error

    def _run_once(
        self,
        spark: SparkSession,
        one: MaterializationSettings,
        planned: Planned,
        compiled: Compiled,
        on_epoch: Callable[[EpochProgress], None],
    ) -> None:
        if not self._wait_for_tables(spark, one):
            return
        dead_letters = None
        if one.dead_letters is not None:
            dead_letters = make_dead_letter_sink(
                one.dead_letters,
                one.name,
                spark,
                self._settings.catalog,
                forgets=self._settings.profile is Profile.DEV_LOCAL,
            )
        check_state(self._settings)
        recovery_log = open_recovery_log(self._settings, one.name)
        accepts_loss = one.name in self._accepts_loss
        with KafkaGroups(spark, one) as groups, checkpoint_folder(self._settings, one.name) as folder:

            def recovered() -> None:
                if recovery_log.failure():
                    recovery_log.record_failure("")

            def after(progress: EpochProgress) -> None:
                on_epoch(progress)
                groups.follow(read_offsets(folder, progress.epoch))

            starts = recovery_log.read().plan.get(STARTS)
            opened_sources = open_sources(spark, one, self._settings.catalog, starts, accepts_loss)
            pipeline = Pipeline(
                spark,
                one,
                planned,
                opened_sources,
                recovery_log,
                folder,
                dead_letters,
                forgets=self._settings.profile is Profile.DEV_LOCAL,
                adopts=one.name in self._adopts,
                accepts_loss=accepts_loss,
                refuse_weaker=lambda: self._check_topic_ids(one, compiled, opened_sources),
                on_recovered=recovered,
                on_epoch=after,
                observe=lambda step: self._reporter.step(one.name, step),
            )
            self._running[one.name] = pipeline
            if self._stopping.is_set():
                return
            self._reporter.state(one.name, "running")
            try:
                pipeline.run()
            finally:
                del self._running[one.name]

    def _check_topic_ids(
        self, one: MaterializationSettings, compiled: Compiled, opened_sources: Sequence[OpenedSource]
    ) -> None:
        """Lowers the guarantee, or refuses, where brokers cannot tell a topic from another of its name."""
        sources = [binding.source for binding in one.bindings]
        without = [
            source
            for source, opened in zip(sources, opened_sources, strict=True)
            if _reads_topics(source) and not has_topic_ids(opened.incarnation())
        ]
        lowered = without_topic_ids(compiled, without)
        refuse_above(one, lowered)
        if lowered != compiled:
            self._reporter.planned(one.name, lowered, "")

    def _wait_for_tables(self, spark: SparkSession, one: MaterializationSettings) -> bool:
        """A collection has a table once something was committed to it. False if we are told to stop first."""
        catalog = self._settings.catalog
        for binding in one.bindings:
            if not isinstance(binding.source, CollectionSource) or catalog is None:
                continue
            while problem := self._missing(spark, binding.source, catalog):
                if one.trigger.once:
                    raise ConfigError(f"materialization {one.name!r}: {problem}")
                self._reporter.state(one.name, f"waiting: {problem}")
                if self._stopping.wait(_LOOK_EVERY):
                    return False
        return True

    def _missing(self, spark: SparkSession, source: CollectionSource, catalog: CatalogSettings) -> str:
        """Says what is not there yet of a collection that is to be read; empty if everything is."""
        if problem := missing_file(catalog):
            return problem
        if spark.catalog.tableExists(table_of(source, catalog)):
            return ""
        return f"collection {source.collection!r} has no table yet: write to it first"


def _reads_topics(source: Source) -> bool:
    is_format = isinstance(source, FormatSource) and source.format.lower() == "kafka"
    return is_format or isinstance(source, KafkaSource)
