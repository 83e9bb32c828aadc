"""The reducer against the reference: by columns where they tell all, and one by one where they do not."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.errors import ReductionError, SchemaError
from headrace.model.collections import Collection
from headrace.model.columns import extract
from headrace.model.json_order import order_key
from headrace.model.materializations import Binding
from headrace.model.reductions import reduce
from headrace.pipeline.shards.reduce import Reducer
from tests.pipeline.random_documents import (
    PARTS,
    Document,
    documents_of,
    every_strategy,
    looked_into,
    some_strategies,
    without_json,
)

MERGE = {"reduce": {"strategy": "merge"}}
ROOTS = [{}, MERGE, {"reduce": {"strategy": "firstWriteWins"}}]

# A smaller seed is not a simpler example, so nothing is to be had from shrinking.
many = settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
seeds = st.integers(0, 2**32)


def texts(documents: list[Document]) -> pa.StringArray:
    return pa.array([orjson.dumps(document).decode() for document in documents], pa.string())


def check(collection: Collection, stored: pa.StringArray, written: pa.StringArray) -> None:
    values_there = tuple(field for field in collection.fields if field not in collection.key_fields)
    binding = Binding(collection, {}, ("table",), values=values_there)
    values, documents = Reducer(binding).reduce(stored, written)
    pairs = zip(stored.to_pylist(), written.to_pylist(), strict=True)
    wanted = [reduce(collection.schema, orjson.loads(left), orjson.loads(right)) for left, right in pairs]
    assert [order_key(orjson.loads(text)) for text in documents.to_pylist()] == [*map(order_key, wanted)]
    assert values.equals(extract(binding.values, wanted))
    assert documents.type == pa.string()


@pytest.fixture
def only_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where a batch is reduced one by one."""

    def refuse(*_: object) -> None:
        raise AssertionError("reduced one by one")

    monkeypatch.setattr(Reducer, "_by_rows", refuse)


