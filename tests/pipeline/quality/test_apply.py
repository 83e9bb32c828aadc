"""Rows of an epoch are judged, counted in one action, and go one of two ways."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import SchemaError, Transient, UnexpectedFailure
from headrace.model.collections import Collection
from headrace.pipeline.dead_letters.store import DeadLetter
from headrace.pipeline.quality import apply
from headrace.pipeline.quality.apply import Counts, RuleResult, apply_rules, split, tag
from headrace.pipeline.settings import Action, BindingSettings, CollectionSource, KafkaSource, Rule
from tests.pipeline.shards.key_hash import key_hash

AT = datetime(2026, 11, 16, 8, 0, 0, 123456, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": "number"},
        "odd `name`. x": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "price": {"type": "string", "format": "decimal(10,2)"},
        "is_paid": {"type": "boolean"},
        "tags": {"type": "array"},
    },
    "required": ["id"],
}
ORDERS = Collection("orders", ("/id",), SCHEMA)
TYPES = dict(
    zip(
        SCHEMA["properties"],
        ["bigint", "double", "string", "date", "timestamp", "decimal(10,2)", "boolean", "string"],
        strict=True,
    )
)
ODD = "odd `name`. x"


def binding_of(
    *rules: Rule, invalid: Action = Action.DROP, collection: Collection = ORDERS
) -> BindingSettings:
    return BindingSettings(collection, CollectionSource("orders"), {}, rules=rules, invalid=invalid)


def frame_of(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    """Values as text, cast to the field's type; `_invalid` is empty unless given."""
    names = [quoted(name) for name in SCHEMA["properties"]]
    text = ", ".join(f"{name} string" for name in names)
    data = [
        {name: value if name == "_invalid" or value is None else str(value) for name, value in row.items()}
        | {"_invalid": row.get("_invalid", []), "_raw": json.dumps(row), "lsn": number}
        for number, row in enumerate(rows)
    ]
    # In the JVM: rows that Python gives are read by a Python worker each time.
    schema = f"array<struct<{text}, lsn: bigint, _invalid: array<string>, _raw: string>>".replace(
        "` s", "`: s"
    )
    parsed = spark.range(1, numPartitions=1).select(
        F.explode(F.from_json(F.lit(json.dumps(data)), schema)).alias("r")
    )
    return parsed.select(
        F.struct(F.col("r.id").cast("bigint").alias("id")).alias("_key"),
        F.struct("r.lsn", F.lit(0).alias("row")).alias("_order"),
        *(F.col(f"r.{quoted(name)}").cast(kind).alias(name) for name, kind in TYPES.items()),
        (F.size("r._invalid") == 0).alias("_is_valid"),
        "r._invalid",
        "r._raw",
    )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def failed_by(spark: SparkSession, rows: Sequence[dict[str, Any]], *rules: Rule) -> list[list[str]]:
    tagged = tag(frame_of(spark, rows), binding_of(*rules))
    return [row["_failed"] for row in tagged.orderBy("_order").collect()]


CHECKS: list[tuple[str, list[Any], Rule, list[int]]] = [
    ("amount", [1, None], Rule("r", not_null=("id", "amount")), [False, True]),
    (
        "amount",
        [-1, 0, 10, 11, None, "NaN"],
        Rule("r", field="amount", minimum=0, maximum=10),
        [1, 0, 0, 1, 0, 1],
    ),
    ("amount", ["NaN", 5], Rule("r", field="amount", minimum=0), [1, 0]),
    ("id", [0, 1, 2, 3], Rule("r", field="id", minimum=0.5, maximum=2.5), [1, 0, 0, 1]),
    ("id", [2**53, 2**53 + 1], Rule("r", field="id", maximum=2**53), [0, 1]),
    ("price", ["0.10", "0.11"], Rule("r", field="price", minimum="0.105"), [1, 0]),
    ("price", ["0.10", "0.11", None], Rule("r", field="price", in_set=("0.1", 7)), [0, 1, 0]),
    ("price", ["19.99", "20.00"], Rule("r", field="price", maximum=19.99), [0, 1]),
    ("day", ["2024-02-29", "2024-03-01"], Rule("r", field="day", maximum="2024-02-29"), [0, 1]),
    ("day", ["0001-01-01", "0001-01-02"], Rule("r", field="day", minimum="0001-01-02"), [1, 0]),
    (
        "at",
        ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000001Z"],
        Rule("r", field="at", maximum="2024-01-01T02:00:00+02:00"),
        [0, 1],
    ),
    ("at", ["2024-01-01T00:00:00Z"], Rule("r", field="at", in_set=(datetime(2024, 1, 1),)), [0]),  # noqa: DTZ001
    (ODD, ["b", "a", "Z", None], Rule("r", field=ODD, minimum="b"), [0, 1, 1, 0]),
    (ODD, ["xab", "ba", "", None], Rule("r", field=ODD, regex="ab$"), [0, 1, 1, 0]),
    (ODD, ["a", "A", None], Rule("r", field=ODD, in_set=("a", None)), [0, 1, 0]),
    ("is_paid", ["true", "false", None], Rule("r", field="is_paid", in_set=(True,)), [0, 1, 0]),
    ("amount", [1, -1, None], Rule("r", expression="amount > 0"), [0, 1, 1]),
    (
        ODD,
        ["a,b", "a,,b"],
        Rule("r", expression="forall(split(`odd ``name``. x`, ','), x -> x != '')"),
        [0, 1],
    ),
]


