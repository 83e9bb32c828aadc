"""Runs the Python examples of a page."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_examples(
    document: str, replacing: Mapping[str, str] | None = None, **given: object
) -> types.ModuleType:
    """Runs the Python of a page, top to bottom, as one module.

    A block that starts indented continues the one before. `replacing` maps texts of the page, such as the
    default address of `headrace serve`, to others; `given` are names that the examples use.
    """
    blocks: Sequence[str] = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    source = "\n".join(blocks)
    for old, new in (replacing or {}).items():
        assert old in source
        source = source.replace(old, new)
    module = types.ModuleType(re.sub(r"\W", "_", document))
    vars(module).update(given)
    exec(compile(source, document, "exec"), module.__dict__)
    return module
