from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import SchemaError
from headrace.model.reductions import check_annotations, needs_load, reduce


def annotated(strategy: str, /, key: list[str] | None = None, **keywords: Any) -> dict[str, Any]:
    annotation: dict[str, Any] = {"strategy": strategy}
    if key is not None:
        annotation["key"] = key
    return {"reduce": annotation, **keywords}


def merged(**properties: dict[str, Any]) -> dict[str, Any]:
    return annotated("merge", type="object", properties=properties)


SUM = annotated("sum")


BAD_ANNOTATIONS: dict[str, tuple[Any, str]] = {
    "no object": ({"reduce": "sum"}, '"/reduce" must be an object'),
    "no strategy": ({"reduce": {}}, '"/reduce" has strategy None; known are firstWriteWins,'),
    "unknown strategy": (merged(a=annotated("avg")), "\"/properties/a/reduce\" has strategy 'avg'"),
    "a strategy of another type": ({"reduce": {"strategy": ["sum"]}}, "has strategy"),
    "unknown option": ({"reduce": {"strategy": "merge", "keys": []}}, "`merge` does not take 'keys'"),
    "key for sum": (annotated("sum", key=["/a"]), "`sum` does not take 'key'"),
    "key of no list": ({"reduce": {"strategy": "merge", "key": "/a"}}, "list one or more JSON pointers"),
    "empty key": (annotated("merge", key=[]), "list one or more"),
    "key of no pointers": (annotated("merge", key=["a"]), "list one or more"),
    "key with a stray tilde": (annotated("merge", key=["/a~2"]), "list one or more"),
    "sum of boolean": (
        merged(**{"a/b": annotated("sum", type="boolean")}),
        '"/properties/a~1b/reduce": `sum` does not fit type boolean',
    ),
    "sum of strings": (annotated("sum", type="string"), "needs a decimal format"),
    "sum of some strings": (annotated("sum", type=["integer", "string"], format="decimal"), "type string"),
    "bad decimal": (annotated("sum", type="string", format="decimal(2,3)"), '"/reduce": format'),
    "merge of scalars": (
        annotated("merge", type=["object", "number"]),
        "does not fit type number, only array or object",
    ),
    "append to objects": (annotated("append", type="object"), "does not fit type object"),
    "set as an array": (annotated("set", type="array"), "does not fit type array"),
    "set of arrays without key": (annotated("set", additionalProperties={"type": "array"}), "needs a key"),
    "merge key on objects": (annotated("merge", key=["/a"], type="object"), "is for arrays"),
    "key into scalars": (annotated("minimize", key=["/a"], type=["integer", "null"]), "have no parts"),
    "below additionalProperties": (
        {"additionalProperties": annotated("x")},
        '"/additionalProperties/reduce"',
    ),
    "below items": ({"items": annotated("x")}, '"/items/reduce"'),
    "below positional items": ({"items": [{}, annotated("x")]}, '"/items/1/reduce"'),
    "below prefixItems": ({"prefixItems": [annotated("x")]}, '"/prefixItems/0/reduce"'),
    "in allOf": (
        {"allOf": [{"properties": {"a": SUM}}]},
        '"/allOf/0/properties/a/reduce" would have no effect',
    ),
    "in $defs": ({"$defs": {"n": SUM}}, '"/\\$defs/n/reduce" would have no effect'),
    "keyed tuples": (annotated("merge", key=["/0"], items=[{}]), "share one schema"),
    "a summed key": (annotated("merge", key=["/k"], items=merged(k=SUM)), 'key "/k" is itself reduced'),
    "a summed item as key": (annotated("merge", key=[""], items=SUM), 'key "" is itself reduced'),
    "a merged key": (
        annotated("set", key=["/k"], properties={"add": {"items": merged(k=annotated("merge"))}}),
        "reduced",
    ),
    "a key in a sorted array": (
        annotated("merge", key=["/t/0"], items=merged(t=annotated("merge", key=[""]))),
        "reduced",
    ),
    "schema of another type": ({"items": "x"}, '"/items" must be an object or a boolean'),
    "properties of another type": ({"items": {"properties": None}}, '"/items/properties" must be an object'),
    "type of another type": ({"type": 5}, '"/type" must be'),
}


@pytest.mark.parametrize(("schema", "message"), BAD_ANNOTATIONS.values(), ids=BAD_ANNOTATIONS.keys())
def test_bad_annotation(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_annotations(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"reduce": {"properties": {"strategy": {}}}, "a": True}, "items": False},
        {"default": {"reduce": {"strategy": "x"}}, "allOf": [{"properties": {"reduce": {"type": "string"}}}]},
        annotated("sum", type=["integer", "number", "null"]),
        annotated("sum", type=["string", "null"], format="decimal(9,2)"),
        annotated("merge", key=["/a"], type=["array", "object"], items=merged(a=annotated("maximize"))),
        annotated("merge", key=["/a/b"], items=merged(a=merged(c=SUM))),
        annotated("minimize", key=[""], type="string"),
        annotated("maximize", type="boolean"),
    ],
)
def test_good_annotation(schema: dict[str, Any]) -> None:
    check_annotations(schema)


def test_a_bad_annotation_is_also_refused_in_use() -> None:
    with pytest.raises(SchemaError, match='"/a" has strategy'):
        reduce(merged(a=annotated("avg")), {"a": 1}, {"a": 2})


def test_only_last_write_wins_at_the_root_needs_no_load() -> None:
    assert not needs_load({"properties": {"n": SUM}})
    assert not needs_load(annotated("lastWriteWins"))
    for strategy in ("firstWriteWins", "minimize", "maximize", "sum", "merge", "append", "set"):
        assert needs_load(annotated(strategy))


def test_a_schema_that_is_too_deep_is_an_error_and_no_crash() -> None:
    schema = SUM
    for _ in range(2000):
        schema = merged(a=schema)
    with pytest.raises(SchemaError, match="too deep"):
        check_annotations(schema)
