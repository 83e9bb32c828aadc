"""Collections in `headrace.yaml`: their key, schema and rules of quality."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from headrace.config.values import JsonObject, Section, Text, Texts, folder_of
from headrace.errors import ConfigError
from headrace.ingest.yaml_files import read_yaml
from headrace.pipeline.settings import Action, Rule

CHECKS = ("not_null", "range", "regex", "in_set", "unique", "expression")


def _schema(value: Any, info: ValidationInfo) -> Any:
    """A schema that is a text is the path of a file."""
    if not isinstance(value, str):
        return value
    try:
        return read_yaml(folder_of(info) / value, "the schema in")
    except ConfigError as error:
        raise ValueError(error.message) from None


def _scalar(value: Any) -> Any:
    # YAML makes a date of what looks like one; in JSON, and so in documents, it is text.
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str | int | float | bool):
        raise ValueError("write a number, a text, true or false")
    return value


JsonSchema = Annotated[
    JsonObject,
    BeforeValidator(_schema),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]}),
]
Scalar = Annotated[Any, BeforeValidator(_scalar), WithJsonSchema({"type": ["string", "number", "boolean"]})]


class RangeConfig(Section):
    field: Text
    """The field."""
    minimum: Scalar | None = None
    """The smallest value that is right."""
    maximum: Scalar | None = None
    """The largest value that is right."""

    @model_validator(mode="after")
    def _has_an_end(self) -> RangeConfig:
        if self.minimum is None and self.maximum is None:
            raise ValueError("give minimum or maximum or both")
        return self


class RegexConfig(Section):
    field: Text
    """The field."""
    pattern: Text
    """A regular expression as Java has them; put it in quotes."""


class InSetConfig(Section):
    field: Text
    """The field."""
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)]
    """All that are right."""


class RuleConfig(Section):
    name: Text
    """Says in dead letters and counts which rule it was; each name once in a collection."""
    action: Action = Action.DROP
    """What happens to a row that is wrong: it goes to the dead letters, the epoch fails, or it is counted."""
    not_null: Texts = ()
    """One field or several that are never null."""
    range: RangeConfig | None = None
    """A field lies between two values, ends included. A null is right."""
    regex: RegexConfig | None = None
    """A field matches a pattern. A null is right."""
    in_set: InSetConfig | None = None
    """A field has one of some values. A null is right."""
    unique: Texts = ()
    """No two rows of an epoch agree in all of these fields; the first is right."""
    expression: str = ""
    """Spark SQL over the fields; a row for which it is false or null is wrong."""

    @model_validator(mode="after")
    def _has_one_check(self) -> RuleConfig:
        given = [name for name in CHECKS if getattr(self, name)]
        if len(given) != 1:
            has = f"has {' and '.join(given)}" if given else "has none"
            raise ValueError(f"a rule has exactly one of {', '.join(CHECKS)}; this one {has}")
        return self

    def settings(self) -> Rule:
        about = self.range or self.regex or self.in_set
        return Rule(
            name=self.name,
            action=self.action,
            not_null=self.not_null,
            field=about.field if about else "",
            minimum=self.range.minimum if self.range else None,
            maximum=self.range.maximum if self.range else None,
            regex=self.regex.pattern if self.regex else "",
            in_set=self.in_set.values if self.in_set else (),
            unique=self.unique,
            expression=self.expression,
        )


class CollectionConfig(Section):
    key: Annotated[Texts, Field(min_length=1)]
    """JSON pointers to what identifies a document, such as /id."""
    json_schema: JsonSchema = Field(alias="schema")
    """The JSON schema of its documents with their reductions, or the path of a file that holds it."""
    invalid: Literal["fail", "drop"] = "fail"
    """What happens to a row that is not what the schema says: the epoch fails, or it is dropped."""
    quality: tuple[RuleConfig, ...] = ()
    """Rules that a row has to pass on its way into a materialization."""

    @property
    def drops(self) -> str:
        """Describes what drops rows, for a sentence; empty if nothing does."""
        if self.invalid == "drop":
            return "invalid: drop"
        return next((f"rule {rule.name!r}" for rule in self.quality if rule.action is Action.DROP), "")
