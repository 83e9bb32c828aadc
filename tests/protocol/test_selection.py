"""Which fields are stored, by what the connector says of each and what the user asks for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from headrace.errors import ConfigError, ProtocolError, SchemaError
from headrace.model.collections import DOCUMENT_FIELD, Collection
from headrace.protocol.messages import Constraint, ConstraintKind, ValidateBinding, ValidatedBinding
from headrace.protocol.selection import select_fields

REQUIRED, RECOMMENDED, OPTIONAL, FORBIDDEN, INCOMPATIBLE = ConstraintKind
PEOPLE = Collection(
    "people",
    ("/id",),
    {
        "required": ["id"],
        "properties": {"name": {"type": "string"}, "id": {"type": "integer"}, "age": {"type": "integer"}},
    },
)
ASKED = ValidateBinding(PEOPLE, {"table": "people"})


def validated(**kinds: ConstraintKind) -> ValidatedBinding:
    """All is recommended, the key required, unless said otherwise."""
    usual = {"id": REQUIRED, "name": RECOMMENDED, "age": RECOMMENDED, DOCUMENT_FIELD: RECOMMENDED}
    constraints = {name: Constraint(kind, f"{name} is {kind}") for name, kind in {**usual, **kinds}.items()}
    return ValidatedBinding(constraints, ("main", "people"), delta_updates=False)


def names(
    answer: ValidatedBinding, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> list[str]:
    binding = select_fields(ASKED, answer, include, exclude)
    stored = [field.name for field in (*binding.keys, *binding.values)]
    return [*stored, binding.document] if binding.document else stored


def test_a_binding_is_made_of_what_was_asked_and_answered() -> None:
    answer = replace(validated(), delta_updates=True)
    binding = select_fields(ASKED, answer)
    assert binding.collection is PEOPLE
    assert binding.resource == {"table": "people"}
    assert binding.resource_path == ("main", "people")
    assert binding.delta_updates
    assert binding.keys == PEOPLE.key_fields
    assert binding.values == (PEOPLE.field("name"), PEOPLE.field("age"))
    assert binding.document == DOCUMENT_FIELD


# What becomes of a field by what the connector said, for a user who says nothing, includes or excludes it.
CHOICES: dict[ConstraintKind, tuple[bool | str, bool | str, bool | str]] = {
    REQUIRED: (True, True, "cannot be excluded: age is required"),
    RECOMMENDED: (True, True, False),
    OPTIONAL: (False, True, False),
    FORBIDDEN: (False, "cannot be stored: age is forbidden", False),
    INCOMPATIBLE: ("cannot be stored: age is incompatible", "cannot be stored: age is incompatible", False),
}


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (kind, said, expected)
        for kind, choices in CHOICES.items()
        for said, expected in zip(("nothing", "include", "exclude"), choices, strict=True)
    ],
)
@pytest.mark.parametrize("field", ["age", DOCUMENT_FIELD])
def test_a_field_is_stored_as_both_sides_want_it(
    kind: ConstraintKind, said: str, expected: bool | str, field: str
) -> None:
    include = (field,) if said == "include" else ()
    exclude = (field,) if said == "exclude" else ()
    answer = validated(**{field: kind})
    if isinstance(expected, str):
        with pytest.raises(ConfigError) as refused:
            names(answer, include, exclude)
        assert str(refused.value) == (
            f"field {field!r} of collection 'people' {expected.replace('age', field)}"
        )
    else:
        assert (field in names(answer, include, exclude)) == expected
        assert {"id", "name"} <= set(names(answer, include, exclude))


@pytest.mark.parametrize("kind", [RECOMMENDED, OPTIONAL])
def test_a_key_is_always_stored(kind: ConstraintKind) -> None:
    assert names(validated(id=kind)) == ["id", "name", "age", DOCUMENT_FIELD]
    with pytest.raises(ConfigError, match="'id' of collection 'people' cannot be excluded"):
        names(validated(id=kind), exclude=("id",))


@pytest.mark.parametrize("kind", [FORBIDDEN, INCOMPATIBLE])
def test_a_key_that_cannot_be_stored_refuses_the_binding(kind: ConstraintKind) -> None:
    with pytest.raises(ConfigError, match=f"cannot be stored: id is {kind}"):
        names(validated(id=kind))


def test_what_is_included_and_excluded_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="'age' of collection 'people' cannot be excluded: it is also included"
    ):
        names(validated(), include=("age",), exclude=("age",))


@pytest.mark.parametrize("said", ["include", "exclude"])
def test_a_name_that_nothing_has_is_refused(said: str) -> None:
    with pytest.raises(SchemaError, match="has no field 'nane'; it has id, name, age"):
        select_fields(ASKED, validated(), **{said: ("nane",)})


def test_values_keep_the_order_of_the_collection() -> None:
    for order in itertools.permutations(("age", "name")):
        assert names(validated(age=OPTIONAL, name=OPTIONAL), include=order)[1:3] == ["name", "age"]


@pytest.mark.parametrize("missing", ["id", "age", DOCUMENT_FIELD])
def test_a_connector_has_to_say_something_of_every_field(missing: str) -> None:
    answer = validated()
    left = {name: constraint for name, constraint in answer.constraints.items() if name != missing}
    with pytest.raises(ProtocolError, match=f"Validated says nothing of field '{missing}'") as refused:
        select_fields(ASKED, replace(answer, constraints=left))
    assert refused.value.message_name == "Validated"


def test_what_can_be_stored() -> None:
    assert [kind for kind in ConstraintKind if kind.can_be_stored] == [REQUIRED, RECOMMENDED, OPTIONAL]
