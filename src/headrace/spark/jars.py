"""Java, and jars by their Maven coordinates, with all that they need.

The Ivy inside PySpark downloads them from where it is used to. A set of jars is downloaded once, and then
kept in the user's cache, or in the folder that HEADRACE_JARS_CACHE names.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.errors import ConfigError


class JavaNotFound(ConfigError):
    """There is no Java on this machine, or it is not where JAVA_HOME says."""


def find_java() -> Path:
    """The program `java`: that of JAVA_HOME if it is set, as Spark's scripts have it, or the PATH's first."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=Path(home) / "bin") if home else shutil.which("java")
    if home and not found:
        raise JavaNotFound(f"JAVA_HOME is {home}, where there is no bin/java: correct it, or unset it")
    if not found:
        raise JavaNotFound(
            "no Java in JAVA_HOME or on the PATH: install Java 17 or later"
            " (on Debian: sudo apt-get install openjdk-17-jre-headless)"
        )
    return Path(found)


log = logging.getLogger(__name__)

# Less than a test may take. The largest set takes 40 s.
_DOWNLOAD_SECONDS = 240.0
_OUTPUT_TAIL_LINES = 40
_RETRIEVED = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"


class JarsError(ConfigError):
    """The jars cannot be had."""


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    # A jar with a classifier comes alone, without what its artifact depends on.
    classifier: str = ""
    alone: bool = False


def fetch_jars(name: str, jars: Sequence[Jar]) -> list[Path]:
    """The files of these jars and of all that they depend on; `name` is for the reader of the cache."""
    cache = Path(os.environ.get("HEADRACE_JARS_CACHE") or Path.home() / ".cache/headrace/jars")
    digest = hashlib.sha256(_module(jars).encode()).hexdigest()[:12]
    # The folder is there only when it is complete: a download ends with the renaming of another.
    folder = cache / f"{name}-{digest}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{folder.name}.lock"):
            if not folder.is_dir():
                log.warning("downloading the jars of %s, once, to %s", name, folder)
                _download_anew(jars, folder)
    return sorted(folder.iterdir())


def pyspark_jars(*artifacts: str) -> list[Path]:
    """Jars that are in the PySpark wheel, by their artifacts' names."""
    # Importing the package takes a second; its place is all that is needed.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("PySpark is not installed: pip install 'headrace[spark]'")
    folder = Path(spec.origin).parent / "jars"
    return [_only_version_of(artifact, folder) for artifact in artifacts]


def _only_version_of(artifact: str, folder: Path) -> Path:
    versions = [
        path for path in folder.iterdir() if re.fullmatch(rf"{re.escape(artifact)}-\d[\d.]*\.jar", path.name)
    ]
    if len(versions) != 1:
        raise JarsError(f"there are {len(versions)} versions of {artifact} in {folder}")
    return versions[0]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Until the block ends, others who want this lock wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_anew(jars: Sequence[Jar], folder: Path) -> None:
    # What an interrupted download left, the Ivy of a killed process may still be writing to: each download
    # gets a folder of its own.
    prefix = f"{folder.name}.unfinished-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        _download(jars, unfinished)
        (unfinished / "jars").rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _download(jars: Sequence[Jar], folder: Path) -> None:
    """Fills `folder`/jars."""
    module = folder / "ivy.xml"
    module.write_text(_module(jars))
    (ivy,) = pyspark_jars("ivy")
    command = [str(find_java()), f"-Divy.home={folder}", "-jar", str(ivy), "-warn", "-ivy", str(module)]
    command += ["-cache", str(folder / "cache"), "-confs", "default"]
    command += ["-retrieve", f"{folder / 'jars'}/{_RETRIEVED}"]
    try:
        ivy_run = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        raise JarsError(f"Ivy did not download {_listed(jars)} in {_DOWNLOAD_SECONDS:.0f} s") from late
    if ivy_run.returncode != 0:
        said = "\n".join(ivy_run.stdout.splitlines()[-_OUTPUT_TAIL_LINES:])
        raise JarsError(f"Ivy could not download {_listed(jars)}:\n{said}")


def _listed(jars: Sequence[Jar]) -> str:
    return ", ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars)


def _module(jars: Sequence[Jar]) -> str:
    """A module of Ivy that depends on these jars."""
    dependencies = "\n".join(map(_dependency, jars))
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="headrace" module="jars"/>
<configurations><conf name="default"/></configurations>
<dependencies>
{dependencies}
</dependencies>
</ivy-module>
"""


def _dependency(jar: Jar) -> str:
    coordinates = f"org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
    alone = 'conf="default->master" transitive="false"'
    with_all = 'conf="default->default"'
    if not jar.classifier:
        return f"<dependency {coordinates} {alone if jar.alone else with_all}/>"
    classified = (
        f'name={quoteattr(jar.artifact)} type="jar" ext="jar" m:classifier={quoteattr(jar.classifier)}'
    )
    return f"<dependency {coordinates} {alone}><artifact {classified}/></dependency>"
