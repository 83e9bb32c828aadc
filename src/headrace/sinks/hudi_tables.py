"""A Hudi table, by way of Spark's JVM: its timeline, and a write that is done in two parts.

Hudi's own writer writes files and completes the instant that they belong to in one call. Its write client
has the two apart. The files are written under an instant that is pending, so no reader takes them. The
instant is completed by one small file, whose name and content are fixed when the files are written: whoever
completes it, however often, puts the same file in the same place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.model.checkpoints import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ACTION = "commit"
_OURS = {
    # An inflight instant is ours to complete or to roll back, and nobody's to clean up.
    "hoodie.clean.failed.writes.policy": "NEVER",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    # Has a log of its own, which would have to be changed in the same step.
    "hoodie.metadata.enable": "false",
    # Another process completes what this one wrote.
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    # What Hudi's own writer takes for granted, and its client misses.
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.insert.drop.duplicates": "false",
    "hoodie.datasource.compaction.async.enable": "false",
    # New rows go to new files, so an append never rests on another one that is not completed yet.
    "hoodie.bulkinsert.sort.mode": "NONE",
}


@dataclass(frozen=True)
class Written:
    """What completes an instant: JSON, for another process."""

    instant: str
    completion: str
    """When it is said to have been completed. Fixed here, so that it is completed once."""
    operation: str
    schema: str
    stats: JsonObject
    """Hudi's, of the files."""
    rows: int


