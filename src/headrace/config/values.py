"""Types of values in `headrace.yaml`: sections, sizes, times, paths and URLs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SIZES = {"": 1, "B": 1, **{f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)}}
_SIZES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Section(BaseModel):
    """A part of the file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )


@dataclass(frozen=True, eq=False)  # by identity, since pydantic wants a hash
class Shorthand:
    """A shorter way to write a value, which `expand` turns into the long one; `form` is its JSON schema."""

    expand: Callable[[Any], Any]
    form: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [dict(self.form), handler(schema)]}


def text_for(key: str) -> Shorthand:
    """Lets a plain text stand for a section that has only this key."""
    return Shorthand(lambda value: {key: value} if isinstance(value, str) else value, {"type": "string"})


def _measure(value: Any, units: Mapping[str, float], example: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match and match[2] in units:
        return float(match[1]) * units[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    known = ", ".join(filter(None, units))
    raise ValueError(f"write a number, alone or with one of {known}, as in {example}")


def _size(value: Any) -> int:
    size = _measure(value, _SIZES, "64MiB")
    if not size.is_integer():
        raise ValueError("write a whole number of bytes")
    return int(size)


def seconds(value: Any) -> float:
    return _measure(value, _SECONDS, "500ms")


def is_url(value: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://.", value) is not None


def _url(value: str) -> str:
    if not is_url(value):
        raise ValueError("write a URL, such as s3://bucket/prefix or file:///folder")
    return value


def folder_of(info: ValidationInfo) -> Path:
    """Returns the folder of the file that is being read."""
    return Path((info.context or {}).get("folder", "."))


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    return folder_of(info) / path.expanduser()


def as_location(value: str, info: ValidationInfo) -> str:
    """Returns a URL as it is, and a path as the URL of a folder."""
    if is_url(value):
        return value
    if re.match(r"[a-z0-9+.-]+:/", value):
        raise ValueError("write a URL, such as s3://bucket/prefix or file:///folder, or the path of a folder")
    return _from_folder(Path(value), info).absolute().as_uri()


def _option(value: Any) -> Any:
    """Converts a value to the spelling that Spark, Kafka and others use."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _as_json(value: Any) -> Any:
    """Undoes YAML's dates and numeric keys, which JSON does not have."""
    if not isinstance(value, dict):
        return value
    try:
        return json.loads(json.dumps(value, default=_date_text))
    except TypeError:
        raise ValueError(
            "it holds something that JSON cannot: write numbers, texts, lists and keys"
        ) from None


def _date_text(value: Any) -> str:
    if isinstance(value, date):  # also a datetime
        return value.isoformat()
    raise TypeError


def _text_or(kind: str, units: Mapping[str, float]) -> WithJsonSchema:
    pattern = rf"^\s*\d+(\.\d+)?\s*({'|'.join(filter(None, units))})?\s*$"
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, {"type": "string", "pattern": pattern}]})


Size = Annotated[int, BeforeValidator(_size), Field(gt=0), _text_or("integer", _SIZES)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0), _text_or("number", _SECONDS)]
Pause = Annotated[float, BeforeValidator(seconds), Field(ge=0), _text_or("number", _SECONDS)]
FilePath = Annotated[Path, AfterValidator(_from_folder)]
Url = Annotated[str, AfterValidator(_url)]
Location = Annotated[str, Field(min_length=1), AfterValidator(as_location)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[
    tuple[Text, ...],
    Shorthand(lambda value: [value] if isinstance(value, str) else value, {"type": "string", "minLength": 1}),
]
Option = Annotated[
    str,
    BeforeValidator(_option),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Options = dict[str, Option]
JsonObject = Annotated[dict[str, Any], BeforeValidator(_as_json)]