def test_each_check(spark: SparkSession) -> None:
    """All in one job: each rule is looked for at the rows that are meant for it."""
    rows = [{"id": 1, name: value} for name, values, _, _ in CHECKS for value in values]
    rules = [replace(rule, name=str(number)) for number, (_, _, rule, _) in enumerate(CHECKS)]
    failed = iter(failed_by(spark, rows, *rules))
    for number, (name, values, rule, wrong) in enumerate(CHECKS):
        assert [str(number) in next(failed) for _ in values] == list(map(bool, wrong)), (name, rule)


def test_a_row_has_all_names_and_those_of_its_schema_first(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "amount": -1, "_invalid": ["schema:/day", "schema:/x"]},
        {"id": 2, "amount": 2},
    ]
    rules = [
        Rule("positive", field="amount", minimum=0),
        Rule("small", Action.WARN, field="amount", maximum=-2),
        Rule("dated", Action.FAIL, not_null=("day",)),
    ]
    tagged = tag(frame_of(spark, rows), binding_of(*rules)).orderBy("_order").collect()
    assert [row["_failed"] for row in tagged] == [
        ["schema:/day", "schema:/x", "positive", "dated"],
        ["dated"],
    ]
    assert [row["_warned"] for row in tagged] == [["small"], ["small"]]


def test_without_rules_the_schema_alone_speaks(spark: SparkSession) -> None:
    assert failed_by(spark, [{"id": 1, "_invalid": ["schema:/id"]}, {"id": 2}]) == [["schema:/id"], []]


def test_unique_keeps_the_first_by_order_that_is_good(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "amount": -1},  # no first row, since it is dropped
        {"id": 1, "amount": 1},
        {"id": 1, "amount": 2},
        {"id": 1, "amount": -2},
        {"id": 2, "amount": 1, "_invalid": ["schema:/x"]},
        {"id": 2, "amount": 1},
        {"id": 3, "amount": None},
        {"id": 3, "amount": None},
    ]
    rules = [Rule("once", unique=("id",)), Rule("positive", field="amount", minimum=0)]
    assert failed_by(spark, rows, *rules) == [
        ["positive"],
        [],
        ["once"],
        ["positive", "once"],
        ["schema:/x"],
        [],
        [],
        ["once"],
    ]


def test_a_null_is_never_a_repetition(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "amount": None},
        {"id": 1, "amount": None},
        {"id": 1, "amount": 1},
        {"id": 1, "amount": 1},
    ]
    assert failed_by(spark, rows, Rule("once", unique=("id", "amount"))) == [[], [], [], ["once"]]


def test_unique_that_warns_counts_only_rows_that_go_on(spark: SparkSession) -> None:
    rows = [{"id": 1, "amount": 1}, {"id": 1, "amount": 2}, {"id": 2, "amount": 2}, {"id": 3, "amount": 2}]
    rules = [Rule("seen", Action.WARN, unique=("amount",)), Rule("once", unique=("id",))]
    tagged = tag(frame_of(spark, rows), binding_of(*rules)).orderBy("_order").collect()
    assert [row["_failed"] for row in tagged] == [[], ["once"], [], []]
    assert [row["_warned"] for row in tagged] == [[], [], [], ["seen"]]


def split_of(frames: list[DataFrame], bindings: list[BindingSettings]) -> RuleResult:
    return split(frames, bindings, materialization="view", epoch=12, at=AT)


OTHER = Collection("others", ("/id",), SCHEMA)


def test_good_rows_are_counted_by_shard(spark: SparkSession) -> None:
    rows = [{"id": number, "amount": number % 3 - 1} for number in range(40)]
    bindings = [binding_of(Rule("positive", field="amount", minimum=0)), binding_of(collection=OTHER)]
    key = F.struct(F.col("id").alias("k0"))
    frames = [frame_of(spark, some).withColumn("_key", key) for some in (rows, rows[:7])]
    counted = split(frames, bindings, materialization="view", epoch=12, at=AT, shards=4).good_by_shard
    good = [row["id"] for row in rows if row["amount"] >= 0] + [row["id"] for row in rows[:7]]
    expected = Counter(key_hash(OTHER.key_fields, [number]) * 4 >> 32 for number in good)
    assert counted == tuple(expected[shard] for shard in range(4))
    assert split_of(frames, bindings).good_by_shard is None


