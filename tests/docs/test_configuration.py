"""The page about `headrace.yaml`: its examples load, and it has every key with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from headrace.config import HeadraceConfig, check_exposure, load_config
from headrace.ingest.access import Access

CONFIGURATION = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", CONFIGURATION.partition("## Examples")[2], re.DOTALL)
VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CATALOG_PASSWORD",
    "CATALOG_CREDENTIAL",
    "S3_KEY",
    "S3_SECRET",
)


def test_there_are_three_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "x")
    path = tmp_path / "headrace.yaml"
    path.write_text(example)
    config = load_config(path)
    check_exposure(config.serve_settings())
    config.engine_settings()


def test_the_tokens_of_the_documentation(tmp_path: Path) -> None:
    (tokens,) = re.findall(r"```yaml\n(- name.*?)```", CONFIGURATION, re.DOTALL)
    path = tmp_path / "tokens.yaml"
    path.write_text(tokens)
    path.chmod(0o600)
    headers = {"authorization": "Bearer a secret of at least 16 characters"}
    assert Access(path).identify(headers).may_read("orders")


def leaves(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key that is not a section, with its default."""
    for name, field in kind.model_fields.items():
        kinds = [one for one in (field.annotation, *get_args(field.annotation)) if isinstance(one, type)]
        below = next((one for one in kinds if issubclass(one, BaseModel)), None)
        if below is not None:
            yield from leaves(below, f"{prefix}{name}.")
        else:
            yield prefix + name, field.default


@pytest.mark.parametrize(("key", "default"), list(leaves(HeadraceConfig)))
def test_every_key_is_documented_with_its_default(key: str, default: object) -> None:
    row = re.search(rf"^\| `{re.escape(key)}` \| (.*?) ?\|", CONFIGURATION, re.MULTILINE)
    assert row, key
    if default is None or default is PydanticUndefined:
        assert row[1] in ("", "required")
        return
    raw: object = yaml.safe_load(row[1].strip("`"))
    for part in reversed(key.split(".")):
        raw = {part: raw}
    read: object = HeadraceConfig.read(raw, Path(), "documentation")
    for part in key.split("."):
        read = getattr(read, part)
    assert read == default
