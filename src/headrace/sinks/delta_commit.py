"""The changes of a Delta table that a commit makes, and that going back makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from headrace.errors import ConfigError, EndpointError
from headrace.model.checkpoints import JsonObject
from headrace.objects import NoSuchObject
from headrace.sinks.columns import arrow_type
from headrace.sinks.contract import Place
from headrace.sinks.delta_reading import data_files
from headrace.sinks.delta_table import Table, Tables, app_of
from headrace.sinks.file_reading import read_file
from headrace.sinks.staging import Attempt
from headrace.sinks.standard_sql import quoted, text

DATA = "data"


def add_actions(files: Sequence[Mapping[str, Any]], attempt: Attempt) -> list[AddAction]:
    """The same each time that they are made."""
    at = int(attempt.began_at.timestamp() * 1000)
    return [
        AddAction(file["path"], file["size"], file["partition"], at, True, file["statistics"])
        for file in files
    ]


def merge(table: Table, staged: JsonObject, properties: CommitProperties) -> bool:
    """Each new row takes the place of the one with its key, all of it. False if the new rows are gone."""
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in table.columns.items()])
    gone: list[Exception] = []
    rows = pa.RecordBatchReader.from_batches(schema, _staged_rows(table, staged, schema, gone))
    # Null keys are one key.
    same = (f"(target.{quoted(key)} IS NOT DISTINCT FROM source.{quoted(key)})" for key in staged["keys"])
    changes = {quoted(name): f"source.{quoted(name)}" for name in schema.names}
    merger = table.delta.merge(
        rows,
        predicate=" AND ".join(same),
        source_alias="source",
        target_alias="target",
        commit_properties=properties,
    )
    try:
        merger.when_matched_update(changes).when_not_matched_insert(changes).execute()
    except DeltaError:
        if gone:
            return False
        raise
    return True


def _staged_rows(
    table: Table, staged: JsonObject, schema: pa.Schema, gone: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """The library tells of an error in here as one of its own; `gone` gets what it was."""
    try:
        for file in staged["files"]:
            yield from read_file(table.root, file["path"], {}, schema)
    except (NoSuchObject, FileNotFoundError) as error:
        gone.append(error)
        raise


def take_back(place: Place, table: Table, epoch: int, properties: CommitProperties) -> None:
    """Removes what later epochs brought, in the commit that also says so."""
    _refuse_others(place, table, epoch)
    before = table.delta.version()
    if not place.is_view:
        table.delta.delete(_later_than(place, table, epoch), commit_properties=properties)
    elif epoch < 0:
        table.delta.delete(commit_properties=properties)
    else:
        _restore(table, epoch, properties)
    if table.delta.version() == before:  # there was nothing to remove
        table.append([], properties)


def refuse_taking_back(place: Place, tables: Tables, table: Table, epoch: int) -> None:
    """What `take_back` would refuse, by what is there now."""
    _refuse_others(place, table, epoch)
    if not place.is_view:
        _later_than(place, table, epoch)
    elif epoch >= 0:
        version, store = _version(table, epoch), table.root.objects()
        now = {file["path"] for file in data_files(table)}
        for file in data_files(tables.must_load(version)):
            if file["path"] not in now:
                try:
                    store.size(file["path"], "look for a file")
                except NoSuchObject:
                    raise _cannot_restore(table, epoch, version, f"{file['path']} is not there") from None


def _refuse_others(place: Place, table: Table, epoch: int) -> None:
    """Refuses to remove rows that another materialization wrote before the table was taken over.

    Rows tell their epoch, and not whose they are. The log tells it, as far back as it goes.
    """
    if place.owned:
        return
    own = f"{app_of(place.writer)}/"
    told = [entry for entry in _commits(table) if entry.get("epoch", -1) > epoch]
    others = {unquote(one["writer"].split("/")[1]) for one in told if not one["writer"].startswith(own)}
    if others:
        raise EndpointError(
            f"{table.root.url} cannot go back to epoch {epoch}, since it has later epochs of "
            f"{', '.join(sorted(others))} from before it was taken over, which would be lost: restore the "
            "endpoint as it was, or start under another name with another table"
        )


def _later_than(place: Place, table: Table, epoch: int) -> str:
    for name in (place.epoch, *([place.owned] if place.owned else ())):
        if name not in table.columns:
            raise ConfigError(
                f"{table.root.url} has no column {name!r} that tells which rows came after epoch {epoch}, so "
                "it cannot go back there: start under another name with another table"
            )
    own = f" AND {quoted(place.owned)} = {text(place.writer)}" if place.owned else ""
    return f"{quoted(place.epoch)} > {epoch}{own}"


def _restore(table: Table, epoch: int, properties: CommitProperties) -> None:
    version = _version(table, epoch)
    try:
        table.delta.restore(version, commit_properties=properties)
    except CommitFailedError:
        raise
    except DeltaError as error:
        raise _cannot_restore(table, epoch, version, table.root.said(error)) from None


def _version(table: Table, epoch: int) -> int:
    version = next((found for found, at in _epochs(table) if at <= epoch), None)
    if version is None:
        raise EndpointError(
            f"the log of {table.root.url} does not go back to epoch {epoch}: restore the endpoint as it was, "
            "or start under another name with another table"
        )
    return version


def _cannot_restore(table: Table, epoch: int, version: int, why: str) -> EndpointError:
    return EndpointError(
        f"{table.root.url} cannot go back to epoch {epoch}, which is its version {version}: {why}; "
        "restore the endpoint as it was, or start under another name with another table"
    )


def _epochs(table: Table) -> Iterator[tuple[int, int]]:
    """Versions after which the table had an epoch and none later, the last first."""
    for told in _commits(table):
        if told["writer"] == table.own and "epoch" in told:
            yield told["version"], told["epoch"]


def _commits(table: Table) -> Iterator[JsonObject]:
    """What writers of ours have told of their commits, with the version of each; the last first."""
    for entry in table.delta.history():
        known = entry.get("headrace")
        told = json.loads(known) if isinstance(known, str) else known
        if told and told.get("writer"):
            yield {**told, "version": entry["version"]}
