"""Collections: keyed sets of documents with a JSON schema, and the fields that a schema yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import SchemaError
from headrace.model.field_types import FieldType, type_of_schema

DOCUMENT_FIELD = "_document"
"""The field that holds the whole document; the underscore keeps it clear of a schema's own names."""


@dataclass(frozen=True)
class Field:
    """A location of a document, by JSON pointer, that an endpoint stores as a column."""

    name: str
    pointer: str
    type: FieldType
    required: bool = False
    """Whether the location exists and is not null in every document."""


@dataclass(frozen=True)
class Collection:
    """An append-only set of documents, each identified by the values at its key's pointers."""

    name: str
    key: tuple[str, ...]
    schema: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not self.key:
            raise SchemaError(f"collection {self.name!r} has no key: name at least one pointer, such as /id")

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        fields = tuple(self._field(pointer) for pointer in self.key)
        self._refuse_same_names(fields)
        for field in fields:
            if not field.type.can_be_key:
                raise SchemaError(
                    f"key {field.pointer} of collection {self.name!r} has type {field.type}: "
                    "a key is an integer, string, boolean, date, date-time or decimal"
                )
            if not field.required:
                raise SchemaError(
                    f"key {field.pointer} of collection {self.name!r} can be missing or null: "
                    "list it under 'required' and give it one type"
                )
        return fields

    @cached_property
    def properties(self) -> Mapping[str, Field]:
        """Returns a field for each property at the root of the schema, by its name."""
        return {name: self._field("/" + _escape(name)) for name in _properties(self.schema)}

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Returns the key's fields, then one for each other property at the root of the schema."""
        if DOCUMENT_FIELD in self.properties:
            raise SchemaError(
                f"collection {self.name!r} has a property {DOCUMENT_FIELD!r}, "
                "which is the name of the whole document's field: rename it"
            )
        keys = self.key_fields
        taken = {field.pointer for field in keys}
        fields = keys + tuple(field for field in self.properties.values() if field.pointer not in taken)
        self._refuse_same_names(fields)
        return fields

    def field(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise SchemaError(f"collection {self.name!r} has no field {name!r}; it has {known}")

    def _field(self, pointer: str) -> Field:
        location: Any = self.schema
        required = True
        tokens = pointer_tokens(pointer)
        for token in tokens:
            properties = _properties(location)
            if token not in properties:
                raise SchemaError(f"collection {self.name!r} has no location {pointer} in its schema")
            listed = location.get("required")
            location = properties[token]
            field_type, nullable = type_of_schema(location)
            required = required and isinstance(listed, list | tuple) and token in listed and not nullable
        return Field("/".join(tokens), pointer, field_type, required)

    def _refuse_same_names(self, fields: tuple[Field, ...]) -> None:
        # A key's name holds the slashes of its pointer, and so may that of a property.
        seen: set[str] = set()
        for field in fields:
            if field.name in seen:
                raise SchemaError(f"collection {self.name!r} has two fields {field.name!r}: rename one")
            seen.add(field.name)


def pointer_tokens(pointer: str) -> list[str]:
    """Returns the steps of a JSON pointer (RFC 6901)."""
    if not pointer.startswith("/"):
        raise SchemaError(f"{pointer!r} is not a JSON pointer to a field: it starts with '/', such as /id")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def value_at(document: Any, tokens: list[str]) -> Any:
    """Returns the value at a pointer of a document, or `None` if there is none."""
    for token in tokens:
        if not isinstance(document, dict):
            return None
        document = document.get(token)
    return document


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
