"""Files that are written for a test, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import load_config
from headrace.errors import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    return path


def refusal_of(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert "\n" not in refused.value.message
    return refused.value.message
