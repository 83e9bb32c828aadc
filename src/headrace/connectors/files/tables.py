"""Describes the files under a prefix: format, columns and owner, in objects that are only ever added.

Each has a number, and nobody puts a second one under the same. So if two processes read the same state and
change it, one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import orjson

from headrace.connectors.files.config import FilesResource
from headrace.connectors.files.layout import ABOUT, DATA, STAGED
from headrace.connectors.files.storage import Storage
from headrace.connectors.ownership import describe_mark, refuse_other
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.model.field_types import FieldType, Kind
from headrace.model.materializations import Binding
from headrace.model.ownership import Owner, Target

_NAME = re.compile(r"table-(\d{6,})\.json")


@dataclass(frozen=True)
class Table:
    """The files under one prefix."""

    version: int
    format: str
    columns: Mapping[str, str]
    """Types by name, of every column that a file may have."""
    holds_data: bool
    owner: Owner | None = None

    def same_type(self, name: str, field_type: FieldType) -> bool:
        return self.columns.get(name) == str(field_type)

    def conflict(self, name: str, field_type: FieldType) -> str | None:
        """Returns why a column cannot be written, given the existing files."""
        if not self.holds_data or name not in self.columns or self.same_type(name, field_type):
            return None
        return (
            f"column {name!r} is {self.columns[name]} in the files that are there "
            f"and the field is {field_type}: change the schema back, or materialize into a new prefix"
        )


def read_table(storage: Storage, prefix: str) -> Table | None:
    names = (_NAME.fullmatch(found.name) for found in storage.objects(f"{prefix}/{ABOUT}"))
    version = max((int(name[1]) for name in names if name), default=0)
    if not version:
        return None
    path = _path(prefix, version)
    try:
        raw = orjson.loads(storage.read(path))
        stored_format, columns = str(raw["format"]), {str(k): str(v) for k, v in raw["columns"].items()}
        owner = Owner.decode(orjson.dumps(raw["owner"]).decode()) if "owner" in raw else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EndpointError(f"{path} is not what the connector wrote: choose a new prefix") from None
    return Table(version, stored_format, columns, _holds_data(storage, prefix), owner)


def look_at(storage: Storage, prefix: str) -> tuple[Table | None, Target]:
    """Returns the table, and the state of the target whether or not there is a table.

    Staged objects count as rows: a recovery log may name them, or a marker may refer to a published file that
    a reader has removed since.
    """
    table = read_table(storage, prefix)
    if table is None:
        holds_data = _holds_data(storage, prefix)
        return None, Target(exists=holds_data, has_rows=holds_data)
    return table, Target(exists=True, has_rows=table.holds_data, owner=table.owner)


def _holds_data(storage: Storage, prefix: str) -> bool:
    return storage.holds_any(f"{prefix}/{DATA}") or storage.holds_any(f"{prefix}/{STAGED}")


def add_table(storage: Storage, prefix: str, table: Table) -> None:
    about = {"format": table.format, "columns": dict(table.columns)}
    if table.owner is not None:
        about["owner"] = orjson.loads(table.owner.encode())
    raw = orjson.dumps(about, option=orjson.OPT_INDENT_2)
    if not storage.create(_path(prefix, table.version), raw):
        raise EndpointUnavailable(f"somebody else has just changed the table at {prefix!r}: try again")


def wanted_columns(binding: Binding) -> dict[str, FieldType]:
    columns = {field.name: field.type for field in (*binding.keys, *binding.values)}
    if binding.document:
        columns[binding.document] = FieldType(Kind.JSON)
    return columns


def plan_table(
    binding: Binding, resource: FilesResource, table: Table | None, owner: Owner, *, adopts: bool = False
) -> tuple[Table, list[str]] | None:
    """Returns the table with its changes and their description, or None if there are no changes.

    An owner without a lineage is not recorded.
    """
    columns = {name: str(field_type) for name, field_type in wanted_columns(binding).items()}
    prefix = resource.prefix
    if table is None:
        listed = ", ".join(f"{name} {field_type}" for name, field_type in columns.items())
        changes = [f"create {prefix}: {resource.format}, {listed}"]
        table = Table(0, resource.format, columns, False)
    else:
        refuse_other(f"prefix {prefix!r}", table.owner, owner, adopts=adopts)
        changes = _plan_columns(binding, resource, table)
    if owner.lineage and table.owner != owner:
        changes.append(describe_mark(f"prefix {prefix}", table.owner, owner))
    if not changes:
        return None
    return replace(
        table,
        version=table.version + 1,
        format=resource.format,
        columns={**table.columns, **columns},
        owner=owner if owner.lineage else table.owner,
    ), changes


def _plan_columns(binding: Binding, resource: FilesResource, table: Table) -> list[str]:
    """Describes the changes to an existing table; refuses those that its files rule out."""
    prefix = resource.prefix
    if problem := format_conflict(resource, table):
        raise EndpointError(problem)
    changes = []
    if table.format != resource.format:
        changes.append(f"write {prefix} as {resource.format}")
    for name, field_type in wanted_columns(binding).items():
        if problem := table.conflict(name, field_type):
            raise EndpointError(problem)
        if name not in table.columns:
            changes.append(f"add column {name} {field_type} to {prefix}")
        elif not table.same_type(name, field_type):
            changes.append(f"change column {name} of {prefix}, which has no rows, to {field_type}")
    return changes


def format_conflict(resource: FilesResource, table: Table) -> str | None:
    if table.holds_data and table.format != resource.format:
        return (
            f"the files at {resource.prefix!r} are {table.format} and the format is {resource.format}: "
            "change it back, or materialize into a new prefix"
        )
    return None


def check_applied(binding: Binding, resource: FilesResource, table: Table | None, owner: Owner) -> None:
    """Refuses to write if Apply has not prepared the table, or another owner has taken it over since."""
    if table is not None:
        refuse_other(f"prefix {resource.prefix!r}", table.owner, owner, adopts=False)
    columns = wanted_columns(binding).items()
    if (
        table is None
        or table.format != resource.format
        or not all(table.same_type(name, field_type) for name, field_type in columns)
    ):
        raise EndpointError(
            f"{resource.prefix!r} is not ready for this binding: apply the materialization first"
        )


def _path(prefix: str, version: int) -> str:
    return f"{prefix}/{ABOUT}/table-{version:06}.json"
