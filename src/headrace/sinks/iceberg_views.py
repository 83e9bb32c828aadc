"""The merge of an epoch's rows into a branch of a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.sinks.iceberg_tables import JavaTable, run_with_summary
from headrace.spark.sql import quote, text

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
    same = " AND ".join(f"t.{quote(column)} <=> s.{quote(column)}" for column in columns)
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


def added_rows(spark: SparkSession, table: JavaTable, snapshot: Any) -> DataFrame:
    """The rows that a merge wrote: those of the files that its snapshot added, and no others."""
    # As in `merge`: what this session remembers may be older than the snapshot.
    spark.sql(f"REFRESH TABLE {table.name}")
    files = ", ".join(text(file.location()) for file in table.added_files(snapshot))
    as_of = f"{table.name} VERSION AS OF {snapshot.snapshotId()}"
    known = set(spark.sql(f"SELECT * FROM {as_of}").columns)  # noqa: S608 - all names are quote
    # Somebody may have added a column since.
    columns = [
        quote(field.name)
        if field.name in known
        else f"cast(null as {field.dataType.simpleString()}) AS {quote(field.name)}"
        for field in spark.table(table.name).schema
    ]
    selected = ", ".join(columns)
    return spark.sql(f"SELECT {selected} FROM {as_of} WHERE _file IN ({files or 'null'})")  # noqa: S608


def branch_of(table: str, branch: str) -> str:
    """As SQL names it."""
    return f"{table}.{quote(f'branch_{branch}')}"
