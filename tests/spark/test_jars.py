"""A set of jars is downloaded once and whole."""

from __future__ import annotations

import fcntl
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from headrace.spark.jars import Jar, JarsError, JavaNotFound, fetch_jars, find_java, pyspark_jars

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).parents[2]
JARS = [Jar("org.example", "example", "1.0")]
FETCH = """
from headrace.spark.jars import Jar, fetch_jars
fetch_jars("example", [Jar("org.example", "example", "1.0")])
"""
# In place of Java: the last argument is Ivy's pattern for the files that it retrieves.
TWO_JARS = """
for pattern; do :; done
folder=${pattern%/*}
mkdir "$folder"
echo one >"$folder/one.jar"
echo run >>"$JAVA_HOME/runs"
"""
REST_OF_THEM = """
echo two >"$folder/two.jar"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_JARS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def put_java(home: Path, script: str) -> None:
    program = home / "bin/java"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


def folders_of(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_an_interrupted_download_is_repeated(cache: Path, java_home: Path) -> None:
    put_java(java_home, TWO_JARS + 'kill -KILL "$PPID"')
    interrupted = subprocess.run([sys.executable, "-c", FETCH], cwd=REPOSITORY, check=False)
    assert interrupted.returncode == -9
    assert list(cache.rglob("one.jar"))

    put_java(java_home, TWO_JARS + REST_OF_THEM)
    assert [path.name for path in fetch_jars("example", JARS)] == ["one.jar", "two.jar"]
    assert len(folders_of(cache)) == 1, "what the interrupted one left is gone"


def test_two_at_once_download_once(cache: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first download ends only after the second process has requested the lock."""
    put_java(java_home, TWO_JARS + 'until [ -e "$JAVA_HOME/asked" ]; do sleep 0.01; done' + REST_OF_THEM)
    flock, asked = fcntl.flock, itertools.count(1)

    def watched(file: IO[str], how: int) -> None:
        if next(asked) == 2:
            (java_home / "asked").touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", watched)
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(lambda _: fetch_jars("example", JARS), range(2))
    assert first == second
    assert (java_home / "runs").read_text() == "run\n"


def test_another_version_is_another_download(cache: Path, java_home: Path) -> None:
    put_java(java_home, TWO_JARS + REST_OF_THEM)
    old = fetch_jars("example", JARS)
    new = fetch_jars("example", [Jar("org.example", "example", "1.1")])
    assert not set(old) & set(new)


def test_a_failed_download_says_why_and_leaves_nothing(cache: Path) -> None:
    with pytest.raises(JarsError, match=r"org\.example#headrace-nothing;0: not found"):
        fetch_jars("nothing", [Jar("org.example", "headrace-nothing", "0")])
    assert not folders_of(cache)


def test_jars_of_pyspark_are_found_by_artifact() -> None:
    (ivy,) = pyspark_jars("ivy")
    assert ivy.is_file()
    with pytest.raises(JarsError, match="0 versions of headrace-nothing"):
        pyspark_jars("headrace-nothing")


def test_java_is_that_of_java_home_then_that_of_the_path(
    java_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(java_home, "")
    assert find_java() == java_home / "bin/java"

    monkeypatch.setenv("PATH", str(java_home / "bin"))
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == java_home / "bin/java"

    # Spark's scripts go by it alone, whatever is on the PATH.
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaNotFound, match="JAVA_HOME is /nowhere, where there is no bin/java: correct it"):
        find_java()


def test_without_java_it_names_the_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JavaNotFound, match="apt-get install openjdk-17-jre-headless"):
        fetch_jars("example", JARS)
