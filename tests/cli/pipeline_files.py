"""A headrace.yaml for the commands that read one, and how they are called."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from pyiceberg.catalog import load_catalog

from headrace.cli import main
from headrace.ingest.iceberg.settings import embedded_catalog

FILE = """\
collections:
  orders:
    key: [/id]
    schema:
      type: object
      properties:
        id: {{type: integer}}
        customer: {{type: string}}
        day: {{type: string, format: date}}
        lines: {{type: array}}
      required: [id]
materializations:
  sales:
    connector: {connector}
    config: {config}
    bindings:
      - collection: orders
        resource: {{table: orders}}
        fields: {{include: [lines], exclude: [day]}}
  archive:
    connector: sqlite
    config: {{path: {folder}/archive.db}}
    bindings:
      - collection: orders
        resource: {{table: "[bold]orders"}}
"""


def written(folder: Path, connector: str = "sqlite", config: str = "") -> Path:
    """A file whose catalog is there, as after the first start of a server."""
    make_catalog(folder / "data")
    path = folder / "headrace.yaml"
    config = config or f"{{path: {folder}/sales.db}}"
    path.write_text(FILE.format(folder=folder, connector=connector, config=config))
    return path


def make_catalog(data: Path) -> None:
    data.mkdir(exist_ok=True)
    catalog = embedded_catalog(data)
    load_catalog(catalog.name, **catalog.properties)


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@dataclass(frozen=True)
class Answer:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Answer:
    """Within this process, since one of its own imports for seconds."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["headrace", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def sentence_of(answer: Answer) -> str:
    """What a command that failed said, which is one line on standard error."""
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    return line
