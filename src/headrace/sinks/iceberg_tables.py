"""Iceberg's own table object, by way of Spark's JVM: what a table has at one moment, and one change of it.

Iceberg's transactions are repeated by Iceberg itself when somebody else was faster, on top of what he did. A
publication must not be: whether it is still to be done has to be looked up again. So it is built on a known
state here, and is refused by the catalog if that is not the table's state any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAIN = "main"
ID = "headrace.id"
"""In a snapshot's summary: what it was staged as. Of one that was staged by a WAP id, that."""
EPOCH = "headrace.epoch"
WRITER = "headrace.writer"
SINK = "headrace.sink"
CHECKPOINT = "headrace.checkpoint"
REWOUND = "headrace.rewound"
"""In the summary of a snapshot that took back all epochs after this one."""
WAP_ID = "wap.id"
PUBLISHED_WAP_ID = "published-wap-id"
TRIES = 20
"""Of a change. Each time somebody else was faster, so one of a few who write at once gets through."""
_CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"


class State:
    """A table's metadata as it was when it was asked for; it does not change."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def told(self, name: str) -> str | None:
        """A property of the table."""
        value: str | None = self.base.properties().get(name)
        return value

    def properties(self) -> dict[str, str]:
        return dict(self.base.properties())

    @property
    def main(self) -> int | None:
        """The snapshot that readers see."""
        return self.branch(MAIN)

    def branch(self, name: str) -> int | None:
        reference = self.base.ref(name)
        return None if reference is None else int(reference.snapshotId())

    def references(self) -> dict[str, int]:
        """Branches and tags."""
        return {name: int(reference.snapshotId()) for name, reference in self.base.refs().items()}

    def snapshot(self, snapshot_id: int | None) -> Any:
        """None if it has expired."""
        return None if snapshot_id is None else self.base.snapshot(snapshot_id)

    def snapshots(self) -> Iterator[Any]:
        """Also those that are on no branch, the last one first."""
        return iter(reversed(self.base.snapshots()))

    def history(self, start: int | None) -> Iterator[Any]:
        """A snapshot and those before it, as far as they have not expired."""
        snapshot = self.snapshot(start)
        while snapshot is not None:
            yield snapshot
            snapshot = self.snapshot(snapshot.parentId())

    def ids_before(self, starts: Collection[int]) -> set[int]:
        """The snapshots of some histories."""
        return {int(snapshot.snapshotId()) for start in starts for snapshot in self.history(start)}

    def staged_as(self, staged_id: str) -> Any:
        """The snapshot that was staged under this id; None if there is none."""
        return next((one for one in self.snapshots() if staged_id_of(one) == staged_id), None)


def is_there(spark: SparkSession, name: str) -> bool:
    """Whether the catalog has a table, whatever the session remembers of it."""
    # Loads the catalog by this session's settings; what follows would by those of whichever is active.
    spark.catalog.tableExists(name)
    session: Any = spark
    found = session._jvm.org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(
        session._jsparkSession, name
    )
    found.catalog().invalidateTable(found.identifier())
    return bool(found.catalog().tableExists(found.identifier()))


class JavaTable:
    """A table of the catalog; `name` is quoted as SQL wants it."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        session: Any = spark
        self.name = name
        self._jvm = session._jvm
        self.java = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            session._jsparkSession, name
        )

    def state(self) -> State:
        """As it is in the catalog now."""
        return State(self.java.operations().refresh())

    def swap(
        self,
        state: State,
        snapshot_id: int | None,
        properties: Mapping[str, str],
        *,
        without: Collection[str] = (),
        dropped: Collection[str] = (),
        tags: Mapping[str, int] | None = None,
        tag_age_ms: int | None = None,
    ) -> bool:
        """Main gets this snapshot, and the table these properties, at once.

        False if the table is not as in `state` any more. `without` are properties, and `dropped` branches,
        that go; `tags` are set, with their snapshots, and expire at this age. No snapshot: main stays where
        it is. A REST catalog compares branches and tags that are set, and no properties.
        """
        from py4j.protocol import Py4JJavaError

        builder = self._jvm.org.apache.iceberg.TableMetadata.buildFrom(state.base)
        builder = builder.setProperties(self._map(properties))
        if snapshot_id is not None and snapshot_id != state.main:
            builder = builder.setBranchSnapshot(snapshot_id, MAIN)
        builder = builder.removeProperties(self._set(without))
        for branch in dropped:
            builder = builder.removeRef(branch)
        for tag, tagged in (tags or {}).items():
            reference = (
                self._jvm.org.apache.iceberg.SnapshotRef.tagBuilder(tagged).maxRefAgeMs(tag_age_ms).build()
            )
            builder = builder.setRef(tag, reference)
        try:
            self.java.operations().commit(state.base, builder.build())
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != _CONFLICT:
                raise
            return False
        return True

    def stage(self, update: Any, summary: Mapping[str, str]) -> int:
        """Makes a snapshot that is on no branch, on top of main, by an update such as an append."""
        for key, value in summary.items():
            update.set(key, value)
        update.stageOnly().commit()
        return int(self.state().staged_as(summary[ID]).snapshotId())

    def set_properties(self, properties: Mapping[str, str], without: Collection[str] = ()) -> None:
        update = self.java.updateProperties()
        for key, value in properties.items():
            update = update.set(key, value)
        for key in without:
            update = update.remove(key)
        update.commit()

    def remove_staged(self, state: State, staged_ids: Collection[str]) -> None:
        """Branches and snapshots of these ids, but no snapshot that any other branch or tag has."""
        references = state.references()
        self.drop_branches([name for name in references if name in staged_ids])
        used = state.ids_before({head for name, head in references.items() if name not in staged_ids})
        left = [int(one.snapshotId()) for one in state.snapshots() if staged_id_of(one) in staged_ids]
        self.expire([snapshot for snapshot in left if snapshot not in used])

    def drop_branches(self, names: Sequence[str]) -> None:
        if names:
            update = self.java.manageSnapshots()
            for name in names:
                update = update.removeBranch(name)
            update.commit()

    def drop_tags(self, names: Sequence[str]) -> None:
        if names:
            update = self.java.manageSnapshots()
            for name in names:
                update = update.removeTag(name)
            update.commit()

    def expire(self, snapshots: Collection[int]) -> None:
        """These alone, with the files that no other one has."""
        if snapshots:
            removal = self.java.expireSnapshots().expireOlderThan(0)
            for snapshot in snapshots:
                removal = removal.expireSnapshotId(snapshot)
            removal.commit()

    def added_files(self, snapshot: Any) -> list[Any]:
        """The data files that came with a snapshot."""
        return list(iterate(snapshot.addedDataFiles(self.java.io())))

    def has_rows(self, state: State) -> bool:
        """By what the table says of its files: also true if all rows of some file are deleted one by one."""
        snapshot = state.snapshot(state.main)
        if snapshot is None:
            return False
        count = snapshot.summary().get("total-records")
        if count is not None:
            return bool(count != "0")
        manifests = snapshot.dataManifests(self.java.io())
        return any(manifest.hasAddedFiles() or manifest.hasExistingFiles() for manifest in manifests)

    def _map(self, values: Mapping[str, str]) -> Any:
        java = self._jvm.java.util.HashMap()
        for key, value in values.items():
            java.put(key, value)
        return java

    def _set(self, values: Collection[str]) -> Any:
        java = self._jvm.java.util.HashSet()
        for value in values:
            java.add(value)
        return java


