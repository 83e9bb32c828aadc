"""The Java that Spark runs on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

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
