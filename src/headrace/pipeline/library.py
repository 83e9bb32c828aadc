"""`headrace.materialize`: a DataFrame of somebody's own Spark job into a connector, in their own session."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from headrace.errors import ConfigError, HeadraceError, SchemaError
from headrace.model.collections import Collection, pointer_tokens
from headrace.model.json_order import extend_pointer
from headrace.model.reductions import check_annotations
from headrace.pipeline.dead_letters.sink import make_dead_letter_sink
from headrace.pipeline.guarantee import compile_guarantee, refuse_above
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.plan import plan
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.settings import (
    Action,
    BindingSettings,
    DeadLetterSettings,
    FormatSource,
    Guarantee,
    MaterializationSettings,
    PipelineSettings,
    Rule,
    Trigger,
)
from headrace.pipeline.sources.streams import source_from_dataframe
from headrace.pipeline.state_paths import checkpoint_folder, open_recovery_log
from headrace.spark.errors import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Materializing:
    """A stream that is being materialized, on a thread of its own."""

    def __init__(self, run: Callable[[Materializing], None]) -> None:
        self._pipeline: Pipeline | None = None
        self._stopping = False
        self.progress: EpochProgress | None = None
        """The progress of the last epoch."""
        self.failure: HeadraceError | None = None
        """Why it ended, if it did not end by itself."""
        self._thread = threading.Thread(
            target=self._run, args=(run,), name="headrace-materialize", daemon=True
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended; False if the time was up before. Raises what went wrong."""
        self._thread.join(timeout)
        if self.failure is not None:
            raise self.failure
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Finishes the epoch that is under way, and ends."""
        self._stopping = True
        if self._pipeline is not None:
            self._pipeline.stop()
        self.wait()

    def _run(self, run: Callable[[Materializing], None]) -> None:
        try:
            run(self)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits
            self.failure = failure_of(error)

    def _attach(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        if self._stopping:
            pipeline.stop()


def materialize(
    rows: DataFrame,
    name: str,
    connector: str,
    config: Mapping[str, Any],
    *,
    key: Sequence[str],
    resource: Mapping[str, Any],
    state: str | Path,
    schema: Mapping[str, Any] | None = None,
    reduce: Mapping[str, str] | None = None,
    order_by: Sequence[str] = (),
    shards: int = 1,
    rules: Sequence[Rule] = (),
    invalid: str = Action.FAIL,
    dead_letters: str | Path | None = None,
    interval: float = 0.0,
    available_now: bool = False,
    guarantee: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    connector_address: str = "",
    batch: str | None = None,
    adopt: bool = False,
) -> Materializing | EpochProgress | None:
    """Keeps a view of `rows` in an endpoint, exactly once where the endpoint allows it.

    `rows` is any DataFrame whose columns are the documents' properties. If it streams, this returns at once,
    and the stream runs until it is stopped, or with `available_now` until it has read what is there. If it
    does not, its rows are one epoch, and this returns when that is committed; the same `batch` given again
    right after is not written again, so that a job which was killed can be repeated (the result is None).

    `key` names columns, or has JSON pointers, which begin with a slash. `schema` is the documents' JSON
    schema; without one it is made from the DataFrame's, where `reduce` says by which strategy columns are
    reduced, such as `{"amount": "sum"}`; without both the last write wins, by `order_by`. `state` is the
    folder or URL of the recovery log, which only this materialization of this name may use. `adopt` takes
    over a table that has rows already, or that another one has written; without it, such a one is refused.
    """
    pointers = tuple(column if column.startswith("/") else extend_pointer("", column) for column in key)
    chosen = schema if schema is not None else json_schema_of(rows.schema, pointers, reduce or {})
    if schema is not None and reduce:
        raise ConfigError("give either `schema`, with its annotations, or `reduce`")
    check_annotations(chosen)
    collection = Collection(name, pointers, chosen)
    binding = BindingSettings(
        collection,
        FormatSource(format_of(rows), order_by=tuple(order_by)),
        resource,
        tuple(include),
        tuple(exclude),
        tuple(rules),
        Action(invalid),
    )
    # Whose session it is knows what its workers share; and dead letters that are not found are missed.
    letters = None if dead_letters is None else DeadLetterSettings("parquet", _url(dead_letters), shared=True)
    one = MaterializationSettings(
        name,
        connector,
        config,
        (binding,),
        connector_address,
        shards,
        Trigger(interval, available_now),
        guarantee=Guarantee(guarantee) if guarantee else None,
        dead_letters=letters,
    )
    settings = PipelineSettings((one,), _url(state))
    planned = plan(one)
    refuse_above(one, compile_guarantee(settings, one, planned.validated))
    planned.close()
    opened = source_from_dataframe(rows, collection, tuple(order_by), f"DataFrame {name}")
    spark = rows.sparkSession
    _use_this_python(spark)
    sink = None if letters is None else make_dead_letter_sink(letters, name, spark, None)
    if not rows.isStreaming:
        pipeline = Pipeline(
            spark, one, planned, [opened], open_recovery_log(settings, name), None, sink, adopts=adopt
        )
        return pipeline.run_batch(batch if batch is not None else str(uuid4()))
    if batch is not None:
        raise ConfigError("`batch` is for rows that do not stream")

    def run(materializing: Materializing) -> None:
        def remember(progress: EpochProgress) -> None:
            materializing.progress = progress

        with checkpoint_folder(settings, name) as folder:
            log = open_recovery_log(settings, name)
            pipeline = Pipeline(
                spark, one, planned, [opened], log, folder, sink, adopts=adopt, on_epoch=remember
            )
            materializing._attach(pipeline)
            pipeline.run()

    return Materializing(run)


def _use_this_python(spark: SparkSession) -> None:
    """Workers of this machine would be the first python3 on the PATH, which may have none of our packages."""
    context = spark.sparkContext
    is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if not is_chosen and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _url(place: str | Path) -> str:
    text = str(place)
    return text if "://" in text else Path(text).absolute().as_uri()


_TABLES = {"org.apache.iceberg.": "iceberg", "org.apache.spark.sql.delta.": "delta"}
UNKNOWN = "a stream"


def format_of(rows: DataFrame) -> str:
    """The format of its source, on which a guarantee depends; `batch` for one that does not stream."""
    if not rows.isStreaming:
        return "batch"
    plan: Any = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = {
        _format_of_leaf(leaf)
        for leaf in (leaves.apply(index) for index in range(leaves.size()))
        if leaf.isStreaming()
    }
    return found.pop() if len(found) == 1 else UNKNOWN


def _format_of_leaf(leaf: Any) -> str:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelationV2":
        # One that was read as a table has the table's name for its source's.
        table = leaf.table().getClass().getName()
        source = str(leaf.sourceName()).lower()
        return next((name for package, name in _TABLES.items() if table.startswith(package)), source)
    return str(leaf.dataSource().className()).lower() if kind == "StreamingRelation" else UNKNOWN


_WHOLE_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def json_schema_of(rows: T.StructType, key: Sequence[str], reduce: Mapping[str, str]) -> dict[str, Any]:
    """`reduce` has the strategies of columns; with any, documents are merged; else the last write wins."""
    unknown = [column for column in reduce if column not in rows.names]
    if unknown:
        raise SchemaError(f"`reduce` names {unknown[0]!r}, and the columns are {', '.join(rows.names)}")
    properties: dict[str, Any] = {}
    for field in rows.fields:
        properties[field.name] = _type(field.name, field.dataType)
        if field.name in reduce:
            properties[field.name]["reduce"] = {"strategy": reduce[field.name]}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [pointer_tokens(pointer)[0] for pointer in key]
    if reduce:
        schema["reduce"] = {"strategy": "merge"}
    return schema


def _type(name: str, kind: T.DataType) -> dict[str, Any]:
    match kind:
        case T.BooleanType():
            return {"type": "boolean"}
        case T.FloatType() | T.DoubleType():
            return {"type": "number"}
        case T.StringType():
            return {"type": "string"}
        case T.DateType():
            return {"type": "string", "format": "date"}
        case T.TimestampType() | T.TimestampNTZType():
            return {"type": "string", "format": "date-time"}
        case T.DecimalType():
            return {"type": "string", "format": f"decimal({kind.precision},{kind.scale})"}
        case T.ArrayType():
            return {"type": "array"}
        case T.StructType() | T.MapType():
            return {"type": "object"}
        case _ if isinstance(kind, _WHOLE_NUMBERS):
            return {"type": "integer"}
    raise SchemaError(f"column {name!r} is {kind.simpleString()}, which documents cannot hold: cast it")
