"""Turns a file's text into values: substitutes environment variables, and finds the lines of errors."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headrace.errors import ConfigError
from headrace.ingest.yaml_files import KeyPath, YamlFile, dotted, first_problem

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")

Model = TypeVar("Model", bound=BaseModel)


class Wrong(Exception):
    """A problem at a key; becomes a `ConfigError` once the file is known."""

    def __init__(self, path: KeyPath, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path
        self.sentence = sentence


@dataclass(frozen=True)
class Origin:
    """The origin of a configuration; `what` begins the sentences about it."""

    what: str
    folder: Path
    file: YamlFile

    def error(self, path: KeyPath, sentence: str) -> ConfigError:
        line = self.file.line(path)
        where = self.what if line is None else f"{self.what}, line {line}"
        return ConfigError(f"{where}: {dotted(path)}: {sentence}" if path else f"{where}: {sentence}")

    def read(self, kind: type[Model], unread: Collection[str] = ()) -> Model:
        """Reads the file's values. Keys in `unread` are ignored: their variables need not be set."""
        raw = self.file.value
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise self.error((), "write keys and values, such as 'data: ./data'")
        try:
            raw = substitute({key: value for key, value in raw.items() if key not in unread})
            return kind.model_validate(raw, context={"folder": self.folder})
        except Wrong as wrong:
            raise self.error(wrong.path, wrong.sentence) from None
        except ValidationError as error:
            raise self.error(*first_problem(error, kind, raw)) from None


def substitute(value: Any, at: KeyPath = (), inside: tuple[int, ...] = ()) -> Any:
    """Substitutes environment variables in every text, but not in keys."""
    if id(value) in inside:
        raise Wrong(at, "this is an alias of what it is itself in: write it out")
    if isinstance(value, dict):
        within = (*inside, id(value))
        return {key: substitute(below, (*at, key), within) for key, below in value.items()}
    if isinstance(value, list):
        within = (*inside, id(value))
        return [substitute(below, (*at, index), within) for index, below in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        found = os.environ.get(match[2])
        if found is None:
            raise Wrong(at, f"the environment variable {match[2]!r} is not set: set it")
        return found

    return _VARIABLE.sub(replaced, value)
