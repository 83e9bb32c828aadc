"""Whether a table can take rows: it may get new columns, and nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import SchemaError
from headrace.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

# Iceberg has no integers that are smaller than an int.
_SMALL = re.compile(r"\b(tinyint|smallint)\b")


def new_columns(where: str, rows: StructType, table: StructType, keys: Sequence[str]) -> list[StructField]:
    """Those that a table lacks; refuses rows that it cannot take. `where` names it in errors."""
    known = {field.name.lower(): field for field in table}
    comes = {field.name.lower() for field in rows}
    for key in keys:
        if key.lower() not in comes:
            raise SchemaError(f"{where}: the key's column {key!r} is not among those of the rows")
    for field in table:
        if field.name.lower() not in comes and not field.nullable:
            raise SchemaError(
                f"{where}: its column {field.name!r} must have a value, and the rows do not have it: "
                "bring it back, or write to another table"
            )
    added = []
    for field in rows:
        there = known.get(field.name.lower())
        if there is None:
            added.append(field)
        elif there.name != field.name or _name(there.dataType) != _name(field.dataType):
            raise SchemaError(
                f"{where}: its column {there.name!r} is {_name(there.dataType)}, and the rows have "
                f"{field.name!r} as {_name(field.dataType)}: keep names and types, or write to another table"
            )
    return added


def fit(rows: DataFrame, table: StructType) -> DataFrame:
    """The rows with all columns of a table, in its order; null in those that they do not have."""
    from pyspark.sql import functions as F

    comes = set(rows.columns)
    return rows.select(
        *(
            F.col(quote(field.name))
            if field.name in comes
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in table
        )
    )


def column_list(fields: Sequence[StructField], *, nullable: bool = False) -> str:
    """As CREATE and ALTER TABLE want it."""
    return ", ".join(
        f"{quote(field.name)} {_ddl(field.dataType)}{'' if field.nullable or nullable else ' NOT NULL'}"
        for field in fields
    )


def _name(kind: DataType) -> str:
    return _SMALL.sub("int", kind.simpleString())


def _ddl(kind: DataType) -> str:
    """`simpleString` does not quote the names in structs."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return f"struct<{', '.join(f'{quote(field.name)}: {_ddl(field.dataType)}' for field in kind)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()
