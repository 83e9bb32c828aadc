"""Keeps a Delta table in order, and looks whether it is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import QueryBuilder

from headrace.objects import NoSuchObject, ObjectStore
from headrace.sinks.audits import ahead, behind, last_with_rows
from headrace.sinks.contract import Place
from headrace.sinks.delta_commit import DATA
from headrace.sinks.delta_reading import data_files
from headrace.sinks.delta_table import Table, Tables, app_of
from headrace.sinks.staging import Attempt
from headrace.sinks.standard_sql import quoted

OWN = "_headrace"
"""The folder of a table that is ours. Readers and VACUUM pass over it."""


def keep_up(tables: Tables, age: timedelta, kept: Set[str]) -> Iterator[str]:
    """`kept` are attempts that may still be committed, beside those that the table knows of."""
    if tables.load() is None:
        return
    # Before the table is read: what is committed in between is named here.
    before, store = datetime.now(UTC) - age, tables.root.objects()
    needed = {*kept, *_staged(store)}
    done: dict[str, int] = {}

    def compact(table: Table) -> None:
        metrics = table.delta.optimize.compact()
        done.update(before=metrics["numFilesRemoved"], after=metrics["numFilesAdded"])

    tables.change(compact)
    table = tables.must_load()
    if done["before"]:
        tables.sync(lambda _: True)
        yield f"wrote {done['before']} small files of {tables.root.url} as {done['after']}"
    with tables.speaking("be cleaned up"):
        hours = math.ceil(age / timedelta(hours=1))
        left = table.delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        paths = [path for path in map(unquote, left) if not _is_needed(path, needed, before)]
        for path in paths:
            store.remove(path, "remove files that nothing refers to")
        if paths:
            yield f"removed {len(paths)} files of {tables.root.url} that its log does not name any more"
        table.delta.create_checkpoint()
        table.delta.cleanup_metadata()
    tables.sync(lambda _: True)
    yield f"wrote a checkpoint of the log of {tables.root.url} at version {table.delta.version()}"


def audit_table(
    place: Place, tables: Tables, decided: Mapping[int, int], last: Callable[[], int] | None
) -> Iterator[str]:
    """What is wrong with the table as a whole, and with its files."""
    folder = tables.root.folder
    table = tables.load() if folder is None or folder.exists() else None
    if table is None:
        if any(decided.values()):
            yield (
                f"there is no Delta table in {tables.root.url}, and it has had epochs up to "
                f"{last_with_rows(decided)}"
            )
        return
    told = _last_epoch(table, place.writer)
    yield from behind(told, decided)
    store = table.root.objects()
    for file in data_files(table):
        try:
            size = store.size(file["path"], "look for a file")
        except NoSuchObject:
            yield f"the log names {file['path']}, which is not there"
            continue
        if size != file["size"]:
            yield f"{file['path']} has {size} bytes, and {file['size']} by the log"
    yield from _added_twice(table)
    if place.is_view:
        yield from ahead(told, decided, last)
        yield from _keys_twice(place, table)


def _last_epoch(table: Table, writer: str) -> int:
    """Of all sinks of a writer: an audit does not know what its own is called."""
    store = table.root.objects()
    of_writer = re.compile(f"{re.escape(app_of(writer))}/[^/]+")
    versions: dict[str, int] = {}
    # A checkpoint comes before the entry of its version, and has what all entries before said.
    for path in store.list("_delta_log", "read the log"):
        for transaction in _transactions(path, store):
            if of_writer.fullmatch(transaction["appId"]):
                versions[transaction["appId"]] = int(transaction["version"])
    return max(versions.values(), default=-1)


def _transactions(path: str, store: ObjectStore) -> Iterator[Mapping[str, Any]]:
    if path.endswith(".json"):
        for line in store.get(path, "read the log").splitlines():
            if transaction := json.loads(line).get("txn"):
                yield transaction
    elif path.endswith(".parquet"):
        checkpoint = pq.ParquetFile(pa.BufferReader(store.get(path, "read the log")))
        if "txn" in checkpoint.schema_arrow.names:
            yield from checkpoint.read(["txn"])["txn"].drop_null().to_pylist()


def _added_twice(table: Table) -> Iterator[str]:
    """By what is left of the log; a file that was taken out may be brought back, by going back."""
    store = table.root.objects()
    present: set[str] = set()
    for entry in store.list("_delta_log", "read the log"):
        if not entry.endswith(".json"):
            continue
        actions = [json.loads(line) for line in store.get(entry, "read the log").splitlines()]
        added = [action["add"]["path"] for action in actions if "add" in action]
        present -= {action["remove"]["path"] for action in actions if "remove" in action}
        for path in added:
            if path in present:
                yield f"{path} is added twice, the second time by {entry}"
            present.add(path)


def _keys_twice(place: Place, table: Table) -> Iterator[str]:
    keys = ", ".join(quoted(key) for key in place.keys)
    query = f"SELECT count(*) AS n FROM (SELECT {keys} FROM t GROUP BY {keys} HAVING count(*) > 1)"  # noqa: S608
    found = QueryBuilder().register("t", table.delta).execute(query)
    (row,) = pa.RecordBatchReader.from_stream(found).read_all().to_pylist()
    if row["n"]:
        yield f"{row['n']} keys have more than one row in {table.root.url}"


def _staged(store: ObjectStore) -> Iterator[str]:
    """Attempts of everybody who writes to the table."""
    for path in store.list(OWN, "look for what is not committed"):
        parts = path.split("/")
        if "staged" in parts:
            yield parts[-1].removesuffix(".json")


def _is_needed(path: str, needed: Set[str], before: datetime) -> bool:
    parts = path.split("/")
    attempt = Attempt.named(parts[1]) if parts[0] == DATA and len(parts) > 2 else None
    return attempt is not None and (attempt.name in needed or attempt.began_at >= before)
