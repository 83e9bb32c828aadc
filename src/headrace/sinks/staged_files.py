"""Writes the rows of a DataFrame as Parquet files from Spark's Python tasks, to any store that obstore knows.

So no connector of Hadoop's to that store is needed. Each attempt at a task has names of its own; what counts
is what the attempts returned that Spark took for successful. Others may leave files behind.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from headrace.connectors.files.storage import Sink
from headrace.errors import ConfigError, HeadraceError
from headrace.sinks.file_statistics import statistics
from headrace.sinks.roots import Root, partition_folder
from headrace.spark.errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES = 32 << 20
"""A task holds no more rows than this, of all its files together; then the largest part is written."""
FILE_BYTES = 512 << 20
"""A file that has grown to this size is ended, and another begun."""
_OPEN_FILES = 16  # each has buffers of its own for its upload
_ANSWER = pa.schema([("file", pa.string()), ("error", pa.string())])
_ANSWER_DDL = "file string, error string"
_Partition = tuple[str | None, ...]


@dataclass(frozen=True)
class StagedFile:
    path: str
    """Below the root."""
    size: int
    rows: int
    partition: Mapping[str, str | None]
    """The value of each partition column, as text; these columns are not in the file."""
    statistics: str
    """As Delta has them."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Job:
    root: Root
    folder: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    in_folders: bool

    @property
    def file_schema(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name not in self.partitions])


def stage(
    rows: DataFrame, root: Root, folder: str, partitions: Sequence[str] = (), *, in_folders: bool = False
) -> list[StagedFile]:
    """Runs `rows` once, and returns the files, which outlive the machine by then.

    `in_folders` puts those of each partition into folders of their own, named as Hive does.
    """
    schema = _arrow_schema(rows)
    for name in partitions:
        _check_partition(schema, name)
    if set(partitions) >= set(schema.names):
        raise ConfigError("files are laid out by every column, and nothing is left to write: name fewer")
    job = _Job(root, folder, schema, tuple(partitions), in_folders)
    with spark_failures(f"Spark cannot write to {root.url}"):
        # Tasks go by place: a name with a dot in it is more than Spark's call can take.
        numbered = rows.toDF(*(f"c{place}" for place in range(len(schema))))
        answers = numbered.mapInArrow(partial(_task, job), _ANSWER_DDL).collect()
    for answer in answers:
        if answer["error"]:
            raise HeadraceError.from_json(answer["error"])
    return [StagedFile(**json.loads(answer["file"])) for answer in answers]


def _arrow_schema(rows: DataFrame) -> pa.Schema:
    """All can be null, as a column that comes later has to be. Instants are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(rows.schema)])


def _check_partition(schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise ConfigError(f"there is no column {name!r} to lay files out by: name one of the fields")
    kind = schema.field(name).type
    if pt.is_nested(kind) or pt.is_floating(kind) or pt.is_binary(kind):
        raise ConfigError(f"files cannot be laid out by {name!r}, which is {kind}: choose another column")


def _task(job: _Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the store refuses goes back as a row, so that it is told as it is and not four times."""
    writer = _Writer(job)
    try:
        for batch in batches:
            writer.add(batch)
        found = [{"file": json.dumps(file.to_json()), "error": None} for file in writer.finish()]
    except HeadraceError as error:
        found = [{"file": None, "error": error.to_json()}]
    yield pa.RecordBatch.from_pylist(found, schema=_ANSWER)


class _Writer:
    """The files of one attempt at a task."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._storage = job.root.files()
        self._attempt = uuid4().hex
        self._begun = 0
        self._waiting: defaultdict[_Partition, list[pa.RecordBatch]] = defaultdict(list)
        self._bytes: defaultdict[_Partition, int] = defaultdict(int)
        self._open: OrderedDict[_Partition, _OpenFile] = OrderedDict()
        self._done: list[StagedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for partition, rows in self._split(batch):
            self._waiting[partition].append(rows)
            self._bytes[partition] += rows.nbytes
        while sum(self._bytes.values()) >= ROW_GROUP_BYTES:
            self._write(max(self._bytes, key=lambda partition: self._bytes[partition]))

    def finish(self) -> list[StagedFile]:
        for partition in list(self._waiting):
            self._write(partition)
            self._end(partition)
        for partition in list(self._open):
            self._end(partition)
        return self._done

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[_Partition, pa.RecordBatch]]:
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._job.schema, strict=True)
        ]
        columns = dict(zip(self._job.schema.names, arrays, strict=True))
        texts = [_texts(columns[name]) for name in self._job.partitions]
        kept = self._job.file_schema
        rows = pa.RecordBatch.from_arrays([columns[name] for name in kept.names], schema=kept)
        if not rows.num_rows:
            return
        places: defaultdict[_Partition, list[int]] = defaultdict(list)
        for place, values in enumerate(zip(*texts, strict=True) if texts else ()):
            places[values].append(place)
        if len(places) < 2:
            yield next(iter(places), ()), rows
            return
        for partition, indices in places.items():
            yield partition, rows.take(pa.array(indices))

    def _write(self, partition: _Partition) -> None:
        """A row group."""
        batches = self._waiting.pop(partition, [])
        self._bytes.pop(partition, None)
        if not batches:
            return
        file = self._open.get(partition) or self._begin(partition)
        self._open.move_to_end(partition)
        file.write(pa.Table.from_batches(batches))
        if file.size >= FILE_BYTES:
            self._end(partition)

    def _begin(self, partition: _Partition) -> _OpenFile:
        while len(self._open) >= _OPEN_FILES:
            self._end(next(iter(self._open)))
        values = dict(zip(self._job.partitions, partition, strict=True))
        parts = [partition_folder(*one) for one in values.items()] if self._job.in_folders else []
        folder = "/".join((self._job.folder, *parts))
        self._begun += 1
        path = f"{folder}/{self._attempt}-{self._begun:05}.parquet"
        self._storage.prepare([folder])
        file = _OpenFile(path, self._storage.write(path), self._job.file_schema, values)
        self._open[partition] = file
        return file

    def _end(self, partition: _Partition) -> None:
        if partition in self._open:
            self._done.append(self._open.pop(partition).finish())


class _OpenFile:
    def __init__(self, path: str, sink: Sink, schema: pa.Schema, partition: Mapping[str, str | None]) -> None:
        self._path, self._sink, self._schema, self._partition = path, sink, schema, partition
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd", metadata_collector=self._metadata)
        self._rows = 0

    @property
    def size(self) -> int:
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        self._rows += rows.num_rows
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def finish(self) -> StagedFile:
        self._writer.close()
        self._sink.close()
        (metadata,) = self._metadata
        known = statistics(metadata, self._schema)
        return StagedFile(self._path, self._sink.size, self._rows, self._partition, known)


def _texts(column: pa.Array) -> list[str | None]:
    if pt.is_timestamp(column.type):
        return [
            None if value is None else value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
            for value in column.to_pylist()
        ]
    # An empty text is no name of a folder, and null in Delta.
    return [text or None for text in column.cast(pa.string()).to_pylist()]
