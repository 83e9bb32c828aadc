"""What the two ways to combine have in common: the columns that they begin and end with."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.model.collections import Collection


def key_names(collection: Collection) -> list[str]:
    return [f"k{index}" for index in range(len(collection.key_fields))]


def key_columns(collection: Collection) -> list[Column]:
    return [F.col(f"_key.{name}").alias(name) for name in key_names(collection)]


def finished(collection: Collection, values: Sequence[Column], document: Column | None) -> list[Column]:
    """The columns of a combined frame, over one that has a row for each key."""
    named = [column.alias(f"v{index}") for index, column in enumerate(values)]
    # Spark makes no struct of nothing in any other way.
    struct = F.struct(*named) if named else F.from_json(F.lit("{}"), StructType([]))
    return [
        F.struct(*key_names(collection)).alias("_key"),
        struct.alias("_values"),
        (F.lit(None).cast("string") if document is None else document).alias("_document"),
        F.col("_count"),
    ]
