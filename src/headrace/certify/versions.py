"""The versions of everything that takes part in a certification on this machine."""

from __future__ import annotations

import platform
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headrace import __version__
from headrace.errors import ConfigError
from headrace.spark.jars import find_java
from headrace.spark.lines import Needs, installed_line

_PACKAGES = (
    "pyspark",
    "pyarrow",
    "grpcio",
    "protobuf",
    "obstore",
    "pyiceberg",
    "deltalake",
    "hudi",
    "confluent-kafka",
    "adbc-driver-postgresql",
    "psycopg2-binary",
    "redis",
    "duckdb",
)
_JARS = (Needs.ICEBERG, Needs.HUDI, Needs.KAFKA)
_ANSWER_SECONDS = 30.0


def versions() -> dict[str, str]:
    """Of what is installed. Those of servers are known only to who is connected to them."""
    found = {"headrace": __version__}
    if revision := _revision():
        found["revision"] = revision
    found |= {"python": platform.python_version(), "platform": _platform()}
    java = _java()
    if java is not None:
        found["java"] = java
    found |= {name: installed for name in _PACKAGES if (installed := _installed(name)) is not None}
    if "confluent-kafka" in found:
        found["librdkafka"] = _librdkafka()
    return found | {"sqlite": sqlite3.sqlite_version} | dict(_jars())


def _revision() -> str | None:
    """Returns the revision of the sources that run, if they are a checkout."""
    sources = Path(__file__).parent.parent

    def git(*command: str) -> str:
        said = subprocess.run(
            ["git", "-C", str(sources), *command],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_ANSWER_SECONDS,
        )
        return said.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # or the checkout is that of somebody else
        return git("rev-parse", "--short=12", "HEAD") + (
            " and changes" if git("status", "--short", ".") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _platform() -> str:
    """Without what a provider appends to the kernel's version: that says where, and not what."""
    kernel = re.match(r"[\d.]*\d", platform.release())
    system = f"{platform.system()} {kernel.group() if kernel else ''}".strip()
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:  # not Linux
        distribution = None
    return ", ".join(part for part in (distribution, system, platform.machine()) if part)


def _java() -> str | None:
    try:
        command = [str(find_java()), "-version"]
        said = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except (ConfigError, OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return found.group(1) if found else None


def _librdkafka() -> str:
    from confluent_kafka import libversion

    return str(libversion()[0])


def _jars() -> Iterator[tuple[str, str]]:
    """Those that Spark is given: it writes Iceberg and Hudi and reads Kafka with them."""
    try:
        line = installed_line()
    except ConfigError:
        return
    for need in _JARS:
        for jar in line.jars.get(need, ())[:1]:
            yield jar.artifact, jar.version