def staged_id_of(snapshot: Any) -> str:
    """Empty if a snapshot was not staged."""
    summary = snapshot.summary()
    return summary.get(ID) or summary.get(WAP_ID) or ""


def fence_of(staged_id: str) -> int:
    """Ids end with epoch, fence and something that no other has."""
    return int(staged_id.rsplit("-", 2)[1])


def iterate(java: Any) -> Iterator[Any]:
    """What a Java `Iterable` has."""
    iterator = java.iterator()
    while iterator.hasNext():
        yield iterator.next()


def run_with_summary(spark: SparkSession, statement: str, summary: Mapping[str, str]) -> None:
    """Runs SQL that writes to an Iceberg table; the snapshot that it makes gets this into its summary.

    Iceberg asks for a Callable around the writing. One is made from the session's own method, since a call
    from Java back to Python would come on another thread.
    """
    session: Any = spark
    jvm, gateway = session._jvm, session.sparkContext._gateway
    java, for_name = session._jsparkSession, jvm.java.lang.Class.forName
    invoke = jvm.java.lang.invoke
    text, result = for_name("java.lang.String"), java.emptyDataFrame().getClass()
    sql = invoke.MethodHandles.publicLookup().bind(java, "sql", invoke.MethodType.methodType(result, text))
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = statement
    bound = invoke.MethodHandles.insertArguments(sql, 0, arguments)
    call: Callable[..., Any] = invoke.MethodHandleProxies.asInterfaceInstance
    properties = jvm.java.util.HashMap()
    for key, value in summary.items():
        properties.put(key, value)
    jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(
        properties,
        call(for_name("java.util.concurrent.Callable"), bound),
        for_name("java.lang.Exception"),
    )
