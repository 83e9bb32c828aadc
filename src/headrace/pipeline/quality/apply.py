"""Which rows of an epoch are good: each is judged by its binding's rules, counted, and goes one of two ways.

A *frame* is the rows of one binding in one epoch. Beside a column for each property at the root of the
schema it has `_key`, `_order` (a struct; unique in the epoch), `_is_valid` (by the schema), `_invalid` (names
of what is wrong with the row by its schema) and `_raw` (the whole row as it was read, as JSON text).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from headrace.errors import SchemaError, UnexpectedFailure
from headrace.pipeline.quality.problems import field_types
from headrace.pipeline.quality.rules import any_of, check_rules, column, is_wrong
from headrace.pipeline.settings import Action, BindingSettings, KafkaSource, Rule
from headrace.pipeline.shards.ranges import SHARD, shard_of
from headrace.spark.errors import failure_of

__all__ = [
    "Counts",
    "RuleResult",
    "apply_rules",
    "check_rules",
    "counts_rows",
    "drops_rows",
    "split",
    "tag",
]

_EXAMPLE = 200
_MARK = "headrace found an invalid row: "


@dataclass(frozen=True)
class Counts:
    """How many rows of one binding an epoch read, kept and dropped."""

    read: int
    good: int
    dead: int
    failed: Mapping[str, int]
    """Rows that a rule dropped, by its name and by `schema:` with what is wrong; a row may be in several."""
    warned: Mapping[str, int]


@dataclass(frozen=True)
class RuleResult:
    """The rows of an epoch once its rules were applied: the good ones, the dead ones, and their counts."""

    good: tuple[DataFrame, ...]
    """A frame for each binding."""
    dead: DataFrame | None
    """Dead letters of all bindings; None if there are none."""
    counts: tuple[Counts, ...] | None
    """For each binding; None if nothing but `fail` can come of a row, and so nothing was counted."""
    good_by_shard: tuple[int, ...] | None = None
    """Rows of all bindings, if it was asked for and anything was counted."""

    @property
    def dead_count(self) -> int:
        return sum(counts.dead for counts in self.counts or ())


def counts_rows(bindings: Sequence[BindingSettings]) -> bool:
    """Whether anything but an error can come of a row, so that rows have to be counted."""
    return any(binding.rules or binding.invalid is Action.DROP for binding in bindings)


def drops_rows(bindings: Sequence[BindingSettings]) -> bool:
    """Whether a row can become a dead letter."""
    return any(
        binding.invalid is Action.DROP or any(rule.action is Action.DROP for rule in binding.rules)
        for binding in bindings
    )


@contextmanager
def apply_rules(
    source: DataFrame,
    frames: Sequence[DataFrame],
    bindings: Sequence[BindingSettings],
    *,
    materialization: str,
    epoch: int,
    at: datetime,
    shards: int = 0,
) -> Iterator[RuleResult]:
    """Gives the good rows of an epoch's frames, which derive from `source`, for as long as the block runs.

    `source` is kept for the block if it has to be read more than once. `at` is the epoch's time, the same
    when it is replayed. `shards` is how many to count the good rows by; 0 for not at all. Where nothing has
    to be counted no job runs before the block does, and an invalid row fails the job that reads its frame;
    which row it was is looked up then.
    """
    if not counts_rows(bindings):
        try:
            yield RuleResult(tuple(_asserted(frame, index) for index, frame in enumerate(frames)), None, None)
        except Exception as error:
            index = _failed_by(error)
            if index is None:
                raise
            raise _invalid_row(frames[index], bindings[index], epoch) from error
        return
    is_ours = not (source.storageLevel.useMemory or source.storageLevel.useDisk)
    if is_ours:
        source.persist()
    try:
        yield split(frames, bindings, materialization=materialization, epoch=epoch, at=at, shards=shards)
    finally:
        if is_ours:
            source.unpersist()


def tag(frame: DataFrame, binding: BindingSettings) -> DataFrame:
    """The frame with `_failed`, the rules that drop the row or fail the epoch, and `_warned`."""
    fields = field_types(binding.collection)

    def broken(rules: list[Rule]) -> Column:
        names = [F.when(is_wrong(rule, fields), F.lit(rule.name)) for rule in rules]
        return F.array_compact(F.array(*names)) if names else _no_names()

    by_row = [rule for rule in binding.rules if not rule.unique]
    failing = [rule for rule in by_row if rule.action is not Action.WARN]
    warning = [rule for rule in by_row if rule.action is Action.WARN]
    invalid = F.coalesce(F.col("_invalid"), _no_names())
    failed = F.concat(invalid, broken(failing)) if failing else invalid
    tagged = frame.select("*", failed.alias("_failed"), broken(warning).alias("_warned"))
    # Those that warn come last: what another one drops is no first row of theirs.
    for rule in sorted(binding.rules, key=lambda rule: rule.action is Action.WARN):
        if rule.unique:
            into = "_warned" if rule.action is Action.WARN else "_failed"
            named = F.concat(F.col(into), F.array(F.lit(rule.name)))
            tagged = tagged.withColumn(into, F.when(_is_repeated(rule), named).otherwise(F.col(into)))
    return tagged


def _is_repeated(rule: Rule) -> Column:
    """Whether a row that is good so far comes before, with the same values."""
    columns = [column(name) for name in rule.unique]
    has_null = any_of([value.isNull() for value in columns])
    # Rows with a null are never compared; spread out, they do not make one huge partition.
    window = Window.partitionBy(*columns, F.when(has_null, F.xxhash64("_order"))).orderBy("_order", "_raw")
    before = window.rowsBetween(Window.unboundedPreceding, -1)
    return ~has_null & (F.count(F.when(F.size("_failed") == 0, 1)).over(before) > 0)


def _no_names() -> Column:
    return F.array().cast("array<string>")


def split(
    frames: Sequence[DataFrame],
    bindings: Sequence[BindingSettings],
    *,
    materialization: str,
    epoch: int,
    at: datetime,
    shards: int = 0,
) -> RuleResult:
    """Judges and counts an epoch's frames in one action, while `apply_rules` keeps their source."""
    tagged = [tag(frame, binding) for frame, binding in zip(frames, bindings, strict=True)]
    counted = _count(frames, tagged, bindings, shards)
    for index, binding in enumerate(bindings):
        _refuse_failed(tagged[index], binding, [row for row in counted if row["binding"] == index], epoch)
    counts = tuple(_counts(index, binding, counted) for index, binding in enumerate(bindings))
    dead = [
        _dead_letters(tagged[index], binding, index, materialization, epoch, at)
        for index, binding in enumerate(bindings)
        if counts[index].dead
    ]
    # A frame that lost nothing need not be judged again.
    good = tuple(
        rows.filter(F.size("_failed") == 0).drop("_failed", "_warned") if count.dead else frame
        for frame, rows, count in zip(frames, tagged, counts, strict=True)
    )
    by_shard = tuple(_good_of_shard(counted, shard) for shard in range(shards)) if shards else None
    return RuleResult(good, reduce(DataFrame.unionByName, dead) if dead else None, counts, by_shard)


