"""What holds for every schema and every document, not only for the examples."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.reductions import JsonValue, check_annotations, needs_load, reduce, reduce_all
from tests.examples import examples

Documents = st.SearchStrategy[Any]


class Case(NamedTuple):
    """A schema, and a source of documents that fit it."""

    schema: dict[str, Any]
    documents: Documents


# Small domains, so that equal keys, ties and repeated items are common. Floats are quarters, whose sums are
# exact; any others are associative only up to rounding.
INTEGERS = st.integers(-5, 5)
FLOATS = st.integers(-20, 20).map(lambda n: n / 4)
TEXT = st.text("ab~/é\U0001f600", max_size=2)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
DECIMALS = st.from_regex(r"[+-]?0{0,2}[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True, alphabet="+-.0123456789")
DATES = st.dates().map(lambda day: day.isoformat())
DATE_TIMES = st.builds(
    lambda minutes, offset: (
        (datetime(2024, 2, 28, tzinfo=UTC) + timedelta(minutes=minutes))
        .astimezone(timezone(timedelta(minutes=offset)))
        .isoformat()
    ),
    st.integers(0, 4),
    st.integers(-90, 90),
)
NAMES = st.sampled_from(["a", "b", "c/d"])


def leaf(strategy: str, documents: Documents, /, key: list[str] | None = None, **keywords: Any) -> Case:
    annotation: dict[str, Any] = {"strategy": strategy} if key is None else {"strategy": strategy, "key": key}
    # Null is worth trying, but not in every second document.
    return Case({"reduce": annotation, **keywords}, st.one_of(documents, documents, documents, st.none()))


def ordered(strategy: str) -> list[Case]:
    keyed = st.fixed_dictionaries({}, optional={"k": SCALARS, "v": INTEGERS})
    return [
        leaf(strategy, ANY_JSON),
        leaf(strategy, DECIMALS, type=["string", "null"], format="decimal(9,3)"),
        leaf(strategy, DATES, format="date"),
        leaf(strategy, DATE_TIMES, format="date-time"),
        leaf(strategy, keyed, key=["/k"], type=["object", "null"]),
        leaf(strategy, st.lists(INTEGERS, max_size=3), key=["/1", "/0"]),
    ]


LEAVES = st.sampled_from(
    [
        Case({}, ANY_JSON),
        leaf("lastWriteWins", ANY_JSON),
        leaf("firstWriteWins", ANY_JSON),
        *ordered("minimize"),
        *ordered("maximize"),
        leaf("sum", INTEGERS, type=["integer", "null"]),
        leaf("sum", INTEGERS | FLOATS, type=["number", "null"]),
        leaf("sum", DECIMALS, type=["string", "null"], format="decimal"),
        leaf("sum", DECIMALS, type=["string", "null"], format="decimal(20,4)"),
        leaf("append", st.lists(ANY_JSON, max_size=3), type=["array", "null"]),
    ]
)


def set_updates(terms: Documents) -> Documents:
    """Updates with at most one of `intersect` and `remove`."""
    limits = st.sampled_from([None, "intersect", "remove"])
    return st.builds(
        lambda added, limit, limiting: {
            **({} if added is None else {"add": added}),
            **({} if limit is None else {limit: limiting}),
        },
        st.none() | terms,
        limits,
        terms,
    )


def merged_object(inner: dict[str, Case]) -> Case:
    documents = st.fixed_dictionaries({}, optional={name: case.documents for name, case in inner.items()})
    properties = {name: case.schema for name, case in inner.items()}
    return leaf("merge", documents, type=["object", "null"], properties=properties)


def merged_map(inner: Case) -> Case:
    return leaf(
        "merge", st.dictionaries(NAMES, inner.documents, max_size=3), additionalProperties=inner.schema
    )


def merged_list(inner: Case) -> Case:
    return leaf("merge", st.lists(inner.documents, max_size=3), type=["array", "null"], items=inner.schema)


def keyed_item(inner: Case) -> Case:
    schema = {"reduce": {"strategy": "merge"}, "properties": {"v": inner.schema}}
    return Case(schema, st.fixed_dictionaries({}, optional={"k": SCALARS, "v": inner.documents}))


def merged_by_key(inner: Case) -> Case:
    item = keyed_item(inner)
    return leaf("merge", st.lists(item.documents, max_size=4), key=["/k"], items=item.schema)


def set_by_name(inner: Case) -> Case:
    terms = st.dictionaries(NAMES, inner.documents, max_size=3)
    return leaf(
        "set",
        set_updates(terms),
        type=["object", "null"],
        additionalProperties={"additionalProperties": inner.schema},
    )


def set_by_key(inner: Case) -> Case:
    item = keyed_item(inner)
    terms = st.lists(item.documents, max_size=3)
    return leaf("set", set_updates(terms), key=["/k"], properties={"add": {"items": item.schema}})


def composed(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.one_of(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(merged_object),
        inner.map(merged_map),
        inner.map(merged_list),
        inner.map(merged_by_key),
        inner.map(set_by_name),
        inner.map(set_by_key),
    )


# `st.recursive` alone would hardly ever stop at a leaf.
CASES = LEAVES | composed(LEAVES) | st.recursive(LEAVES, composed, max_leaves=4)


def same(left: object, right: object) -> bool:
    """Equal to the letter: in Python `1 == 1.0 == True`."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def reduce_grouped(data: st.DataObject, schema: dict[str, Any], documents: list[JsonValue]) -> JsonValue:
    """The documents in their order, but combined in some random grouping."""
    if len(documents) == 1:
        return documents[0]
    split = data.draw(st.integers(1, len(documents) - 1), label="split")
    return reduce(
        schema,
        reduce_grouped(data, schema, documents[:split]),
        reduce_grouped(data, schema, documents[split:]),
    )