class HudiTable:
    """`path` is a URL that Hadoop knows; `name` is the table's own, of which nobody takes notice."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        keys: Sequence[str],
        partitions: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        from py4j.java_gateway import JavaPackage

        session: Any = spark
        self.path = path
        self._spark, self._jvm, self._context = spark, session._jvm, session._jsc
        self._hudi = self._jvm.org.apache.hudi
        if isinstance(self._hudi.common.table.HoodieTableMetaClient, JavaPackage):  # no class has that name
            raise ConfigError(
                f"Hudi is not among the jars of this Spark {spark.version}: start it with the jar that "
                "docs/deploy.md names for its version; for 4.1 none is published"
            )
        self._keys, self._partitions = tuple(keys), tuple(partitions)
        self._options = {**options, **self.options()}

    def options(self) -> dict[str, str]:
        """For Hudi's own writer as well."""
        index = "GLOBAL_SIMPLE" if self._partitions else "SIMPLE"
        return {
            "hoodie.table.name": "headrace",
            "hoodie.datasource.write.recordkey.field": ",".join(self._keys),
            "hoodie.datasource.write.partitionpath.field": ",".join(self._partitions),
            "hoodie.datasource.write.keygenerator.class": self._key_generator,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.index.type": index,
            "hoodie.simple.index.update.partition.path": "true",
            **_OURS,
        }

    @property
    def _key_generator(self) -> str:
        if not self._partitions:
            return "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        is_simple = len(self._keys) == len(self._partitions) == 1
        return f"org.apache.hudi.keygen.{'Simple' if is_simple else 'Complex'}KeyGenerator"

    def exists(self) -> bool:
        return bool(self._files().exists(self._file(".hoodie", "hoodie.properties")))

    def make(self) -> None:
        builder = self._hudi.common.table.HoodieTableMetaClient.newTableBuilder()
        builder = builder.setTableType("COPY_ON_WRITE").setTableName("headrace")
        builder = builder.setRecordKeyFields(",".join(self._keys))
        builder = builder.setKeyGeneratorClassProp(self._key_generator)
        builder = builder.setHiveStylePartitioningEnable(True)
        builder = builder.setRecordMergeMode(
            self._hudi.common.config.RecordMergeMode.valueOf(_OURS["hoodie.record.merge.mode"])
        )
        if self._partitions:
            builder = builder.setPartitionFields(",".join(self._partitions))
        builder.initTable(self._storage(), self.path)

    def known_keys(self) -> tuple[str, ...]:
        """Those that the table was made with."""
        return tuple(self._meta().getTableConfig().getRecordKeyFields().get())

    def new_instant(self) -> str:
        """One that no other has; nothing is known of it yet."""
        instant: str = self._meta().createNewInstantTime(False)
        return instant

    def write(self, rows: DataFrame, instant: str, operation: str) -> Written:
        """Under an instant that is pending from here on."""
        hudi, frame = self._hudi, rows._jdf
        name, space = "headrace_record", "hoodie.headrace"
        schema = hudi.HoodieSchemaConversionUtils.convertStructTypeToHoodieSchema(
            frame.schema().asNullable(), name, space
        )
        kind = getattr(hudi.common.model.WriteOperationType, operation)
        meta = self._meta()
        meta.getActiveTimeline().createNewInstant(
            meta.createNewInstant(self._state("REQUESTED"), _ACTION, instant)
        )
        with self._client(schema.toString()) as client:
            options = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self._map(self._options))
            arguments = getattr(hudi, "HoodieCreateRecordUtils$createHoodieRecordRddArgs")(
                frame, client.getConfig(), options, name, space, schema, schema, kind, instant,
                False, False, False, meta.getTableConfig(),
            )  # fmt: skip
            client.setOperationType(kind)
            records = hudi.HoodieCreateRecordUtils.createHoodieRecordRdd(arguments)
            result = hudi.DataSourceUtils.doWriteOperation(client, records, instant, kind, False)
            metadata, count = hudi.common.model.HoodieCommitMetadata(), 0
            for status in result.getWriteStatuses().collect():
                if status.hasErrors():
                    raise HudiWriteError(str(status.getErrors() or status.getGlobalError()))
                stat = status.getStat()
                count += stat.getNumInserts() + stat.getNumUpdateWrites()
                metadata.addWriteStat(stat.getPartitionPath(), stat)
            stats = json.loads(metadata.toJsonString())
            return Written(instant, self.new_instant(), operation, schema.toString(), stats, count)

    def complete(self, written: Written, told: Mapping[str, str]) -> None:
        """Lets readers see it, with this in the commit's metadata."""
        from py4j.protocol import Py4JJavaError

        hudi, option = self._hudi, self._hudi.common.util.Option
        kind = hudi.common.model.HoodieCommitMetadata
        stats = kind.fromJsonString(json.dumps(written.stats), kind().getClass()).getWriteStats()
        meta = self._meta()
        with self._client(written.schema) as client:
            context = client.getEngineContext()
            # Files of tasks that were tried twice.
            hudi.table.HoodieSparkTable.create(client.getConfig(), context, meta).finalizeWrite(
                context, written.instant, stats
            )
        metadata = hudi.common.util.CommitUtils.buildMetadata(
            stats,
            self._jvm.java.util.HashMap(),
            option.of(self._map(told)),
            getattr(hudi.common.model.WriteOperationType, written.operation),
            written.schema,
            _ACTION,
        )
        completed = meta.createNewInstant(
            self._state("COMPLETED"), _ACTION, written.instant, written.completion
        )
        name = meta.getInstantFileNameGenerator().getFileName(completed)
        # Not by `saveAsComplete`, which would take the time of day into the name: done twice, there were two.
        try:
            meta.getActiveTimeline().createFileInMetaPath(name, option.of(metadata), False)
        except Py4JJavaError:
            if written.instant not in self.instants()[1]:  # by somebody who did the same at this moment
                raise

    def roll_back(self, instant: str) -> None:
        """A pending one, with its files."""
        with self._client("") as client:
            client.rollback(instant)

    def clean(self, hours: int) -> None:
        """Removes files of rows that were replaced before, and moves old instants out of the timeline."""
        by_age = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": str(hours)}
        with self._client("", by_age) as client:
            client.clean()
            client.archive()

    def instants(self) -> tuple[list[str], list[str]]:
        """Of the timeline: pending and completed commits, the first one first."""
        timeline = self._meta().getActiveTimeline().getCommitsTimeline()
        pending = timeline.filterInflightsAndRequested().getInstants()
        completed = timeline.filterCompletedInstants().getInstants()
        return [one.requestedTime() for one in pending], [one.requestedTime() for one in completed]

    def has_commit(self, instant: str) -> bool:
        """Whether it is completed, archived or not; one that was rolled back is neither."""
        meta = self._meta()

        def has(timeline: Any) -> bool:
            return bool(timeline.getCommitsTimeline().filterCompletedInstants().containsInstant(instant))

        return has(meta.getActiveTimeline()) or has(meta.getArchivedTimeline(instant))

    def commits(self) -> Iterator[tuple[str, dict[str, str]]]:
        """What was said with each commit, the last one first; also of those that were archived."""
        meta = self._meta()
        active = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
        yield from self._told(active)
        archived = meta.getArchivedTimeline()
        archived.loadCompletedInstantDetailsInMemory()
        yield from self._told(archived.getCommitsTimeline().filterCompletedInstants())

    def _told(self, timeline: Any) -> Iterator[tuple[str, dict[str, str]]]:
        for instant in reversed(timeline.getInstants()):
            metadata = timeline.readCommitMetadata(instant)
            yield instant.requestedTime(), dict(metadata.getExtraMetadata())

    def note(self, owner: str, name: str) -> None:
        """Puts an empty file beside the timeline; `name` says all."""
        self._files().createNewFile(self._file(".hoodie", "headrace", owner, name))

    def notes(self, owner: str) -> list[str]:
        folder = self._file(".hoodie", "headrace", owner)
        files = self._files()
        return [one.getPath().getName() for one in files.listStatus(folder)] if files.exists(folder) else []

    def noted(self) -> set[str]:
        """The instants of all owners' notes; those that tell of something else begin with no instant."""
        folder, files = self._file(".hoodie", "headrace"), self._files()
        owners = [one.getPath() for one in files.listStatus(folder)] if files.exists(folder) else []
        notes = [one.getPath().getName() for owner in owners for one in files.listStatus(owner)]
        return {note.split("-")[0] for note in notes if note.count("-") == 2}

    def remove_note(self, owner: str, name: str) -> None:
        self._files().delete(self._file(".hoodie", "headrace", owner, name), False)

    def put_note(self, owner: str, name: str, text: str) -> None:
        """Adds one that has content, whole or not at all; nobody else uses the name."""
        files, hidden = self._files(), self._file(".hoodie", "headrace", owner, f".{name}")
        stream = files.create(hidden, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not files.rename(hidden, self._file(".hoodie", "headrace", owner, name)):
            raise EndpointUnavailable(f"{self.path} does not take the note {owner}/{name}")

    def read_note(self, owner: str, name: str) -> str | None:
        """None if somebody has removed it."""
        path, files = self._file(".hoodie", "headrace", owner, name), self._files()
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    @contextmanager
    def _client(self, schema: str, unless_told: Mapping[str, str] | None = None) -> Iterator[Any]:
        options = self._map({**(unless_told or {}), **self._options})
        client = self._hudi.DataSourceUtils.createHoodieClient(
            self._context, schema, self.path, "headrace", options
        )
        try:
            yield client
        finally:
            client.close()

    def _meta(self) -> Any:
        builder = self._hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setBasePath(self.path).setConf(self._storage()).build()

    def _storage(self) -> Any:
        return self._hudi.storage.hadoop.HadoopStorageConfiguration(self._context.hadoopConfiguration())

    def _files(self) -> Any:
        return self._file().getFileSystem(self._context.hadoopConfiguration())

    def _file(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self.path.rstrip("/"), *parts)))

    def _state(self, name: str) -> Any:
        return getattr(getattr(self._hudi.common.table.timeline, "HoodieInstant$State"), name)

    def _map(self, values: Mapping[str, str]) -> Any:
        java = self._jvm.java.util.HashMap()
        for key, value in values.items():
            java.put(key, value)
        return java


class HudiWriteError(Exception):
    """Hudi could not write some rows."""
