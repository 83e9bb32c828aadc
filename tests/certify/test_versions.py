"""Versions of what takes part, and nothing that tells whose machine it is."""

from __future__ import annotations

import platform
import re
import socket
import stat
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.certify import versions as module
from headrace.certify.versions import versions

pytestmark = pytest.mark.processes  # runs Java


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    _write(java, 'echo "Picked up JAVA_TOOL_OPTIONS: -Da=b" >&2; echo \'openjdk version "21.0.4" 2024\' >&2')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return java


def _write(java: Path, script: str) -> None:
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)


def test_they_are_those_that_run(fake_java: Path) -> None:
    found = versions()
    assert found["headrace"] == headrace.__version__
    assert found["python"] == platform.python_version()
    assert found["pyarrow"] == pa.__version__
    assert found["java"] == "21.0.4"
    assert found["pyspark"] == version("pyspark")
    assert re.match(r"\d+\.\d+", found["librdkafka"])
    assert {"pyiceberg", "deltalake", "grpcio", "sqlite"} <= found.keys()
    assert any(name.startswith("iceberg-spark-runtime-") for name in found)


def test_what_is_not_installed_is_left_out(fake_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", installed)
    monkeypatch.setattr("headrace.spark.lines.version", installed)
    assert versions().keys() - {"revision"} == {"headrace", "python", "platform", "java", "sqlite"}


@pytest.mark.parametrize("script", ["exit 1", "echo nonsense"])
def test_a_java_that_says_nothing_is_left_out(fake_java: Path, script: str) -> None:
    _write(fake_java, script)
    assert "java" not in versions()


def test_a_java_that_hangs_is_left_out(fake_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(fake_java, "exec sleep 60")
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.2)
    assert "java" not in versions()


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "java" not in versions()


def test_they_name_no_host_and_no_path(fake_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-1051-provider-host77")
    found = versions()
    assert "6.1.0" in found["platform"]
    assert "provider" not in found["platform"]
    told = " ".join([*found, *found.values()])
    assert socket.gethostname() not in told
    assert str(Path.home()) not in told
    assert not [text for text in found.values() if re.search(r"(^|\s)/", text)]


def test_the_revision_of_a_checkout() -> None:
    if (Path(__file__).parents[2] / ".git").exists():
        assert re.fullmatch("[0-9a-f]{12}( and changes)?", versions()["revision"])
