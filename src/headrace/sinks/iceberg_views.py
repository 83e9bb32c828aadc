"""The merge of an epoch's rows into a branch of a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.sinks.iceberg_tables import JavaTable, iterate, run_with_summary
from headrace.sinks.spark_sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def merge(
    table: JavaTable, rows: DataFrame, columns: tuple[str, ...], branch: str, summary: Mapping[str, str]
) -> int:
    """Makes a branch of main in which each row has replaced the one that is equal in `columns`, if any.

    Returns the branch's snapshot.
    """
    state = table.state()
    if state.main is None:  # a branch needs something to begin from
        table.java.newAppend().commit()
        state = table.state()
    table.java.manageSnapshots().createBranch(branch, state.main).commit()
    session = rows.sparkSession
    # A stream has a session of its own, which may remember the table as it was before the branch was made.
    session.sql(f"REFRESH TABLE {table.name}")
    source = f"headrace_{uuid4().hex}"
    rows.createOrReplaceTempView(source)
    same = " AND ".join(f"t.{quoted(column)} <=> s.{quoted(column)}" for column in columns)
    try:
        run_with_summary(
            session,
            f"MERGE INTO {branch_of(table.name, branch)} t USING {source} s ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            summary,
        )
    except BaseException:
        table.drop_branches([branch])  # nobody would before the next start
        raise
    finally:
        session.catalog.dropTempView(source)
    head = table.state().branch(branch)
    assert head is not None
    return head


@contextmanager
def added_rows(spark: SparkSession, table: JavaTable, snapshot: Any) -> Iterator[DataFrame]:
    """The rows that a merge wrote: those of the files that its snapshot added, and no others."""
    session: Any = spark
    added = {file.location() for file in table.added_files(snapshot)}
    tasks = session._jvm.java.util.ArrayList()
    scan = table.java.newScan().useSnapshot(snapshot.snapshotId()).planFiles()
    try:
        for task in iterate(scan):
            if task.file().location() in added:
                tasks.add(task)
    finally:
        scan.close()
    # As Iceberg's own compaction reads a group of files, on each line of Spark.
    name, iceberg = uuid4().hex, session._jvm.org.apache.iceberg.spark
    tables, task_sets = iceberg.SparkTableCache.get(), iceberg.ScanTaskSetManager.get()
    tables.add(name, table.java)
    task_sets.stageTasks(table.java, name, tasks)
    try:
        rows = spark.read.format("iceberg").option("scan-task-set-id", name).load(name)
        yield rows.select(*(quoted(column) for column in spark.table(table.name).columns))
    finally:
        task_sets.removeTasks(table.java, name)
        tables.remove(name)


def branch_of(table: str, branch: str) -> str:
    """As SQL names it."""
    return f"{table}.{quoted(f'branch_{branch}')}"