def _count(
    frames: Sequence[DataFrame],
    tagged: Sequence[DataFrame],
    bindings: Sequence[BindingSettings],
    shards: int,
) -> list[Row]:
    """Counts what was read apart from what was judged, so that one can be held against the other."""
    parts = []
    for index, (frame, rows) in enumerate(zip(frames, tagged, strict=True)):
        binding = F.lit(index).alias("binding")
        nothing = [_no_names().alias("failed"), _no_names().alias("warned"), F.lit(False).alias("is_invalid")]
        key = [f"_key.k{number}" for number in range(len(bindings[index].collection.key))]
        shard = F.expr(shard_of(key, shards)) if shards else F.lit(0)
        parts.append(frame.select(binding, F.lit(True).alias("is_read"), *nothing, F.lit(0).alias(SHARD)))
        is_invalid = (~F.col("_is_valid")).alias("is_invalid")
        judged_rows = [F.col("_failed").alias("failed"), F.col("_warned").alias("warned"), is_invalid]
        parts.append(rows.select(binding, F.lit(False).alias("is_read"), *judged_rows, shard.alias(SHARD)))
    together = reduce(DataFrame.union, parts)
    return together.groupBy("binding", "is_read", "failed", "warned", "is_invalid", SHARD).count().collect()


def _good_of_shard(counted: list[Row], shard: int) -> int:
    return sum(
        row["count"] for row in counted if row[SHARD] == shard and not row["is_read"] and not row["failed"]
    )


def _counts(index: int, binding: BindingSettings, counted: list[Row]) -> Counts:
    read = good = dead = 0
    failed: Counter[str] = Counter()
    warned: Counter[str] = Counter()
    for row in counted:
        if row["binding"] != index:
            continue
        number = row["count"]
        if row["is_read"]:
            read += number
            continue
        if row["failed"]:
            dead += number
        else:
            good += number
        failed.update(dict.fromkeys(row["failed"], number))
        warned.update(dict.fromkeys(row["warned"], number))
    if good + dead != read:
        raise UnexpectedFailure(
            f"collection {binding.collection.name!r}: {read} rows were read, and {good} good and {dead} dead "
            "ones came of them: the source gave other rows when it was read again"
        )
    return Counts(read, good, dead, dict(failed), dict(warned))