@examples(4)
@given(CASES, st.data())
def test_every_grouping_gives_the_same_document(case: Case, data: st.DataObject) -> None:
    check_annotations(case.schema)
    documents = data.draw(st.lists(case.documents, min_size=2, max_size=6), label="documents")
    assert same(reduce_grouped(data, case.schema, documents), reduce_all(case.schema, documents))


@given(CASES, st.data())
def test_both_groupings_of_three_are_the_same(case: Case, data: st.DataObject) -> None:
    one, two, three = (data.draw(case.documents) for _ in range(3))
    left_first = reduce(case.schema, reduce(case.schema, one, two), three)
    assert same(left_first, reduce(case.schema, one, reduce(case.schema, two, three)))


@given(CASES, st.data())
def test_arguments_stay_as_they_are(case: Case, data: st.DataObject) -> None:
    left, right = data.draw(case.documents), data.draw(case.documents)
    before = copy.deepcopy((left, right))
    reduce(case.schema, left, right)
    assert same([left, right], list(before))


@given(CASES, st.data())
def test_null_is_no_value_unless_a_write_wins(case: Case, data: st.DataObject) -> None:
    document = data.draw(case.documents)
    strategy = case.schema.get("reduce", {}).get("strategy", "lastWriteWins")
    null_first, null_last = reduce(case.schema, None, document), reduce(case.schema, document, None)
    assert same(null_first, None if strategy == "firstWriteWins" else document)
    assert same(null_last, None if strategy == "lastWriteWins" else document)


@given(CASES, st.data())
def test_a_missing_member_changes_nothing(case: Case, data: st.DataObject) -> None:
    parent = {"reduce": {"strategy": "merge"}, "properties": {"a": case.schema}}
    document = {"a": data.draw(case.documents)}
    assert same(reduce(parent, {}, document), document)
    assert same(reduce(parent, document, {}), document)


