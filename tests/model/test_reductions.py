from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ReductionError
from headrace.model.reductions import JsonValue, check_annotations, reduce, reduce_all

DOCS = Path(__file__).parents[2] / "docs" / "reductions.md"


def annotated(strategy: str, /, key: list[str] | None = None, **keywords: Any) -> dict[str, Any]:
    annotation: dict[str, Any] = {"strategy": strategy}
    if key is not None:
        annotation["key"] = key
    return {"reduce": annotation, **keywords}


def merged(**properties: dict[str, Any]) -> dict[str, Any]:
    return annotated("merge", type="object", properties=properties)


SUM = annotated("sum")
MIN = annotated("minimize")
MAX = annotated("maximize")
SETS_OF_SUMS = annotated("set", type="object", additionalProperties={"additionalProperties": SUM})
SETS_OF_PAIRS = annotated(
    "set",
    key=["/0"],
    additionalProperties={
        "type": "array",
        "reduce": {"strategy": "lastWriteWins"},
        "items": annotated("merge", type="array", items=[{"type": "string"}, SUM]),
    },
)
SETS = annotated("set", key=[""])

EXAMPLES: dict[str, tuple[dict[str, Any], list[JsonValue], JsonValue]] = {
    "last write is the default": ({"properties": {"n": SUM}}, [{"n": 1, "m": 1}, {"n": 2}], {"n": 2}),
    "last write takes null": (annotated("lastWriteWins"), [1, None], None),
    "first write takes null": (annotated("firstWriteWins"), [None, 1, 2], None),
    "first write takes null as a member": (
        merged(a=annotated("firstWriteWins")),
        [{"a": None}, {"a": 1}],
        {"a": None},
    ),
    "first write is the first there": (
        merged(a=annotated("firstWriteWins")),
        [{}, {"a": 1}, {"a": 2}],
        {"a": 1},
    ),
    "min and max": (
        merged(a=MIN, b=MAX),
        [{"a": 32, "b": "abc"}, {"a": 42, "b": "def"}],
        {"a": 32, "b": "def"},
    ),
    "max of null is no value": (MAX, [None, -1, None], -1),
    "min of nulls only": (MIN, [None, None], None),
    "ints and floats compare exactly": (MAX, [2.0**53, 2**53 + 1], 2**53 + 1),
    "equal values keep the first": (MIN, [1, 1.0], 1),
    "equal values keep the first, also at the top": (MAX, [1.0, 1], 1.0),
    "true is not 1": (MAX, [True, 0], 0),
    "strings by code point": (MAX, ["Z", "a", "é"], "é"),
    "kinds: strings over numbers": (MAX, ["", 10**9], ""),
    "kinds: objects over arrays": (MIN, [{}, [[]]], [[]]),
    "arrays lexicographic": (MIN, [[1, 2], [1], [0, 9, 9]], [0, 9, 9]),
    "a prefix is smaller": (MIN, [[1, None], [1]], [1]),
    "objects by sorted members": (MIN, [{"b": 0}, {"a": 2}, {"c": 0, "a": 1}], {"c": 0, "a": 1}),
    "date": (annotated("minimize", format="date"), ["2024-10-02", "2024-09-30"], "2024-09-30"),
    "date-time by instant": (
        annotated("maximize", format="date-time"),
        ["2024-01-01T12:00:00+02:00", "2024-01-01T10:30:00z", "2024-01-01T00:00:00-10:00"],
        "2024-01-01T10:30:00z",
    ),
    "decimal by value": (annotated("maximize", format="decimal(9,2)"), ["9", "10.00", "-11"], "10.00"),
    "other formats are text": (annotated("maximize", format="uuid"), ["9", "10"], "9"),
    "key with several parts": (
        annotated("minimize", key=["/a", "/b/1"]),
        [{"a": 1, "b": [0, 5]}, {"a": 1, "b": [9, 4]}, {"a": 2, "b": [0, 0]}],
        {"a": 1, "b": [9, 4]},
    ),
    "equal keys keep the first and merge nothing": (
        annotated("minimize", key=["/0"], items=[{}, SUM]),
        [["a", 1], ["c", 2], ["b", 3], ["a", 4]],
        ["a", 1],
    ),
    "a missing key comes first": (annotated("minimize", key=["/k"]), [{"k": False}, {"v": 1}], {"v": 1}),
    "a missing key is as null": (annotated("minimize", key=["/k"]), [{"k": None}, {"v": 1}], {"k": None}),
    "the format of a key": (
        annotated("maximize", key=["/at/0"], properties={"at": {"items": {"format": "decimal"}}}),
        [{"at": ["10"]}, {"at": ["9"]}],
        {"at": ["10"]},
    ),
    "pointers are escaped": (annotated("maximize", key=["/a~1b~0"]), [{"a/b~": 1}, {"a/b~": 2}], {"a/b~": 2}),
    "an index beyond the array is missing": (annotated("minimize", key=["/1"]), [[0, 0], [5]], [5]),
    "sum": (SUM, [5, -1.5, None, 1], 4.5),
    "sum stays integer": (SUM, [2**53, 1], 2**53 + 1),
    "sum to the last int64": (SUM, [-(2**63) + 1, -1], -(2**63)),
    "sum of an int and a float is a float": (SUM, [1, 1.0], 2.0),
    "decimal": (annotated("sum", format="decimal"), ["0.1", "0.20", "-3"], "-2.70"),
    "decimal takes the scale": (annotated("sum", format="decimal(38,4)"), ["1", "-1"], "0.0000"),
    "decimal has no minus zero": (annotated("sum", format="decimal"), ["-0.0", "-0"], "0.0"),
    "decimal beyond 28 digits": (
        annotated("sum", format="decimal"),
        ["1" + "0" * 40, "0." + "0" * 39 + "1"],
        "1" + "0" * 40 + "." + "0" * 39 + "1",
    ),
    "decimal carries": (annotated("sum", format="decimal(3,1)"), ["99.8", "+00.1"], "99.9"),
    "merge arrays by index": (annotated("merge", items=SUM), [[1, 1], [2, 2, 2]], [3, 3, 2]),
    "merge by index, last write wins": (annotated("merge"), [[1, 2], [3]], [3, 2]),
    "merge keeps the left tail": (annotated("merge", items=SUM), [[1, 1, 1], [None]], [1, 1, 1]),
    "merge with prefixItems": (
        annotated("merge", prefixItems=[SUM], items=MAX),
        [[1, 5, 2], [1, 4, 3]],
        [2, 5, 3],
    ),
    "merge objects": (
        annotated("merge", additionalProperties=SUM),
        [{"a": 1, "b": 1}, {"a": 1, "c": 1}],
        {"a": 2, "b": 1, "c": 1},
    ),
    "properties come before additionalProperties": (
        annotated("merge", properties={"m": MAX}, additionalProperties=SUM),
        [{"m": 1, "s": 1}, {"m": 2, "s": 2}],
        {"m": 2, "s": 3},
    ),
    "additionalProperties: true": (
        annotated("merge", additionalProperties=True),
        [{"a": 1}, {"a": 2}],
        {"a": 2},
    ),
    "merge deep": (merged(a=merged(b=SUM)), [{"a": {"b": 1}}, {"a": None}, {"a": {"b": 2}}], {"a": {"b": 3}}),
    "no merge, no annotation below": (
        merged(a={"properties": {"b": SUM}}),
        [{"a": {"b": 1}}] * 2,
        {"a": {"b": 1}},
    ),
    "merge by key": (
        annotated("merge", key=["/k"], items=annotated("firstWriteWins")),
        [[{"k": "a", "v": 1}, {"k": "b", "v": 1}], [{"k": "a", "v": 2}, {"k": "c", "v": 2}]],
        [{"k": "a", "v": 1}, {"k": "b", "v": 1}, {"k": "c", "v": 2}],
    ),
    "merge by key sorts and joins what was not": (
        annotated("merge", key=["/k"], items=merged(v=SUM)),
        [[{"k": 2, "v": 1}, {"k": 1, "v": 1}, {"k": 2, "v": 1}], [{"k": 0, "v": 1}, {"k": 2.0, "v": 5}]],
        [{"k": 0, "v": 1}, {"k": 1, "v": 1}, {"k": 2.0, "v": 7}],
    ),
    "merge scalars": (annotated("merge", key=[""]), [["a", "c"], ["b", "c"]], ["a", "b", "c"]),
    "merge by decimal key": (
        annotated("merge", key=[""], items={"format": "decimal"}),
        [["10", "9"], ["9.0"]],
        ["9.0", "10"],
    ),
    "append": (annotated("append"), [[1, 2], None, [3, None, "abc"]], [1, 2, 3, None, "abc"]),
    "set of members": (
        SETS_OF_SUMS,
        [{"add": {"a": 1, "b": 1, "c": 1}}, {"remove": {"b": 0}}, {"add": {"a": 1, "d": 1}}],
        {"add": {"a": 2, "c": 1, "d": 1}, "remove": {"b": 0}},
    ),
    "set of members, intersected": (
        SETS_OF_SUMS,
        [{"add": {"a": 2, "c": 1, "d": 1}}, {"intersect": {"a": 0, "d": 0}}, {"add": {"a": 1, "e": 1}}],
        {"add": {"a": 3, "d": 1, "e": 1}, "intersect": {"a": 0, "d": 0}},
    ),
    "set of items": (
        SETS_OF_PAIRS,
        [{"add": [["a", 1], ["b", 1], ["c", 1]]}, {"remove": [["b", 0]]}, {"add": [["a", 1], ["d", 1]]}],
        {"add": [["a", 2], ["c", 1], ["d", 1]], "remove": [["b", 0]]},
    ),
    "set of items, intersected": (
        SETS_OF_PAIRS,
        [
            {"add": [["a", 2], ["c", 1], ["d", 1]]},
            {"intersect": [["a", 0], ["d", 0]]},
            {"add": [["a", 1], ["e", 1]]},
        ],
        {"add": [["a", 3], ["d", 1], ["e", 1]], "intersect": [["a", 0], ["d", 0]]},
    ),
    "set: removal comes before addition": (
        SETS,
        [{"add": [1, 2]}, {"remove": [1], "add": [1]}],
        {"add": [1, 2], "remove": [1]},
    ),
    "set: a removed item starts anew": (
        SETS_OF_SUMS,
        [{"add": {"a": 5}}, {"remove": {"a": 0}, "add": {"a": 1}}],
        {"add": {"a": 1}, "remove": {"a": 0}},
    ),
    "set: intersect and intersect": (
        SETS,
        [{"intersect": [1, 2]}, {"intersect": [2, 3]}],
        {"intersect": [2]},
    ),
    "set: intersect and remove": (SETS, [{"intersect": [1, 2]}, {"remove": [2, 3]}], {"intersect": [1]}),
    "set: remove and intersect": (SETS, [{"remove": [2, 3]}, {"intersect": [1, 2]}], {"intersect": [1]}),
    "set: remove and remove": (SETS, [{"remove": [2, 3]}, {"remove": [1, 2]}], {"remove": [1, 2, 3]}),
    "set: the first of equal items is kept": (SETS, [{"remove": [1, 1.0]}, {}], {"remove": [1]}),
    "set: an empty intersection empties": (
        SETS,
        [{"add": [1]}, {"intersect": []}],
        {"add": [], "intersect": []},
    ),
    "set: no terms change nothing": (SETS, [{}, {"add": [2, 1, 2]}, {}], {"add": [1, 2]}),
    "set: the left of equal names is kept": (
        annotated("set"),
        [{"remove": {"a": 1}}, {"remove": {"a": 2}}],
        {"remove": {"a": 1}},
    ),
    "set: properties.add holds for keys of all terms": (
        annotated("set", key=[""], properties={"add": {"items": {"format": "decimal"}}}),
        [{"add": ["1.0", "2"]}, {"remove": ["1"]}],
        {"add": ["2"], "remove": ["1"]},
    ),
    "set: null is no update": (SETS, [None, {"add": [1]}, None], {"add": [1]}),
}


