"""What combining means, by example; `test_combine_properties` holds it against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.model.collections import Collection
from headrace.model.json_order import order_key
from headrace.model.reductions import reduce_all
from headrace.pipeline.combine.combiner import combiner, runs_in_jvm
from headrace.pipeline.combine.workers import Groups
from tests.pipeline.random_documents import Combined, Document, by_key, expected, frame_of

INT64_MAX = 2**63 - 1


def collection(properties: Document, strategy: str = "merge") -> Collection:
    schema = {
        "type": "object",
        "required": ["id"],
        "reduce": {"strategy": strategy},
        "properties": {"id": {"type": "integer"}, **properties},
    }
    return Collection("things", ("/id",), schema)


def reduced(strategy: str, key: list[str] | None = None, **schema: Any) -> Document:
    return {**schema, "reduce": {"strategy": strategy} | ({"key": key} if key else {})}


def combined(spark: SparkSession, of: Collection, *documents: Document) -> list[Document]:
    """The combined documents by id, each with its count."""
    rows = Combined(combiner(of, of.fields)(frame_of(spark, of, documents)))
    by_id = sorted(rows.rows)
    return [{**orjson.loads(rows.texts[key]), "_count": rows.counts[key]} for key in by_id]


@pytest.fixture(params=["false", "true"], ids=["plain", "ansi"])
def either_dialect(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", before or "false")


@pytest.mark.parametrize(
    ("strategy", "winner"), [("lastWriteWins", {"id": 1, "b": 3}), ("firstWriteWins", {"id": 1, "a": 1})]
)
def test_a_whole_document_wins_with_what_it_lacks(
    spark: SparkSession, strategy: str, winner: Document
) -> None:
    things = collection({"a": {"type": "integer"}, "b": {"type": "integer"}}, strategy)
    documents = [{"id": 1, "a": 1}, {"id": 1, "a": 2, "b": 2}, {"id": 2}, {"id": 1, "b": 3}]
    assert combined(spark, things, *documents) == [winner | {"_count": 3}, {"id": 2, "_count": 1}]


def test_members_merge_each_by_its_own_annotation(spark: SparkSession) -> None:
    things = collection(
        {
            "first": reduced("firstWriteWins", type="string"),
            "last": {"type": "boolean"},
            "least": reduced("minimize", type="string"),
            "most": reduced("maximize", type="string", format="date"),
            "count": reduced("sum", type="integer"),
            "total": reduced("sum", type="number"),
            "paid": reduced("sum", type="string", format="decimal(6,2)"),
            "log": reduced("append", type="array"),
            "never": {"type": "string"},
        }
    )
    documents = [
        {"id": 1, "last": True, "least": "b", "most": "2024-01-02", "count": 1, "total": 0.5, "paid": "1.50"},
        {"id": 1, "first": "x", "last": False, "least": "\uffff", "count": 2, "log": []},
        {
            "id": 1,
            "first": "y",
            "least": "😀",
            "most": "1969-12-31",
            "total": -2.0,
            "paid": "-0.25",
            "log": [1],
        },
        {"id": 1, "least": "c", "log": ["a", None]},
    ]
    assert combined(spark, things, *documents) == [
        {
            "id": 1,
            "first": "x",
            "last": False,
            "least": "b",
            "most": "2024-01-02",
            "count": 3,
            "total": -1.5,
            "paid": "1.25",
            "log": [1, "a", None],
            "_count": 4,
        }
    ]


def test_null_in_json_is_a_value_to_the_last_write_and_none_to_append(spark: SparkSession) -> None:
    things = collection({"last": {}, "first": reduced("firstWriteWins"), "log": reduced("append")})
    documents: list[Document] = [
        {"id": 1, "last": {"a": 1}, "first": None, "log": None},
        {"id": 1, "last": None, "first": [1], "log": "no array, but alone"},
        {"id": 2, "log": None},
        {"id": 3, "log": None},
        {"id": 3, "log": None},
    ]
    assert combined(spark, things, *documents) == [
        {"id": 1, "last": None, "first": None, "log": "no array, but alone", "_count": 2},
        {"id": 2, "log": None, "_count": 1},
        {"id": 3, "log": None, "_count": 2},
    ]
    rows = combiner(things, things.fields)(frame_of(spark, things, documents)).orderBy("_key").collect()
    assert [list(row["_values"]) for row in rows] == [
        [1, None, None, '"no array, but alone"'],
        [2, None, None, None],
        [3, None, None, None],
    ]


def test_append_takes_only_arrays(spark: SparkSession) -> None:
    things = collection({"log": reduced("append")})
    with pytest.raises(Exception, match='at "/log": `append` cannot take what is no array'):
        combined(spark, things, {"id": 1, "log": [1]}, {"id": 1, "log": {}})


def test_integers_sum_to_the_limits_of_64_bits(either_dialect: SparkSession) -> None:
    things = collection({"n": reduced("sum", type="integer")})
    sums = {
        1: [INT64_MAX - 1, 1],
        2: [-INT64_MAX, -1],
        3: [INT64_MAX, 5, -6],
        4: [-1, -1],
        5: [2**32, -1],
        6: [],
    }
    documents = [{"id": key, "n": term} for key, terms in sums.items() for term in terms] + [{"id": 6}]
    found = combined(either_dialect, things, *documents)
    assert [document.get("n") for document in found] == [
        sum(terms) if terms else None for terms in sums.values()
    ]


@pytest.mark.parametrize(
    "terms", [(INT64_MAX, 1), pytest.param((-INT64_MAX - 1,) * 4, marks=pytest.mark.full)]
)
def test_a_sum_beyond_64_bits_is_refused(either_dialect: SparkSession, terms: tuple[int, ...]) -> None:
    things = collection({"a/b": reduced("sum", type="integer")})
    with pytest.raises(Exception, match='at "/a~1b": the sum does not fit a 64-bit integer'):
        combined(either_dialect, things, *({"id": 1, "a/b": term} for term in terms))


def test_a_sum_of_floats_is_finite(spark: SparkSession) -> None:
    things = collection({"x": reduced("sum", type="number")})
    with pytest.raises(Exception, match='at "/x": the sum is not a finite number'):
        combined(spark, things, {"id": 1, "x": 1.7e308}, {"id": 1, "x": 1.7e308})


def test_no_document_holds_what_is_no_json_number(spark: SparkSession) -> None:
    things = collection({"x": {"type": "number"}})
    with pytest.raises(Exception, match='at "/x": NaN and infinity are no JSON numbers'):
        combined(spark, things, {"id": 1, "x": float("nan")})


def test_decimals_are_exact_and_plain(either_dialect: SparkSession) -> None:
    things = collection(
        {
            "small": reduced("sum", type="string", format="decimal(38,20)"),
            "large": reduced("sum", type="string", format="decimal(38,0)"),
            "none": reduced("sum", type="string", format="decimal(4,2)"),
            "zero": reduced("sum", type="string", format="decimal(10,9)"),
        }
    )
    documents = [
        {"id": 1, "small": "0.00000000000000000001", "large": "9" * 37, "zero": "0.000000001"},
        {"id": 1, "small": "0.00000000000000000002", "large": "-1", "zero": "-0.000000001"},
    ]
    assert combined(either_dialect, things, *documents) == [
        {
            "id": 1,
            "small": "0.00000000000000000003",
            "large": "9" * 36 + "8",
            "zero": "0.000000000",
            "_count": 2,
        }
    ]


@pytest.mark.parametrize(
    ("limits", "terms"),
    [
        ("(6,2)", ["9999.99", "0.01"]),
        ("(38,0)", ["9" * 38, "1"]),
        pytest.param("(30,1)", ["-" + "9" * 29, "-1"], marks=pytest.mark.full),
    ],
)
def test_a_decimal_sum_beyond_its_limits_is_refused(
    either_dialect: SparkSession, limits: str, terms: list[str]
) -> None:
    things = collection({"paid": reduced("sum", type="string", format=f"decimal{limits}")})
    with pytest.raises(Exception, match=r'at "/paid": the sum has more than .* integer digits'):
        combined(either_dialect, things, *({"id": 1, "paid": term} for term in terms))


def test_times_do_not_depend_on_the_session(spark: SparkSession) -> None:
    at: Document = {"type": "string", "format": "date-time"}
    things = collection({"last": at, "least": reduced("minimize", **at)})
    texts = ["1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.000001Z"]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = combined(spark, things, *({"id": 1, "last": text, "least": text} for text in texts))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == [{"id": 1, "last": texts[2], "least": texts[1], "_count": 3}]


def test_a_key_of_all_kinds_groups_by_value(spark: SparkSession) -> None:
    formats = {"day": "date", "at": "date-time", "price": "decimal(8,7)", "name": None}
    properties: Document = {"flag": {"type": "boolean"}, "n": reduced("sum", type="integer")}
    for name, text_format in formats.items():
        properties[name] = {"type": "string"} | ({"format": text_format} if text_format else {})
    key = ["flag", *formats]
    for extra in ({}, {"set": {"type": "object", "reduce": {"strategy": "set"}}}):
        schema = {"type": "object", "required": key, "reduce": {"strategy": "merge"}}
        things = Collection("t", tuple(f"/{k}" for k in key), schema | {"properties": properties | extra})
        one = {"flag": True, "day": "1900-01-01", "at": "1900-01-01T00:00:00.000001Z", "price": "0.0000000"}
        other = one | {"at": "1900-01-01T00:00:00.000002Z"}
        written = [base | {"name": name, "n": 1} for base in (one, other) for name in ('"', "\n", '"')]
        found = Combined(combiner(things, [])(frame_of(spark, things, written)).orderBy("_document"))
        assert sorted(found.counts.values()) == [1, 1, 2, 2]
        assert sorted(document["n"] for document in found.documents) == [1, 1, 2, 2]
        assert {document["price"] for document in found.documents} == {"0.0000000"}


def test_no_rows_and_no_values(spark: SparkSession) -> None:
    for things in (collection({}), collection({"s": {"reduce": {"strategy": "set"}}})):
        empty = combiner(things, [])(frame_of(spark, things, [{"id": 1}]).where("false"))
        assert empty.columns == ["_key", "_values", "_document", "_count"]
        assert empty.count() == 0


def test_both_ways_have_the_same_types(spark: SparkSession) -> None:
    properties = {"s": {"type": "object"}, "d": {"type": "string", "format": "decimal(8,3)"}}
    jvm = collection(properties)
    workers = collection(properties | {"s": {"type": "object", "reduce": {"strategy": "set"}}})
    one, other = (
        combiner(of, of.fields)(frame_of(spark, of, [{"id": 1}])).select(
            F.col("_key.*"), F.col("_values.*"), "_document", "_count"
        )
        for of in (jvm, workers)
    )
    assert one.dtypes == other.dtypes


def test_a_document_may_have_nothing_but_json(spark: SparkSession) -> None:
    at = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    schema = {"type": "object", "required": ["at"], "properties": {"name": {"type": "string"}, "at": at}}
    things = Collection("things", ("/at/n",), schema)
    found = Combined(combiner(things, [])(frame_of(spark, things, [{"at": {"n": 1}}])))
    assert found.documents == [{"at": {"n": 1}}]


OBJECTS = collection(
    {
        "in": reduced(
            "merge",
            type="object",
            properties={
                "n": reduced("sum", type="integer"),
                "paid": reduced("sum", type="string", format="decimal(6,2)"),
                "from": reduced("minimize", type="string", format="date-time"),
                "to": reduced("maximize", type="string", format="date-time"),
                "last": {"type": "string"},
            },
        )
    }
)
# Texts of objects in the order of writing, and what they become.
MERGED: list[tuple[list[str], Any]] = [
    # A null is no value to a sum, unless there is nothing else, and one to the last write.
    (['{"n": null, "last": "a"}', '{"n": 1, "last": null}'], {"n": 1, "last": None}),
    (['{"n": null}', '{"n": null}'], {"n": None}),
    (["null", '{"n": 1}', "null"], {"n": 1}),
    (["null", "null"], None),
    ([" {} ", "{}"], {}),
    # Of members with one name in one object the last counts.
    (['{"n": 1, "n": 2, "x": 1, "x": 2}', '{"n": 3}'], {"n": 5, "x": 2}),
    (['{"n": 1.0}', '{"n": 2e1}'], {"n": 21}),
    (['{"last": "1"}'], {"last": "1"}),
    # No string, though the schema says so; but the last write is taken as it is.
    (['{"last": "a"}', r'{"last": {"b": ["\"", 1.5]}}'], {"last": {"b": ['"', 1.5]}}),
    # Of equal ones the first is kept, as it is spelled.
    (
        ['{"from": "2024-01-01T01:00:00+01:00"}', '{"from": "2024-01-01T00:00:00Z"}'],
        {"from": "2024-01-01T01:00:00+01:00"},
    ),
    (
        ['{"to": "2024-01-01T01:00:00+01:00"}', '{"to": "2024-01-01T00:00:00Z"}'],
        {"to": "2024-01-01T01:00:00+01:00"},
    ),
    (['{"paid": "+1.5"}'], {"paid": "+1.5"}),
    (['{"paid": "+1.5"}', '{"paid": "1"}'], {"paid": "2.50"}),
    # What the schema does not name is kept, whatever it is.
    (
        [r'{"a\"b": "1", "c": null, "d": [1]}', r'{"a\"b": 1, "e": {"f": "}"}}'],
        {'a"b': 1, "c": None, "d": [1], "e": {"f": "}"}},
    ),
]


def frame_of_texts(spark: SparkSession, groups: list[list[str]]) -> DataFrame:
    rows = [
        ((key,), (place,), key, text) for key, texts in enumerate(groups) for place, text in enumerate(texts)
    ]
    return spark.createDataFrame(
        rows, "_key struct<k0: bigint>, _order struct<place: int>, id bigint, `in` string"
    )


def test_objects_merge_member_by_member(spark: SparkSession) -> None:
    groups = [texts for texts, _ in MERGED]
    rows = combiner(OBJECTS, [])(frame_of_texts(spark, groups)).orderBy("_key").collect()
    assert [orjson.loads(row["_document"])["in"] for row in rows] == [merged for _, merged in MERGED]
    documents = [[{"in": orjson.loads(text)} for text in texts] for texts in groups]
    assert [reduce_all(OBJECTS.schema, group) for group in documents] == [
        {"in": merged} for _, merged in MERGED
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1]", 'at "/in": `merge` cannot take what is no object'),
        pytest.param(
            '{"n": "1"}', 'at "/in/n": `sum` cannot take what is no integer', marks=pytest.mark.full
        ),
        ('{"n": 9223372036854775808}', 'at "/in/n": `sum` cannot take what is no integer'),
        ('{"from": "2024-01-01"}', 'at "/in/from": `minimize` cannot take what is no date-time'),
    ],
)
def test_what_does_not_fit_an_object_is_refused(spark: SparkSession, text: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        combiner(OBJECTS, [])(frame_of_texts(spark, [[text, "{}"]])).collect()


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1000])
def test_workers_see_a_key_across_batches(rows: int) -> None:
    things = collection({"s": reduced("merge", type="array", key=[""])})
    things = Collection(
        "things",
        ("/id", "/name"),
        {**things.schema, "required": ["id", "name"]}
        | {"properties": {**things.schema["properties"], "name": {"type": "string"}}},
    )
    random = Random(rows)
    keys = sorted((random.randrange(5), random.choice("ab")) for _ in range(40))
    written = [{"id": key, "name": name, "s": [random.randrange(9)]} for key, name in keys]
    table = pa.table(
        {
            "k0": [document["id"] for document in written],
            "k1": [document["name"] for document in written],
            "document": [orjson.dumps(document).decode() for document in written],
        }
    )
    batches = Groups(things, []).combine([table.to_batches()[0][:0], *table.to_batches(max_chunksize=rows)])
    found = [row for batch in batches for row in batch.to_pylist()]
    assert {(row["k0"], row["k1"]): order_key(orjson.loads(row["_document"])) for row in found} == expected(
        things, written
    )
    assert [row["_count"] for row in found] == [len(group) for group in by_key(things, written).values()]


def test_workers_name_the_place_of_an_error(spark: SparkSession) -> None:
    things = collection({"in": reduced("merge", type="array", items=reduced("sum", type="integer"))})
    written = [{"id": 1, "in": [INT64_MAX]}, {"id": 1, "in": [1]}]
    with pytest.raises(Exception, match='at "/in/0": the sum does not fit a 64-bit integer'):
        combined(spark, things, *written)


def _inside(member: Document, **more: Any) -> Document:
    """The schema of a member two levels down."""
    return reduced(
        "merge", properties={"a": reduced("merge", type="object", properties={"b": member}, **more)}
    )


@pytest.mark.parametrize(
    ("schema", "in_jvm"),
    [
        ({}, True),
        ({"reduce": {"strategy": "firstWriteWins"}}, True),
        ({"reduce": {"strategy": "maximize", "key": ["/id"]}}, False),
        (reduced("merge", properties={"a": reduced("sum", type="integer")}), True),
        (reduced("merge", properties={"a": reduced("sum", type=["integer", "string"])}), False),
        (reduced("merge", properties={"a": reduced("sum", type="string", format="decimal")}), False),
        (reduced("merge", properties={"a": reduced("maximize", type="string", format="decimal")}), True),
        (reduced("merge", properties={"a": reduced("maximize", type="object")}), False),
        (reduced("merge", properties={"a": reduced("merge", type="object")}), True),
        (reduced("merge", properties={"a": reduced("merge", type=["object", "null"])}), True),
        (reduced("merge", properties={"a": reduced("merge", type=["object", "array"])}), False),
        (reduced("merge", properties={"a": reduced("merge")}), False),
        (_inside(reduced("sum", type="integer")), True),
        (_inside(reduced("merge", type="object", properties={"c": reduced("append")})), True),
        (_inside(reduced("merge", type="object", properties={"c": reduced("set")})), False),
        (_inside(reduced("maximize", type="object")), False),
        (_inside({}, additionalProperties=reduced("firstWriteWins")), True),
        (_inside({}, additionalProperties=reduced("sum", type="integer")), False),
        (reduced("merge", properties={"a": {"type": "array", "items": reduced("sum")}}), True),
        (reduced("merge", properties={"a": True}), True),
    ],
)
def test_what_runs_in_the_jvm(schema: Document, in_jvm: bool) -> None:
    assert runs_in_jvm(Collection("things", ("/id",), schema)) is in_jvm
