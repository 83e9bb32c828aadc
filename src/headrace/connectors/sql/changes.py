"""Apply for SQL endpoints: plans the statements that turn the existing table into the wanted one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.connectors.ownership import describe_mark, refuse_other
from headrace.connectors.sql.constraints import folded_keys, type_conflict
from headrace.connectors.sql.dialect import Dialect, quote, quote_path
from headrace.connectors.sql.tables import Table, WantedColumn, WantedTable
from headrace.errors import EndpointError
from headrace.model.ownership import Owner


@dataclass(frozen=True)
class Change:
    """A change to the endpoint, in words and in SQL."""

    what: str
    statements: tuple[str, ...]


def describe(changes: Iterable[Change]) -> str:
    """Returns the text of Applied: each change as a comment, and its statements."""
    return "\n".join(
        "\n".join([f"-- {change.what}", *(f"{statement};" for statement in change.statements)])
        for change in changes
    )


def plan_table(wanted: WantedTable, table: Table | None, dialect: Dialect) -> list[Change]:
    """Returns the changes to one table; refuses impossible changes before anything is done."""
    if table is None:
        return [_create(wanted, dialect)]
    _check_keys(wanted, table, dialect)
    changes: list[Change] = []
    for column in wanted.columns:
        changes += _plan_column(wanted, column, table, dialect)
    kept = dialect.same_names((*(column.name for column in wanted.columns), *table.primary_key))
    path = quote_path(wanted.path)
    for existing in table.columns.values():
        if not existing.nullable and dialect.same_name(existing.name) not in kept:
            statements = tuple(dialect.drop_not_null(path, existing))
            changes.append(
                Change(f"column {existing.name} of {path} is stored no more: let it be null", statements)
            )
    return changes


def plan_mark(
    path: Sequence[str], table: Table | None, owner: Owner, dialect: Dialect, *, adopts: bool
) -> list[Change]:
    """Returns the change that records a table's owner; refuses a table of another owner.

    Without a lineage nothing is recorded.
    """
    found = table.owner if table else None
    refuse_other(f"table {'.'.join(path)}", found, owner, adopts=adopts)
    if not owner.lineage or found == owner:
        return []
    statements = tuple(dialect.mark(path, table, owner))
    if table is not None and not table.can_be_marked:
        if found is not None:
            return []
        raise EndpointError(
            f"table {'.'.join(path)} does not say whose it is, and its owner has to let it: "
            f"{'; '.join(statements)}"
        )
    return [Change(describe_mark(quote_path(path), found, owner), statements)]


def _create(wanted: WantedTable, dialect: Dialect) -> Change:
    path = quote_path(wanted.path)
    lines = [
        f"  {quote(column.name)} {dialect.column_type(column.type)}{'' if column.nullable else ' NOT NULL'}"
        for column in wanted.columns
    ]
    if wanted.primary_key:
        lines.append(f"  PRIMARY KEY ({', '.join(quote(name) for name in wanted.primary_key)})")
    body = ",\n".join(lines)
    return Change(f"create table {path}", (f"CREATE TABLE {path} (\n{body}\n)",))


def _check_keys(wanted: WantedTable, table: Table, dialect: Dialect) -> None:
    if dialect.same_names(table.primary_key) != dialect.same_names(wanted.primary_key):
        raise EndpointError(
            f"table {'.'.join(wanted.path)} has primary key ({', '.join(table.primary_key)}) "
            f"and needs ({', '.join(wanted.primary_key)}): materialize into a new table"
        )
    if problem := folded_keys(table):
        raise EndpointError(f"table {'.'.join(wanted.path)}: {problem}")


def _plan_column(wanted: WantedTable, column: WantedColumn, table: Table, dialect: Dialect) -> list[Change]:
    path = quote_path(wanted.path)
    existing = dialect.column(table, column.name)
    declared = dialect.column_type(column.type)
    if existing is None:
        if column.what != "field":
            raise EndpointError(
                f"table {'.'.join(wanted.path)} is there without the column {column.name!r} of its "
                f"{column.what}: materialize into a new table"
            )
        # Existing rows have no value for it, so it is nullable whatever the schema says.
        statement = f"ALTER TABLE {path} ADD COLUMN {quote(column.name)} {declared}"
        return [Change(f"add column {column.name} to {path}", (statement,))]
    changes: list[Change] = []
    stored = dialect.field_type(existing.declared)
    if stored != column.type:
        if stored is None or column.what != "field" or not stored.widens_to(column.type):
            raise EndpointError(
                f"table {'.'.join(wanted.path)}: {type_conflict(column.name, column.type, existing, dialect)}"
            )
        statements = tuple(dialect.widen(path, existing, column.type))
        what = f"widen column {column.name} of {path} from {existing.declared} to {declared}"
        changes.append(Change(what, statements))
        existing = replace(existing, declared=declared)
    if column.nullable and not existing.nullable:
        statements = tuple(dialect.drop_not_null(path, existing))
        changes.append(
            Change(f"column {column.name} of {path} can be missing now: let it be null", statements)
        )
    return changes
