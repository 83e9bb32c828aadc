"""The Java that Spark runs on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headrace.errors import ConfigError


class JavaNotFound(ConfigError):
    """There is no Java on this machine."""


def find_java() -> Path:
    """The program `java`: that of JAVA_HOME if it has one, otherwise the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which("java", path=Path(home) / "bin")) or shutil.which("java")
    if not found:
        raise JavaNotFound(
            "no Java in JAVA_HOME or on the PATH: install Java 17 or later"
            " (on Debian: sudo apt-get install openjdk-17-jre-headless)"
        )
    return Path(found)
