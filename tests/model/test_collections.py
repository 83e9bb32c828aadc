"""Collections: which fields a schema yields, and which schemas and keys cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError, SchemaError
from headrace.model.collections import DOCUMENT_FIELD, Collection, Field, pointer_tokens, value_at
from headrace.model.field_types import FieldType, Kind
from headrace.model.materializations import Binding, Materialization

INTEGER, STRING, JSON = FieldType(Kind.INTEGER), FieldType(Kind.STRING), FieldType(Kind.JSON)


def collection(*key: str, required: Any = ("id",), **properties: Any) -> Collection:
    return Collection("things", key, {"type": "object", "required": required, "properties": properties})


def test_the_key_comes_first_and_the_rest_as_the_schema_has_it() -> None:
    things = collection(
        "/b",
        "/id",
        required=["id", "b", "z"],
        z={"type": "string"},
        id={"type": "integer"},
        a={"type": ["string", "null"]},
        b={"type": "string"},
    )
    assert things.key_fields == (Field("b", "/b", STRING, True), Field("id", "/id", INTEGER, True))
    assert things.fields == (
        *things.key_fields,
        Field("z", "/z", STRING, True),
        Field("a", "/a", STRING, False),
    )


def test_a_key_may_lie_deep_in_the_document() -> None:
    nested = {"type": "object", "required": ["c/d"], "properties": {"c/d": {"type": "integer"}}}
    things = collection(
        "/a~0b/c~1d",
        required=["a~b"],
        **{"a~b": nested, "x/y": {"type": "string"}, "x~y": {"type": "string"}},
    )
    assert things.key_fields == (Field("a~b/c/d", "/a~0b/c~1d", INTEGER, True),)
    assert [(field.name, field.pointer) for field in things.fields[1:]] == [
        ("a~b", "/a~0b"),
        ("x/y", "/x~1y"),
        ("x~y", "/x~0y"),
    ]


@pytest.mark.parametrize("schema", [True, False, {}, {"type": ["string", "integer"]}])
def test_a_property_may_have_any_schema(schema: Any) -> None:
    things = collection("/id", id={"type": "integer"}, more=schema)
    assert things.field("more").type == JSON


@pytest.mark.parametrize(
    ("things", "problem"),
    [
        (
            collection("/id", id={"type": "number"}),
            "key /id of collection 'things' has type number: a key is an integer, string",
        ),
        (collection("/id", id={"type": "object"}), "has type json"),
        (collection("/id", id=True), "has type json"),
        (
            collection("/id", required=[], id={"type": "integer"}),
            "key /id of collection 'things' can be missing or null: list it under 'required'",
        ),
        (collection("/id", required="id", id={"type": "integer"}), "can be missing or null"),
        (collection("/id", required=None, id={"type": "integer"}), "can be missing or null"),
        (collection("/id", id={"type": ["integer", "null"]}), "can be missing or null"),
        (collection("/id", other={"type": "integer"}), "has no location /id in its schema"),
        (Collection("things", ("/id",), {}), "has no location /id in its schema"),
        (Collection("things", ("/id",), {"properties": []}), "has no location /id in its schema"),
        (collection("/id/more", id={"type": "object"}), "has no location /id/more in its schema"),
        (collection("/id/more", id=True), "has no location /id/more in its schema"),
        (collection("id", id={"type": "integer"}), "'id' is not a JSON pointer to a field"),
        (collection("", id={"type": "integer"}), "'' is not a JSON pointer to a field"),
        (collection("/id", "/id", id={"type": "integer"}), "has two fields 'id'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_that_cannot_be_one_is_refused(things: Collection, problem: str) -> None:
    for attribute in ("key_fields", "fields"):
        with pytest.raises(SchemaError) as refused:
            getattr(things, attribute)
        assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("parent", "required"),
    [
        ({"type": "object", "required": ["id"]}, True),
        ({"type": ["object", "null"], "required": ["id"]}, False),
        ({"required": ["id"]}, False),
        ({"type": "object"}, False),
    ],
)
def test_a_nested_key_is_there_only_if_its_parents_are(parent: dict[str, Any], required: bool) -> None:
    things = collection(
        "/in/id", required=["in"], **{"in": {**parent, "properties": {"id": {"type": "integer"}}}}
    )
    if required:
        assert things.key_fields[0].required
    else:
        with pytest.raises(SchemaError, match="can be missing or null"):
            _ = things.key_fields


def test_a_collection_has_a_key() -> None:
    with pytest.raises(SchemaError, match="collection 'things' has no key"):
        collection(id={"type": "integer"})


def test_a_property_may_not_be_named_as_the_document() -> None:
    things = collection("/id", id={"type": "integer"}, **{DOCUMENT_FIELD: {"type": "string"}})
    with pytest.raises(SchemaError, match="has a property '_document', which is the name of the whole"):
        _ = things.fields


def test_two_fields_may_not_have_one_name() -> None:
    """A key within an object is named with a slash, and so may be a property."""
    things = collection(
        "/a/b",
        required=["a"],
        a={"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}},
        **{"a/b": {"type": "string"}},
    )
    with pytest.raises(SchemaError, match="has two fields 'a/b'"):
        _ = things.fields


def test_a_field_is_found_by_its_name() -> None:
    things = collection("/id", id={"type": "integer"}, a={"type": "string"})
    assert things.field("a") == Field("a", "/a", STRING)
    with pytest.raises(SchemaError, match="collection 'things' has no field 'b'; it has id, a"):
        things.field("b")


# Of RFC 6901, section 5, and the escapes of section 3.
@pytest.mark.parametrize(
    ("pointer", "tokens"),
    [
        ("/foo", ["foo"]),
        ("/foo/0", ["foo", "0"]),
        ("/", [""]),
        ("/a~1b", ["a/b"]),
        ("/c%d", ["c%d"]),
        ("/m~0n", ["m~n"]),
        ("/ ", [" "]),
        ("/~01", ["~1"]),
        ("/a//b", ["a", "", "b"]),
    ],
)
def test_pointers(pointer: str, tokens: list[str]) -> None:
    assert pointer_tokens(pointer) == tokens


@given(st.lists(st.text(alphabet="ab~/01", max_size=4), min_size=1, max_size=3))
def test_a_pointer_reads_as_its_steps_were_escaped(steps: list[str]) -> None:
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    assert pointer_tokens(pointer) == steps


@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        (["a"], {"b": [1]}),
        (["a", "b"], [1]),
        (["a", "b", "0"], None),
        (["x"], None),
        (["n", "x"], None),
        (["z"], 0),
    ],
)
def test_the_value_at_a_pointer(tokens: list[str], value: Any) -> None:
    assert value_at({"a": {"b": [1]}, "n": None, "z": 0}, tokens) == value


@pytest.mark.parametrize("document", [None, 1, "a", [], [{"a": 1}]])
def test_nothing_is_at_a_pointer_of_what_is_no_object(document: Any) -> None:
    assert value_at(document, ["a"]) is None


def test_a_binding_knows_its_columns() -> None:
    things = collection("/id", id={"type": "integer"}, at={"type": "string", "format": "date"})
    binding = Binding(things, {}, ("main", "things"), (things.field("at"),))
    assert str(binding) == "things -> main.things"
    assert binding.key_schema.names == ["id"]
    assert [str(kind) for kind in binding.value_schema.types] == ["date32[day]"]


def test_two_bindings_may_not_go_to_one_place() -> None:
    things = collection("/id", id={"type": "integer"})
    one, other = Binding(things, {}, ("main", "a")), Binding(things, {}, ("main", "b"))
    Materialization("it", "memory", {}, (one, other))
    with pytest.raises(ConfigError, match=r"two bindings of materialization 'it' go to main\.a"):
        Materialization("it", "memory", {}, (one, other, one))


def test_a_materialization_does_not_show_its_secrets() -> None:
    materialization = Materialization("it", "memory", {"password": "hunter2"}, ())
    assert "hunter2" not in f"{materialization!r} {materialization}"