def test_an_epoch_of_two_bindings_is_split_and_counted(spark: SparkSession) -> None:
    orders = frame_of(
        spark, [{"id": 1, "amount": 1}, {"id": 2, "amount": -1}, {"id": 3, "_invalid": ["schema:/x"]}]
    )
    others = frame_of(spark, [{"id": 4, "amount": 1}, {"id": 5, "amount": 7}])
    bindings = [
        binding_of(Rule("positive", expression="amount > 0"), Rule("r", Action.WARN, not_null=("day",))),
        binding_of(Rule("few", field="amount", maximum=5), collection=OTHER),
    ]
    judged_rows = split_of([orders, others], bindings)
    first, second = judged_rows.counts or ()
    assert (first.read, first.good, first.dead) == (3, 1, 2)
    assert first.failed == {"positive": 2, "schema:/x": 1}
    assert first.warned == {"r": 3}
    assert second == Counts(read=2, good=1, dead=1, failed={"few": 1}, warned={})
    assert [[row["id"] for row in frame.collect()] for frame in judged_rows.good] == [[1], [4]]
    assert [frame.columns for frame in judged_rows.good] == [orders.columns, others.columns]
    assert judged_rows.dead is not None
    dead = sorted(judged_rows.dead.collect(), key=lambda row: json.loads(row["row"])["id"])
    assert dead[0].asDict() == {
        "materialization": "view",
        "collection": "orders",
        "binding": 0,
        "epoch": 12,
        "failed_at": AT.replace(tzinfo=None),
        "rules": ["positive"],
        "row": '{"id": 2, "amount": -1}',
        "source": '{"lsn":1,"row":0}',
    }
    assert [(row["collection"], row["binding"], row["rules"]) for row in dead[1:]] == [
        ("orders", 0, ["schema:/x", "positive"]),
        ("others", 1, ["few"]),
    ]
    assert judged_rows.dead_count == 3


def test_a_dead_letter_names_its_topic(spark: SparkSession) -> None:
    """Or the same row at the same offset of two topics would be one letter."""
    frames = [frame_of(spark, [{"id": 1}])] * 3
    topics = [KafkaSource("a:1", name) for name in ("early", "late", "late")]
    rule = Rule("amount", not_null=("amount",))
    bindings = [replace(binding_of(rule), source=source) for source in topics]
    found = split(frames, bindings, materialization="view", epoch=0, at=AT)
    assert found.dead is not None
    letters = [DeadLetter(**{**row.asDict(), "rules": tuple(row["rules"])}) for row in found.dead.collect()]
    by_binding = {letter.binding: letter for letter in letters}
    assert json.loads(by_binding[0].source) == {"topic": "early", "lsn": 0, "row": 0}
    assert by_binding[0].id != by_binding[1].id
    assert by_binding[1].id == by_binding[2].id, "one message, which is sent once"


def test_an_epoch_without_rows_or_without_dead_ones(spark: SparkSession) -> None:
    binding = binding_of(Rule("r", not_null=("id",)))
    empty, good = frame_of(spark, [{"id": 1}]).limit(0), frame_of(spark, [{"id": 1}])
    judged_rows = split_of([empty, good], [binding, binding])
    assert judged_rows.dead is None
    assert [counts.read for counts in judged_rows.counts or ()] == [0, 1]
    assert judged_rows.good == (empty, good)


def test_a_rule_that_fails_names_itself_the_number_and_an_example(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "amount": 1}, {"id": 2, ODD: "x" * 300}, {"id": 3}]
    binding = binding_of(Rule("paid", Action.FAIL, not_null=("amount",)))
    with pytest.raises(SchemaError) as caught:
        split_of([frame_of(spark, rows)], [binding])
    message = caught.value.message
    assert message.startswith(
        "rule 'paid' fails the epoch: 2 rows of collection 'orders' in epoch 12 break it, "
    )
    example = message.split("such as ")[1].split(": correct what writes them")[0]
    assert example.startswith('{"id": 2')
    assert (len(example), example[-6:]) == (200, "xxx...")


def test_a_row_that_is_invalid_fails_the_epoch_or_is_dropped(spark: SparkSession) -> None:
    frame = frame_of(spark, [{"id": 1}, {"id": 2, "_invalid": ["schema:/amount"]}])
    rule = Rule("r", not_null=("id",))
    with pytest.raises(
        SchemaError, match=r'1 row of collection .orders. in epoch 12: .*\(schema:/amount\).*"id": 2'
    ):
        split_of([frame], [binding_of(rule, invalid=Action.FAIL)])
    assert split_of([frame], [binding_of(rule)]).dead_count == 1


