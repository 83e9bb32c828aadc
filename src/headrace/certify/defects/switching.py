"""Replaces methods of the product by defective ones, in the lanes that a file of the faults' folder names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from headrace.faults import VARIABLE, Faults
from headrace.pipeline.dead_letters.sink import NAME as DEAD_LETTERS
from headrace.sinks.parquet_layout import Layout

_FILE = "defects.json"

Replacement = Callable[..., Any]
"""Is given the method that it stands for, and then the method's own arguments."""


def switch_on(faults: Faults, defects: Mapping[str, Sequence[str]]) -> None:
    """For processes that start from here on; `defects` has the lanes of each."""
    (faults.folder / _FILE).write_text(json.dumps({name: list(lanes) for name, lanes in defects.items()}))


def _switched_on() -> dict[str, list[str]]:
    file = Path(os.environ[VARIABLE]) / _FILE
    return json.loads(file.read_text()) if file.exists() else {}


_ON = _switched_on() if VARIABLE in os.environ else {}


def defective(
    owner: Any, method: str, name: str, lane_of: Callable[..., str]
) -> Callable[[Replacement], Replacement]:
    """In lanes with this defect the decorated function is called in the method's place.

    `lane_of` is given the method's arguments.
    """

    def replace(replacement: Replacement) -> Replacement:
        original = getattr(owner, method)

        @wraps(original)
        def switched(*arguments: Any, **options: Any) -> Any:
            if lane_of(*arguments, **options) in _ON.get(name, ()):
                return replacement(original, *arguments, **options)
            return original(*arguments, **options)

        setattr(owner, method, switched)
        return replacement

    return replace


def lane_of_sink(sink: Any, *_: Any, **__: Any) -> str:
    """Takes the lane from the sink's name, or from its location for dead letters, whose name is fixed."""
    name: str = sink.name.partition(".")[0]
    if name == DEAD_LETTERS and isinstance(layout := getattr(sink, "_layout", None), Layout):
        return layout.place.writer
    return name.removesuffix("-append").removesuffix("-view")
