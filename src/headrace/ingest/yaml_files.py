"""Reads files that people write, in YAML (or JSON, which is YAML too); what is wrong is one sentence."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.errors import ConfigError

# What pydantic says in the words of Python, in the words of YAML.
_SENTENCES = {
    "extra_forbidden": "this key is not known",
    "missing": "this key is missing",
    "string_type": "write it as text, in quotes",
    "model_type": "write keys and values below it",
    "model_attributes_type": "write keys and values below it",
    "dict_type": "write keys and values below it",
    "list_type": "write a list",
    "tuple_type": "write a list",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "int_parsing": "write a whole number",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
}


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two values under one key, and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """What a file holds; None if it is empty."""
    try:
        # As bytes: PyYAML finds out the encoding, and refuses what is not text.
        return yaml.load(path.read_bytes(), _Loader)  # noqa: S506 - it is a SafeLoader
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{what} {path}{where}: {error.problem or 'this is not YAML'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        said = str(error).split("\n", 1)[0]
        raise ConfigError(f"{what} {path} is not YAML: {said or type(error).__name__}") from None


def problem_of(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first thing that pydantic found in a `kind`; without what was given, which may be a secret."""
    first = error.errors(include_input=False, include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    sentence = _sentence(first)
    if first["type"] == "extra_forbidden":
        sentence += f"; the keys here are {', '.join(_part_of(kind, first['loc'][:-1]).model_fields)}"
    return f"{key}: {sentence}" if key else sentence


def _sentence(problem: ErrorDetails) -> str:
    raised = problem.get("ctx", {}).get("error")
    return _SENTENCES.get(problem["type"]) or (str(raised) if raised else problem["msg"])


def _part_of(kind: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that a key of a model leads to."""
    for part in location:
        if isinstance(part, str):
            annotation = kind.model_fields[part].annotation
            candidates = (annotation, *get_args(annotation))
            kind = next(one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel))
    return kind
