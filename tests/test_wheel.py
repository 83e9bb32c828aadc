"""The wheel works without the repository, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@pytest.mark.full
@pytest.mark.processes
def test_a_wheel_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    """Installs the wheel as a user does, but without the network.

    The environment has links to the installed versions of exactly those packages that the wheel requires,
    directly or indirectly, and nothing else. So the test proves that the wheel is complete, that what it
    requires is enough, and that the command works. It does not prove that these packages can be downloaded,
    nor that others of the allowed versions work.
    """
    [wheel] = build_wheel(tmp_path / "wheels")
    assert "cp311-abi3" in wheel.name
    environment = Environment(tmp_path / "a place")
    environment.install(wheel)
    environment.link_what_is_required_by("headrace")
    where = "import headrace._native as native, sys; sys.stdout.write(native.__file__)"
    assert Path(environment.run("python", "-c", where)).is_relative_to(environment.folder)
    assert "Every order is there once" in environment.run("headrace", "demo", "ingest")


def build_wheel(folder: Path) -> Iterator[Path]:
    # Without isolation, which would need the network: the build backend and all that is needed are installed.
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    pip("wheel", *options, str(ROOT), environment={"PATH": path, "CARGO_NET_OFFLINE": "true"})
    return folder.iterdir()


class Environment:
    """A virtual environment in which nothing is installed at first, not even pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self._programs = folder / "bin"
        packages = "import sysconfig, sys; sys.stdout.write(sysconfig.get_path('platlib'))"
        self._packages = Path(self.run("python", "-c", packages))

    def install(self, wheel: Path) -> None:
        pip("--python", str(self._programs / "python"), "install", "--no-deps", "--no-index", str(wheel))

    def link_what_is_required_by(self, name: str) -> None:
        """Follows the requirements of what is installed here."""
        [installed] = distributions(name=name, path=[str(self._packages)])
        required = set(_requirements(installed, frozenset()))
        seen = set(required)
        while required:
            name, extras = required.pop()
            self._link(distribution(name))
            required |= set(_requirements(distribution(name), extras)) - seen
            seen |= required

    def run(self, program: str, *arguments: str) -> str:
        """Runs a program of the environment outside of the repository, and returns what it printed."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        answer = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.folder,
            env=inherited,
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def _link(self, installed: Distribution) -> None:
        tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        for top in tops:
            link = self._packages / top
            if not link.exists():  # some packages share a folder
                link.symlink_to(Path(str(installed.locate_file(top))))


def _requirements(installed: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields what a distribution requires on this machine, each with the extras that it is to have."""
    for text in installed.requires or ():
        one = Requirement(text)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if one.marker is None or any(one.marker.evaluate(extra) for extra in wanted):
            yield one.name.lower(), frozenset(one.extras)


def pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **(environment or {})})