@pytest.fixture
def only_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were reduced one by one."""
    counted: list[int] = []
    by_rows = Reducer._by_rows

    def count(self: Reducer, stored: pa.StringArray, documents: pa.StringArray) -> Any:
        counted.append(len(stored))
        return by_rows(self, stored, documents)

    monkeypatch.setattr(Reducer, "_by_rows", count)
    return counted


@many
@given(seed=seeds)
def test_random_documents(seed: int) -> None:
    random = Random(seed)
    collection = random.choice(
        [
            every_strategy(seed % PARTS),
            some_strategies(random, random.choice(ROOTS)),
            some_strategies(random, random.choice(ROOTS)),
            looked_into(random.choice([MERGE, {"reduce": {"strategy": "minimize", "key": ["/id"]}}])),
        ]
    )
    stored, written = (documents_of(random, collection, 50, 4) for _ in range(2))
    nulls = random.random() < 0.3  # which only a document from elsewhere can have
    for document in stored if nulls else []:
        name = random.choice(list(collection.schema["properties"]))
        if name not in ("id", "at"):
            document[name] = None
    # Slices, as a task makes of what a connector answers.
    check(collection, texts([{}, *stored])[1:], texts([{}, {}, *written])[2:])


@settings(many, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=seeds)
@pytest.mark.usefixtures("only_columns")
def test_random_documents_by_columns(seed: int) -> None:
    random = Random(seed)
    collection = random.choice([without_json(random), every_strategy(seed % PARTS)])
    stored, written = (
        [_exact(document) for document in documents_of(random, collection, 50, 4)] for _ in range(2)
    )
    check(collection, texts(stored), texts(written))


def _exact(document: Document) -> Document:
    """Without what columns cannot tell, or seem not to: nulls, and floats that might be integers."""
    return {
        name: value
        for name, value in document.items()
        if value not in (None, ":null") and not (isinstance(value, float) and abs(value) >= 2**53)
    }


def v(value: Any) -> str:
    return orjson.dumps({"id": 1, "v": value}).decode()


def merged(**properties: Document) -> Collection:
    schema = {"type": "object", "required": ["id"], "reduce": {"strategy": "merge"}}
    return Collection("things", ("/id",), schema | {"properties": {"id": {"type": "integer"}, **properties}})


def reduced(strategy: str, **schema: Any) -> Document:
    return {**schema, "reduce": {"strategy": strategy}}


INTEGER = reduced("sum", type="integer")
NUMBER = reduced("sum", type="number")
LOG = reduced("append", type="array")
AT = {"type": "string", "format": "date-time"}
PAID = {"type": "string", "format": "decimal(6,2)"}
SUM_PAID = reduced("sum", **PAID)
LATEST, EARLIEST = (reduced(strategy, **AT) for strategy in ("maximize", "minimize"))
WIDE = {"type": "string", "format": "decimal(38,20)"}


@pytest.mark.usefixtures("only_columns")
@pytest.mark.parametrize(
    ("schema", "left", "right", "result"),
    [
        (INTEGER, "9223372036854775806", "1", "9223372036854775807"),
        (NUMBER, "0.5", "-2", "-1.5"),
        (NUMBER, "-0.0", "-0.0", "0"),
        (SUM_PAID, '"1.5"', '"2"', '"3.50"'),
        (SUM_PAID, '"-1.5"', '"1.50"', '"0.00"'),
        (SUM_PAID, '"1.5"', None, '"1.5"'),
        (reduced("sum", **WIDE), '"0.00000000000000000001"', '"0"', '"0.00000000000000000001"'),
        (reduced("minimize", type="string"), '"\\uffff"', '"\\ud83d\\ude00"', '"\\uffff"'),
        (reduced("maximize", type="boolean"), "false", "true", "true"),
        (reduced("maximize", **PAID), '"9.5"', '"10.25"', '"10.25"'),
        (reduced("maximize", **PAID), '"1.5"', '"1.50"', '"1.5"'),
        (EARLIEST, '"1969-12-31T23:59:59.9Z"', '"1969-12-31T23:59:58Z"', '"1969-12-31T23:59:58Z"'),
        (EARLIEST, '"2024-05-01T08:00:00.10Z"', '"2024-05-01T08:00:00.1Z"', '"2024-05-01T08:00:00.10Z"'),
        ({"type": "string"}, '"a"', '"\\u0000\\n\\"\\\\ null"', '"\\u0000\\n\\"\\\\ null"'),
        ({"type": "string"}, '"kept"', None, '"kept"'),
        (reduced("firstWriteWins", type="string"), None, '"then"', '"then"'),
        (LOG, "[ 1, 2 ]", '[ "]" ]', '[1,2,"]"]'),
        (LOG, "[]", "[{}]", "[{}]"),
        (LOG, "[1]", "[]", "[1]"),
        (LOG, "[]", "[]", "[]"),
        (reduced("append"), '"alone"', None, '"alone"'),
        ({"type": "object"}, '{"a":null}', "{}", "{}"),
    ],
)  # fmt: skip
def test_reduced_by_columns(schema: Document, left: str | None, right: str | None, result: str) -> None:
    collection = merged(v=schema)
    stored, written = (
        pa.array([f'{{"id": 1, "v" : {value}}}' if value is not None else '{"id":1}'], pa.string())
        for value in (left, right)
    )
    check(collection, stored, written)
    _, documents = Reducer(Binding(collection, {}, ("t",), values=collection.fields)).reduce(stored, written)
    assert orjson.loads(documents[0].as_py()) == {"id": 1, "v": orjson.loads(result)}


@pytest.mark.parametrize(
    ("schema", "left", "right"),
    [
        pytest.param({"type": "string"}, '{"id":1,"v":"a"}', '{"id":1,"v":null}', id="null"),
        pytest.param({"type": "string"}, '{"id":1,"v":"a"}', '{"id":1,"v" :\n null }', id="null with blanks"),
        pytest.param(INTEGER, '{"id":1,"v":null}', '{"id":1,"v":2}', id="null in a sum"),
        pytest.param({}, '{"id":1,"v":null}', '{"id":1}', id="null in JSON"),
        pytest.param({"type": "string"}, '{"id":1,"w":"a"}', '{"id":1}', id="unknown member"),
        pytest.param({}, '{"id":1,"w":"a"}', '{"id":1}', id="unknown member beside JSON"),
        pytest.param(INTEGER, '{"id":1,"v":1.0}', '{"id":1,"v":2}', id="1.0 as integer"),
        pytest.param(NUMBER, '{"id":1,"v":9007199254740993}', '{"id":1,"v":2}', id="integer no float holds"),
        pytest.param(NUMBER, '{"id":1,"v":1e300}', '{"id":1,"v":2}', id="large float"),
        pytest.param(LATEST, v("2024-05-01T10:00:00+02:00"), v("2024-05-01T09:00:00Z"), id="offset"),
        pytest.param(LATEST, v("2024-05-01t10:00:00z"), v("2024-05-01T09:00:00Z"), id="lower case"),
        pytest.param(LATEST, v("2024-05-01T10:00:00.1234567Z"), v("2024-05-01T10:00:00Z"), id="nanoseconds"),
        pytest.param(SUM_PAID, '{"id":1,"v":"+1.5"}', '{"id":1,"v":"2"}', id="plus sign"),
        pytest.param({"type": "string"}, '{"id":1,"v":"a","v":"b"}', '{"id":1}', id="twice"),
    ],
)  # fmt: skip
def test_what_columns_cannot_tell_goes_to_the_reference(
    only_rows: list[int], schema: Document, left: str, right: str
) -> None:
    check(merged(v=schema), pa.array([left, '{"id":2}']), pa.array([right, '{"id":2}']))
    assert only_rows == [2]


@pytest.mark.parametrize(
    ("schema", "left", "right", "error", "sentence"),
    [
        (INTEGER, 2**63 - 1, 1, ReductionError, 'at "/v": the sum does not fit'),
        (NUMBER, 1.7e308, 1.7e308, ReductionError, 'at "/v": the sum is not a finite number'),
        (SUM_PAID, "9999", "1", ReductionError, 'at "/v": 10000 has more than 4 integer digits'),
        (SUM_PAID, "1.125", "1", ReductionError, 'at "/v": 1.125 has more than 2 fraction digits'),
        (LOG, [1], 2, ReductionError, 'at "/v": `append` cannot take array and integer'),
        (LATEST, "2024-02-30T00:00:00Z", "2024-01-01T00:00:00Z", ReductionError, 'at "/v": day is out'),
        (AT, "2024-01-01T00:00:00Z", "0000-01-01T00:00:00Z", SchemaError, "field 'v' is date-time"),
        ({"type": "integer"}, 1, 1.5, SchemaError, "field 'v' is integer, and 1.5 is not one"),
        (PAID, "1", "10000", SchemaError, "field 'v' is decimal"),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_reference(
    schema: Document, left: Any, right: Any, error: type[Exception], sentence: str
) -> None:
    collection = merged(v=schema)
    reducer = Reducer(Binding(collection, {}, ("t",), values=collection.fields))
    with pytest.raises(error) as raised:
        reducer.reduce(texts([{"id": 1, "v": left}]), texts([{"id": 1, "v": right}]))
    assert str(raised.value).startswith(sentence)


def test_members_that_only_additional_properties_describe() -> None:
    schema = {**merged().schema, "additionalProperties": reduced("sum")}
    collection = Collection("things", ("/id",), schema)
    check(collection, texts([{"id": 1, "a": 1}]), texts([{"id": 1, "a": 2, "b": 3}]))


def test_rows_are_never_mistaken_for_each_other() -> None:
    collection = merged(v={"type": "string"})
    reducer = Reducer(Binding(collection, {}, ("t",), values=collection.fields))
    with pytest.raises(orjson.JSONDecodeError):
        reducer.reduce(pa.array(['{"id":1}{"id":2}', ""]), texts([{"id": 1}, {"id": 2}]))


def test_a_required_value_that_is_missing_is_refused() -> None:
    collection = merged(v={"type": "string"})
    schema = {**collection.schema, "required": ["id", "v"]}
    collection = Collection("things", ("/id",), schema)
    reducer = Reducer(Binding(collection, {}, ("t",), values=collection.fields))
    with pytest.raises(SchemaError, match="field 'v' is required"):
        reducer.reduce(texts([{"id": 1}]), texts([{"id": 1}]))


def test_no_rows_and_no_values() -> None:
    collection = merged(v={"type": "string"})
    nothing = pa.array([], pa.string())
    values, documents = Reducer(Binding(collection, {}, ("t",), values=collection.fields)).reduce(
        nothing, nothing
    )
    assert values.num_rows == len(documents) == 0
    assert values.schema == Binding(collection, {}, ("t",), values=collection.fields).value_schema
    values, documents = Reducer(Binding(collection, {}, ("t",))).reduce(*[texts([{"id": 1}])] * 2)
    assert (values.num_columns, documents.to_pylist()) == (0, ['{"id":1}'])


def test_one_odd_batch_does_not_slow_down_the_next(only_rows: list[int]) -> None:
    collection = merged(v={"type": "string"})
    reducer = Reducer(Binding(collection, {}, ("t",), values=collection.fields))
    plain = texts([{"id": 1, "v": "a"}])
    for batch in (plain, texts([{"id": 1, "v": None}] * 3), plain):
        reducer.reduce(batch, batch)
    assert only_rows == [3]