@pytest.mark.parametrize(("schema", "documents", "expected"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_example(schema: dict[str, Any], documents: list[JsonValue], expected: JsonValue) -> None:
    check_annotations(schema)
    before = copy.deepcopy(documents)
    result = reduce_all(schema, documents)
    assert json.dumps(result, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert documents == before, "the arguments were changed"


BOOLEANS_AND_NUMBERS: list[JsonValue] = [False, True, -1.5, 0, 2**53, 2**53 + 1]
STRINGS: list[JsonValue] = ["", "Z", "a", "aa", "\uffff", "\U00010000"]
ARRAYS: list[JsonValue] = [[], [None], [None, None], [False], [0], ["a"], [[]]]
OBJECTS: list[JsonValue] = [{}, {"a": None}, {"a": None, "b": 0}, {"a": 0}, {"b": None}]


def test_total_order() -> None:
    smallest_first = [*BOOLEANS_AND_NUMBERS, *STRINGS, *ARRAYS, *OBJECTS]
    for smaller, larger in itertools.combinations(smallest_first, 2):
        assert reduce(MIN, smaller, larger) is reduce(MIN, larger, smaller) is smaller
        assert reduce(MAX, smaller, larger) is reduce(MAX, larger, smaller) is larger


def documented_examples() -> list[tuple[str, list[str], str]]:
    rows = [
        line.strip("| ").split(" | ") for line in DOCS.read_text().splitlines() if line.startswith("| `{")
    ]
    return [
        (schema.strip("`"), documents.strip("`").split("` then `"), result)
        for schema, documents, result in rows
    ]


@pytest.mark.parametrize(("schema", "documents", "expected"), documented_examples())
def test_documented_example(schema: str, documents: list[str], expected: str) -> None:
    parsed = json.loads(schema)
    check_annotations(parsed)
    if expected == "error":
        with pytest.raises(ReductionError):
            reduce_all(parsed, map(json.loads, documents))
    else:
        result = reduce_all(parsed, map(json.loads, documents))
        assert json.dumps(result, sort_keys=True) == json.dumps(
            json.loads(expected.strip("`")), sort_keys=True
        )


def test_documented_examples_are_found() -> None:
    assert len(documented_examples()) > 30


ERRORS: dict[str, tuple[dict[str, Any], JsonValue, JsonValue, str]] = {
    "sum of boolean": (
        merged(**{"a/b": SUM}),
        {"a/b": 1},
        {"a/b": True},
        'at "/a~1b": `sum` .* integer and boolean',
    ),
    "sum of text": (SUM, "1", "2", 'at "": `sum` cannot take string and string'),
    "sum of arrays": (SUM, [1], [2], "array and array"),
    "sum of number and decimal": (annotated("sum", format="decimal"), 1, "1", "integer and string"),
    "sum beyond int64": (merged(n=SUM), {"n": 2**63 - 1}, {"n": 1}, 'at "/n": .* 64-bit'),
    "sum beyond int64, below": (SUM, -(2**63), -1, "64-bit"),
    "sum beyond float64": (SUM, 1.7e308, 1.7e308, "finite"),
    "sum of a float and a huge integer": (SUM, 1.0, 10**400, "finite"),
    "sum of huge integers": (SUM, 10**5000, 1, "64-bit"),
    "sum of no decimal": (annotated("sum", format="decimal"), "1", "1e3", "'1e3' is not a decimal"),
    "sum of NaN": (annotated("sum", format="decimal"), "1", "NaN", "'NaN' is not a decimal"),
    "decimal with too long a fraction": (
        annotated("sum", format="decimal(5,2)"),
        "1.125",
        "1",
        "fraction digits",
    ),
    "right decimal with too long a fraction": (
        annotated("sum", format="decimal(5,2)"),
        "1",
        "0.000",
        "fraction",
    ),
    "decimal that is too large": (
        annotated("sum", format="decimal(5,2)"),
        "1000",
        "-1",
        "more than 3 integer",
    ),
    "decimal sum that is too large": (
        annotated("sum", format="decimal(5,2)"),
        "999.99",
        "0.01",
        "integer digits",
    ),
    "negative decimal sum that is too large": (
        annotated("sum", format="decimal(5,2)"),
        "-999.99",
        "-0.01",
        "integer digits",
    ),
    "append of no array": (annotated("append"), [1], {"a": 1}, "`append` cannot take array and object"),
    "merge of no container": (annotated("merge"), 1, 2, "`merge` cannot take integer and integer"),
    "merge of both kinds": (annotated("merge"), [], {}, "array and object"),
    "error in an item": (annotated("merge", items=SUM), [1, 1], [1, "x"], 'at "/1"'),
    "error in a keyed item": (
        annotated("merge", key=["/k"], items=merged(v=SUM)),
        [{"v": 1}],
        [{"k": 1}, {"v": ""}],
        'at "/1/v"',
    ),
    "no date": (annotated("minimize", format="date"), "2024-01-01", "20240102", "'20240102' is not a date"),
    "no such date": (annotated("minimize", format="date"), "2024-01-01", "2024-02-30", 'at ""'),
    "no offset": (
        annotated("minimize", format="date-time"),
        "2024-01-01T00:00:00",
        "2024-01-01T00:00:00Z",
        "offset",
    ),
    "NaN has no order": (MIN, float("nan"), 1, "NaN is not a JSON number"),
    "set of no object": (SETS, [1], {}, "`set` takes objects, not array"),
    "set with another member": (
        SETS,
        {},
        {"added": [1]},
        'at "/added": a set has the members add, intersect, rem',
    ),
    "set with intersect and remove": (SETS, {}, {"intersect": [], "remove": []}, "not both"),
    "set of scalars": (SETS, {"add": None}, {}, 'at "/add": .* not null'),
    "set of arrays without a key": (annotated("set"), {"add": [1]}, {}, "needs a key"),
    "set of both kinds": (SETS, {"add": [1]}, {"remove": {"a": 1}}, "mixes arrays and objects"),
    "error in a set": (SETS_OF_SUMS, {"add": {"a": 1}}, {"add": {"a": []}}, 'at "/add/a": `sum`'),
}


@pytest.mark.parametrize(("schema", "left", "right", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_error(schema: dict[str, Any], left: JsonValue, right: JsonValue, message: str) -> None:
    check_annotations(schema)
    with pytest.raises(ReductionError, match=message):
        reduce(schema, left, right)


def test_values_that_are_not_json_have_no_order() -> None:
    not_json: Any = b"bytes"
    with pytest.raises(ReductionError, match="bytes is not a JSON type"):
        reduce(MIN, not_json, 1)
    with pytest.raises(ReductionError, match="bytes and integer"):
        reduce(SUM, not_json, 1)


def test_reduce_all_needs_a_document() -> None:
    assert reduce_all(SUM, [7]) == 7
    with pytest.raises(ReductionError, match="no document"):
        reduce_all(SUM, [])


def nested(depth: int, leaf: JsonValue) -> JsonValue:
    for level in range(depth):
        leaf = {"a": leaf} if level % 2 else [leaf]
    return leaf


def test_deep_documents_are_ordered() -> None:
    assert reduce(MIN, nested(500, 2), nested(500, 1)) == nested(500, 1)
    assert reduce({}, nested(5000, 1), 2) == 2


def test_what_is_too_deep_is_an_error_and_no_crash() -> None:
    with pytest.raises(ReductionError, match="too deep"):
        reduce(MIN, nested(5000, 1), nested(5000, 2))
    schema, document = SUM, 1
    for _ in range(2000):
        schema, document = merged(a=schema), {"a": document}  # type: ignore[assignment]
    with pytest.raises(ReductionError, match="too deep"):
        reduce(schema, document, document)
