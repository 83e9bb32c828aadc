"""The page about `headrace.yaml`: its examples load, and it has every key with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo
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
    "SALES_PASSWORD",
    "KAFKA_PASSWORD",
)


def test_there_are_five_examples() -> None:
    assert len(EXAMPLES) == 5


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
    if config.materializations:
        config.pipeline_settings()


def test_the_tokens_of_the_documentation(tmp_path: Path) -> None:
    (tokens,) = re.findall(r"```yaml\n(- name.*?)```", CONFIGURATION, re.DOTALL)
    path = tmp_path / "tokens.yaml"
    path.write_text(tokens)
    path.chmod(0o600)
    headers = {"authorization": "Bearer a secret of at least 16 characters"}
    assert Access(path).identify(headers).may_read("orders")


def sections_of(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models in a type, each with what stands for the names or numbers above its keys."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, "."
    marks: dict[Any, str] = {dict: ".NAME.", tuple: "[]."}
    above = marks.get(get_origin(annotation))
    for argument in get_args(annotation):
        yield from ((kind, above or below) for kind, below in sections_of(argument))


def leaves(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key that is not a section."""
    for name, field in kind.model_fields.items():
        sections = list(sections_of(field.annotation))
        for section, below in sections:
            yield from leaves(section, f"{prefix}{name}{below}")
        if not sections:
            yield f"{prefix}{field.alias or name}", field


@pytest.mark.parametrize(("key", "field"), list(leaves(HeadraceConfig)))
def test_every_key_is_documented_with_its_default(key: str, field: FieldInfo) -> None:
    row = re.search(rf"^\| `{re.escape(key)}` \| (.*?) ?\|", CONFIGURATION, re.MULTILINE)
    assert row, key
    default = field.default
    if default is PydanticUndefined:
        assert row[1] in ("", "required")
        return
    if default in (None, "", ()):
        assert row[1] == ""
        return
    kind: Any = field.annotation
    read: Any = create_model("Read", it=(kind, field))
    assert read(it=yaml.safe_load(row[1].strip("`"))).it == default


def test_every_key_of_the_tables_is_one() -> None:
    documented = re.findall(
        r"^\| `([a-z][\w.\[\]]*)` \|.*?\|.*\|$", CONFIGURATION.partition("## Tokens")[0], re.MULTILINE
    )
    assert sorted(documented) == sorted(key for key, _ in leaves(HeadraceConfig))