@given(CASES, st.booleans(), st.data())
def test_what_needs_no_load_ignores_the_stored_document(
    case: Case, explicit: bool, data: st.DataObject
) -> None:
    schema = {name: value for name, value in case.schema.items() if name != "reduce"}
    if explicit:
        schema["reduce"] = {"strategy": "lastWriteWins"}
    stored, written = data.draw(case.documents), data.draw(case.documents)
    assert not needs_load(schema)
    assert same(reduce(schema, stored, written), written)


@given(st.lists(ANY_JSON, min_size=1, max_size=6))
def test_the_first_and_the_last_write_win(documents: list[JsonValue]) -> None:
    assert same(reduce_all({"reduce": {"strategy": "firstWriteWins"}}, documents), documents[0])
    assert same(reduce_all({"reduce": {"strategy": "lastWriteWins"}}, documents), documents[-1])
    assert same(reduce_all({}, documents), documents[-1])


def rank(value: JsonValue) -> int:
    if value is None or isinstance(value, bool):
        return [None, False, True].index(value)
    ranks: dict[type, int] = {int: 3, float: 3, str: 4, list: 5, dict: 6}
    return ranks[type(value)]


def precedes(left: Any, right: Any) -> bool:
    """The documented total order, once more and written another way."""
    if rank(left) != rank(right):
        return rank(left) < rank(right)
    if isinstance(left, dict):
        return precedes(
            [part for member in sorted(left.items(), key=lambda member: member[0]) for part in member],
            [part for member in sorted(right.items(), key=lambda member: member[0]) for part in member],
        )
    if isinstance(left, list):
        for one, other in zip(left, right, strict=False):
            if precedes(one, other) or precedes(other, one):
                return precedes(one, other)
        return len(left) < len(right)
    return rank(left) > 2 and bool(left < right)


@given(st.lists(ANY_JSON.filter(lambda value: value is not None), min_size=1, max_size=6))
def test_minimize_and_maximize_follow_the_documented_order(documents: list[JsonValue]) -> None:
    smallest = reduce_all({"reduce": {"strategy": "minimize"}}, documents)
    largest = reduce_all({"reduce": {"strategy": "maximize"}}, documents)
    firsts = [d for d in documents if not any(precedes(other, d) for other in documents)]
    lasts = [d for d in documents if not any(precedes(d, other) for other in documents)]
    assert same(smallest, firsts[0])
    assert same(largest, lasts[0])


@given(st.lists(set_updates(st.dictionaries(NAMES, INTEGERS, max_size=3)), min_size=1, max_size=6), st.data())
def test_a_set_is_what_its_updates_do_one_by_one(updates: list[dict[str, Any]], data: st.DataObject) -> None:
    state: dict[str, int] = {}
    for update in updates:
        for name in list(state):
            if name in update.get("remove", {}) or name not in update.get("intersect", state):
                del state[name]
        for name, amount in update.get("add", {}).items():
            state[name] = state.get(name, 0) + amount
    schema = {
        "reduce": {"strategy": "set"},
        "additionalProperties": {"additionalProperties": {"reduce": {"strategy": "sum"}}},
    }
    result = reduce_grouped(data, schema, list(updates))
    assert isinstance(result, dict)
    assert same(result.get("add", {}), state)


@given(st.lists(st.lists(st.tuples(INTEGERS, INTEGERS).map(list), max_size=4), min_size=2, max_size=5))
def test_merge_by_key_totals_each_key_and_sorts(documents: list[Any]) -> None:
    totals: dict[int, int] = {}
    for key, amount in (pair for document in documents for pair in document):
        totals[key] = totals.get(key, 0) + amount
    item = {"reduce": {"strategy": "merge"}, "prefixItems": [{}, {"reduce": {"strategy": "sum"}}]}
    schema = {"reduce": {"strategy": "merge", "key": ["/0"]}, "items": item}
    assert reduce_all(schema, documents) == [[key, totals[key]] for key in sorted(totals)]
