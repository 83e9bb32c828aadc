"""Reads files that people write, in YAML (or JSON, which is YAML too); what is wrong is one sentence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.errors import ConfigError

KeyPath = tuple[Any, ...]
"""Keys and indexes, from the root of a file down."""

# Pydantic's errors use the words of Python; these use the words of YAML.
_SENTENCES = {
    "extra_forbidden": "this key is not known",
    "missing": "this key is missing",
    "string_type": "write it as text, in quotes",
    "model_type": "write keys and values below it",
    "model_attributes_type": "write keys and values below it",
    "dict_type": "write keys and values below it",
    "list_type": "write a list",
    "tuple_type": "write a list",
    "too_short": "write at least one",
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


@dataclass(frozen=True)
class YamlFile:
    """The value of a file, and where its parts are in it."""

    value: Any
    """None if it is empty."""
    root: yaml.Node | None = None

    def line(self, path: KeyPath) -> int | None:
        """The line of a key or an item, counted from 1; of the nearest thing around it that is there."""
        node, line = self.root, None
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line


def _child(node: yaml.Node | None, part: Any) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        # Backwards: what `<<` brought stands before the mapping's own keys, which outrank it.
        for key, value in reversed(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, value
    return None


def read_yaml(path: Path, what: str) -> Any:
    """Returns the value of a file; None if it is empty."""
    return read_marked_yaml(path, what).value


def read_marked_yaml(path: Path, what: str) -> YamlFile:
    try:
        # As bytes: PyYAML finds out the encoding, and refuses what is not text.
        loader = _Loader(path.read_bytes())
        try:
            root = loader.get_single_node()
            return YamlFile(None if root is None else loader.construct_document(root), root)
        finally:
            loader.dispose()
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
    path, sentence = first_problem(error, kind)
    return f"{dotted(path)}: {sentence}" if path else sentence


def first_problem(error: ValidationError, kind: type[BaseModel], raw: Any = None) -> tuple[KeyPath, str]:
    """Where it is, and a sentence; `raw` is what was validated, and tells keys from pydantic's own words."""
    first = error.errors(include_input=False, include_url=False)[0]
    path = first["loc"] if raw is None else _keys_of(first, raw)
    sentence = _sentence(first)
    if first["type"] == "extra_forbidden":
        known = _model_at(kind, path[:-1]).model_fields
        sentence += f"; the keys here are {', '.join(field.alias or name for name, field in known.items())}"
    return path, sentence


def dotted(path: Iterable[Any]) -> str:
    return ".".join(map(str, path))


def _keys_of(problem: ErrorDetails, raw: Any) -> KeyPath:
    """Pydantic puts the members of unions between the keys, such as `str`; what is in the file is a key."""
    path: list[Any] = []
    for part in problem["loc"]:
        is_item = isinstance(raw, list) and isinstance(part, int) and part < len(raw)
        if is_item or (isinstance(raw, Mapping) and part in raw):
            raw = raw[part]
            path.append(part)
    if problem["type"] == "missing":
        path.append(problem["loc"][-1])
    return tuple(path)


def _sentence(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    if problem["type"] in ("enum", "literal_error"):
        return f"write {context['expected']}"
    if problem["type"] == "string_too_short" and context["min_length"] == 1:
        return "write something"
    if "error" in context:
        return str(context["error"])
    return _SENTENCES.get(problem["type"], problem["msg"].replace("Input should be", "it must be"))


def _model_at(kind: Any, path: KeyPath) -> type[BaseModel]:
    """The model that a path leads to."""
    for part in path:
        kind = _below(kind, part)
    return next(one for one in _members(kind) if isinstance(one, type) and issubclass(one, BaseModel))


def _below(kind: Any, part: Any) -> Any:
    for member in _members(kind):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for name, field in member.model_fields.items():
                if part == (field.alias or name):
                    return field.annotation
        elif get_origin(member) in (dict, list, tuple):
            arguments = [one for one in get_args(member) if one is not Ellipsis]
            return arguments[-1]
    return kind


def _members(kind: Any) -> tuple[Any, ...]:
    """The types that a value may have, without annotations."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(member for one in get_args(kind) for member in _members(one))
    return (kind,)