def _refuse_failed(tagged: DataFrame, binding: BindingSettings, counted: list[Row], epoch: int) -> None:
    of_collection = f"of collection {binding.collection.name!r} in epoch {epoch}"
    if binding.invalid is Action.FAIL:
        count = sum(row["count"] for row in counted if row["is_invalid"])
        if count:
            example = _example(tagged, ~F.col("_is_valid"))
            raise _invalid_error(f"{_rows(count)} {of_collection}", example["_invalid"], example["_raw"])
    for rule in binding.rules:
        count = sum(row["count"] for row in counted if rule.name in row["failed"])
        if rule.action is Action.FAIL and count:
            example = _example(tagged, F.array_contains("_failed", rule.name))
            raise SchemaError(
                f"rule {rule.name!r} fails the epoch: {_rows(count)} {of_collection} break it, such as "
                f"{_shortened(example['_raw'])}: correct what writes them, or let the rule drop or warn"
            )


def _example(tagged: DataFrame, which: Column) -> Row:
    found = tagged.filter(which).select("_order", "_invalid", "_raw").orderBy("_order", "_raw").first()
    if found is None:
        raise UnexpectedFailure("a row that was found is not there any more: the source gave other rows")
    return found


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _shortened(raw: str | None) -> str:
    text = raw or "null"
    return text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 3]}..."


def _invalid_error(which: str, names: Sequence[str], raw: str | None) -> SchemaError:
    why = "the schema is not followed"
    if any(name.startswith("endpoint:") for name in names):
        why = "the endpoint cannot take it"
    elif "encoding" in names:
        why = "it is no text in UTF-8"
    return SchemaError(
        f"{which}: {why} ({', '.join(names)}), such as by {_shortened(raw)}: correct what writes it, or set "
        "invalid to drop"
    )


def _dead_letters(
    tagged: DataFrame, binding: BindingSettings, index: int, materialization: str, epoch: int, at: datetime
) -> DataFrame:
    return tagged.filter(F.size("_failed") > 0).select(
        F.lit(materialization).alias("materialization"),
        F.lit(binding.collection.name).alias("collection"),
        F.lit(index).alias("binding"),
        F.lit(epoch).cast("bigint").alias("epoch"),
        # As text: a moment of Python's goes through the machine's own time zone.
        F.lit(at.astimezone(UTC).isoformat()).cast("timestamp").alias("failed_at"),
        F.col("_failed").alias("rules"),
        F.col("_raw").alias("row"),
        F.to_json(_place(binding)).alias("source"),
    )


def _place(binding: BindingSettings) -> Column:
    """Partition and offset are a place in their topic alone, and bindings may read several."""
    if isinstance(binding.source, KafkaSource):
        return F.struct(F.lit(binding.source.topic).alias("topic"), F.col("_order.*"))
    return F.col("_order")


def _asserted(frame: DataFrame, index: int) -> DataFrame:
    """Lets the job that reads the frame fail at a row that breaks the schema.

    All it says is the number of the binding: Spark compiles neither the names of what is wrong nor the row as
    JSON, nor then the step of the plan in which they are.
    """
    refused = F.raise_error(F.lit(f"{_MARK}{index};")).cast("boolean")
    return frame.filter(F.when(F.col("_is_valid"), F.lit(True)).otherwise(refused))


def _failed_by(error: BaseException) -> int | None:
    """The binding of which `_asserted` found a row, if that is why a job failed.

    A sink in whose job it did says where; that a row is wrong is in the cause.
    """
    for one in (error, error.__cause__):
        _, mark, rest = str(one).partition(_MARK)
        if mark and not isinstance(one, AnalysisException):  # which shows the plan, and nothing has run
            return int(rest.partition(";")[0])
    return None


def _invalid_row(frame: DataFrame, binding: BindingSettings, epoch: int) -> SchemaError:
    which = f"a row of collection {binding.collection.name!r} in epoch {epoch}"
    try:
        example = _example(frame, ~F.col("_is_valid"))
    except Exception as error:  # noqa: BLE001 - there was such a row, whatever comes of looking for it
        why = failure_of(error).message
        return SchemaError(
            f"{which}: the schema is not followed, and the row cannot be shown ({why}): correct what writes "
            "it, or set invalid to drop"
        )
    return _invalid_error(which, example["_invalid"], example["_raw"])
