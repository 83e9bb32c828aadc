"""The rules of this repository that a program can check."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
GENERATED = SOURCES / "headrace/protocol/grpc/gen"
LOCK = ROOT / "requirements.lock"

# A package imports from itself and from those before it. docs/architecture.md says what each is for.
LAYERS = [
    "_native",
    "faults",
    "durable",
    "model",
    "objects",
    "wal",
    "ingest",
    "client",
    "protocol",
    "connectors",
    "kafka",
    "spark",
    "sinks",
    "pipeline",
    "observe",
    "testing",
    "config",
    "bench",
    "certify",
    "cli",
    "__main__",
]
FREE_FOR_ALL = {"headrace.errors", "headrace.__version__"}
MOST_LINES = 500

# In pieces, or this file would break its own rule.
REGISTRY_HOSTS = [
    ".".join(pieces)
    for pieces in [
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
    ]
]
# A package index of anybody's, whatever its host: pip and uv want this path.
PACKAGE_INDEX = r"://[\w.:@-]+(?:/[\w.~-]+)*/simple\b"
# Cargo writes the registry's name, which is no host that is asked, into its lock file.
CARGO_SOURCE = re.compile(rb'^source = "registry\+[^"]*"$', re.MULTILINE)

FENCED_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
MARKDOWN_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)


def name_of(path: Path) -> str:
    """The dotted name of a source file's module."""
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a file imports from headrace, wherever in the file it does so."""
    # Levels of a relative import count from the package, which an __init__ itself is.
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: package.count(".") + 2 - level] if level else []
                origin = ".".join([*base, *([module] if module else [])])
                imported = [f"{origin}.{alias.name}" for alias in names]
            case _:
                continue
        yield from ((node.lineno, name) for name in imported if name.split(".")[0] == "headrace")


def is_within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


def source_files() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*.py") if not path.is_relative_to(GENERATED))


def repository_files() -> list[Path]:
    """Every file that is committed or would be."""
    listed = subprocess.run(
        # The owner of a CI checkout is often not the one who runs the tests; git refuses that unless told.
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def content_of(path: Path) -> bytes:
    """A file's content without what only its format demands."""
    content = path.read_bytes()
    return CARGO_SOURCE.sub(b"", content) if path.name == "Cargo.lock" else content


def documents() -> list[Path]:
    return [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"]


def links_of(document: Path) -> list[str]:
    """Where a document's relative links point to, without their anchors."""
    prose = FENCED_CODE.sub("", document.read_text())
    targets = [inline or reference for inline, reference in MARKDOWN_LINK.findall(prose)]
    return [target.partition("#")[0] for target in targets if not re.match(r"#|[a-z]+:", target)]


def breaks_layers(importer: str, imported: str) -> bool:
    if imported in FREE_FOR_ALL or is_within(imported, "headrace.errors"):
        return False
    own, other = (f"{name}.".split(".")[1] for name in (importer, imported))
    return own == "errors" or other not in LAYERS or LAYERS.index(other) > LAYERS.index(own)


def test_a_package_imports_only_from_those_before_it() -> None:
    # Not the root's own __init__, which is no package's.
    files = [path for path in source_files() if name_of(path) != "headrace"]
    known = {*LAYERS, "errors"}
    assert {name_of(path).split(".")[1] for path in files} <= known, "a new package needs a place in LAYERS"
    assert not [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in files
        for line, imported in imports_of(path)
        if breaks_layers(name_of(path), imported)
    ]


def test_every_locked_package_has_a_hash() -> None:
    requirements = re.split(r"^(?=[a-z0-9])", LOCK.read_text(), flags=re.MULTILINE | re.IGNORECASE)
    packages = [requirement for requirement in requirements if "==" in requirement]
    assert packages
    assert not [package.splitlines()[0] for package in packages if "--hash=sha256:" not in package]


def test_the_lock_says_nothing_about_where_packages_come_from() -> None:
    assert "://" not in LOCK.read_text()


def test_no_file_names_a_package_registry() -> None:
    registry = re.compile("|".join([*map(re.escape, REGISTRY_HOSTS), PACKAGE_INDEX]).encode())
    assert not [
        f"{path.relative_to(ROOT)} names {found.group().decode()}"
        for path in repository_files()
        if (found := registry.search(content_of(path)))
    ]


def test_no_source_file_is_long() -> None:
    files = [*source_files(), *ROOT.glob("native/*/src/**/*.rs")]
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in files}
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_every_dependency_has_a_line() -> None:
    explained = (ROOT / "docs/dependencies.md").read_text()
    workspace = tomllib.loads((ROOT / "native/Cargo.toml").read_text())["workspace"]
    own = {f"headrace-{member}" for member in workspace["members"]}
    crates = set(workspace["dependencies"]) - own
    build = {re.split(r"[^\w-]", requirement)[0] for requirement in project()["build-system"]["requires"]}
    assert not [name for name in sorted(crates | build) if not re.search(rf"\b{name}\b", explained)]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    assert not [link for link in links_of(document) if not (document.parent / link).exists()]
