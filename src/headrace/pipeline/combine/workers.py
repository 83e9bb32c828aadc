"""Documents of one key become one by the reference, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.model.collections import Collection, Field
from headrace.model.columns import extract
from headrace.pipeline.combine.columns import document_text, finished, key_columns, key_names
from headrace.pipeline.combine.plan import members_of
from headrace.pipeline.shards.reduce import Document, row_reducer
from headrace.pipeline.sources.frames import MakeFrame
from headrace.spark.sql import quote, spark_type


def combiner_in_workers(collection: Collection, values: Sequence[Field], with_document: bool) -> MakeFrame:
    """Combines as `combiner` says, for any annotations and any values."""
    names = key_names(collection)
    members = [(member, F.col(quote(member.name))) for member in members_of(collection.schema)]
    text = document_text(members) if members else F.lit("{}")
    # The frame says of a missing value that it is null, required or not.
    chosen = [replace(field, required=False, name=f"v{index}") for index, field in enumerate(values)]
    columns = [*zip(names, collection.key_fields, strict=True), *((field.name, field) for field in chosen)]
    schema = [f"{name} {spark_type(field.type)}" for name, field in columns]
    groups = Groups(collection, chosen)
    result = finished(
        collection, [F.col(field.name) for field in chosen], F.col("_document") if with_document else None
    )

    def combine(frame: DataFrame) -> DataFrame:
        documents = (
            frame.select(*key_columns(collection), "_order", text.alias("document"))
            .repartition(*names)
            .sortWithinPartitions(*names, "_order")
            .select(*names, "document")
        )
        ddl = ", ".join([*schema, "_document string", "_count bigint"])
        return documents.mapInArrow(groups.combine, ddl).select(*result)

    return combine


class Groups:
    """Combines a stream of rows that is sorted by key and, within a key, by order of writing.

    Only the batch at hand and one combined document are in memory.
    """

    def __init__(self, collection: Collection, values: Sequence[Field]) -> None:
        self._collection = collection
        self._values = list(values)

    def combine(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the key's parts and the document's text, to one row of each key."""
        reduce_row = row_reducer(self._collection.schema)
        width = len(self._collection.key_fields)
        key: pa.RecordBatch | None = None  # of the group that has begun: its key, document and count
        document: Document = None
        count = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            keys = batch.select(list(range(width)))
            first_rows = _first_rows(key, keys)
            done: list[tuple[Document, int]] = []
            begins = set(first_rows)
            for row, text in enumerate(batch.column(width).to_pylist()):
                written = orjson.loads(text)
                if row not in begins:
                    document, count = reduce_row(document, written), count + 1
                    continue
                if count:
                    done.append((document, count))
                document, count = written, 1
            if first_rows:
                heads = keys.take(pa.array(first_rows, pa.int64()))
                yield from self._rows(_appended(key, heads[:-1]), done)
                key = heads[-1:]
        if key is not None:
            yield from self._rows(key, [(document, count)])

    def _rows(self, keys: pa.RecordBatch, done: list[tuple[Document, int]]) -> Iterator[pa.RecordBatch]:
        if not done:
            return
        documents = [document for document, _ in done]
        values = extract(self._values, documents).columns if self._values else []
        texts = pa.array([orjson.dumps(document).decode() for document in documents], pa.string())
        counts = pa.array([count for _, count in done], pa.int64())
        columns = [*keys.columns, *values, texts, counts]
        names = [*keys.schema.names, *(field.name for field in self._values), "_document", "_count"]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _first_rows(last: pa.RecordBatch | None, keys: pa.RecordBatch) -> list[int]:
    """The rows whose key is another than that of the row before; `last` is the key before all of them."""
    before = _appended(keys[:1] if last is None else last, keys[:-1])
    differs = pc.not_equal(keys.column(0), before.column(0))
    for index in range(1, keys.num_columns):
        differs = pc.or_(differs, pc.not_equal(keys.column(index), before.column(index)))
    rows: list[int] = pc.indices_nonzero(differs).to_pylist()
    return [0, *rows] if last is None else rows


def _appended(before: pa.RecordBatch | None, after: pa.RecordBatch) -> pa.RecordBatch:
    if before is None:
        return after
    columns = [pa.concat_arrays(pair) for pair in zip(before.columns, after.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=after.schema)