def test_rows_that_are_lost_between_reading_and_judging_are_noticed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tag
    monkeypatch.setattr(apply, "tag", lambda frame, binding: real(frame, binding).limit(1))
    with pytest.raises(UnexpectedFailure, match="'orders': 2 rows were read, and 1 good and 0 dead"):
        split_of([frame_of(spark, [{"id": 1}, {"id": 2}])], [binding_of(Rule("r", not_null=("id",)))])


class Jobs:
    """How many jobs Spark has run, and how often rows were read."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def source(self) -> DataFrame:
        folder = str(self._folder)

        def read(batches: Iterable[Any]) -> Iterable[Any]:
            from uuid import uuid4

            for batch in batches:
                Path(folder, uuid4().hex).touch()
                yield batch

        rows = frame_of(self._spark, [{"id": 1}, {"id": 2, "_invalid": ["schema:/x"]}])
        packed = rows.select(F.struct("*").alias("b0"))
        return packed.mapInArrow(read, packed.schema)

    @property
    def reads(self) -> int:
        return len(list(self._folder.iterdir()))


def test_what_is_split_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    jobs = Jobs(spark, tmp_path)
    source = jobs.source()
    with apply_rules(
        source, [source.select("b0.*")], [binding_of()], materialization="v", epoch=0, at=AT
    ) as judged_rows:
        assert judged_rows.dead is not None
        assert (judged_rows.good[0].count(), judged_rows.dead.count()) == (1, 1)
        assert jobs.reads == 1
    assert not source.storageLevel.useMemory


def test_what_the_caller_keeps_stays_kept(spark: SparkSession) -> None:
    source = frame_of(spark, [{"id": 1}]).persist()
    with apply_rules(source, [source], [binding_of()], materialization="v", epoch=0, at=AT):
        pass
    assert source.storageLevel.useMemory
    source.unpersist()


def test_without_anything_to_count_no_job_runs_and_nothing_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    jobs = Jobs(spark, tmp_path)
    source = jobs.source()
    binding = binding_of(invalid=Action.FAIL)
    with apply_rules(
        source, [source.select("b0.*")], [binding], materialization="v", epoch=0, at=AT
    ) as judged_rows:
        assert (judged_rows.dead, judged_rows.counts, judged_rows.dead_count) == (None, None, 0)
        assert (jobs.reads, source.storageLevel.useMemory) == (0, False)


def test_a_row_that_fails_the_job_which_reads_it_is_shown(spark: SparkSession) -> None:
    valid, invalid = (
        frame_of(spark, [{"id": 1}, {"id": 2, "_invalid": wrong}]) for wrong in ([], ["schema:/x"])
    )
    bindings = [binding_of(invalid=Action.FAIL)] * 2
    message = "a row of collection 'orders' in epoch 7: the schema is not followed (schema:/x), such as by "

    def read() -> None:
        with apply_rules(valid, [valid, invalid], bindings, materialization="v", epoch=7, at=AT) as rows:
            assert rows.good[0].count() == 2
            try:
                rows.good[1].groupBy("_key").count().collect()
            except (PySparkException, Py4JJavaError) as error:
                raise Transient("the sink failed") from error  # as sinks say where it was

    with pytest.raises(SchemaError, match=re.escape(message) + '.*"id": 2') as caught:
        read()
    assert isinstance(caught.value.__cause__, Transient)


def test_an_invalid_row_that_is_gone_when_it_is_looked_for_is_said_to_be(spark: SparkSession) -> None:
    frame = frame_of(spark, [{"id": 1}])
    binding = binding_of(invalid=Action.FAIL)
    with (
        pytest.raises(SchemaError, match=r"in epoch 0: .* cannot be shown \(.* the source gave other rows\)"),
        apply_rules(frame, [frame], [binding], materialization="v", epoch=0, at=AT),
    ):
        raise ValueError(f"{apply._MARK}0;")


@pytest.mark.parametrize(
    "error", [ValueError("something else"), AnalysisException(f"no such table: {apply._MARK}0;")]
)
def test_other_errors_stay_what_they_are(spark: SparkSession, error: Exception) -> None:
    """Also one that shows the plan, in which the error of an invalid row is."""
    frame = frame_of(spark, [{"id": 1}])
    binding = binding_of(invalid=Action.FAIL)
    with (
        pytest.raises(type(error)) as caught,
        apply_rules(frame, [frame], [binding], materialization="v", epoch=0, at=AT),
    ):
        raise error
    assert caught.value is error
