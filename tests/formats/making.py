"""Helpers for making fixtures."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.formats.archives import FORMATS

ROOT = FORMATS.parents[1]


def environment() -> dict[str, str]:
    """Returns the environment of a process that makes a fixture: it hides the name of the machine."""
    return {**os.environ, "PYTHONPATH": f"{FORMATS / 'neutral'}{os.pathsep}{ROOT / 'src'}{os.pathsep}{ROOT}"}


def revision() -> str:
    """Returns the revision of the last change to src."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", "src"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def refuse_private(folder: Path) -> None:
    """Raises if a file reveals something about the machine that it was made on."""
    home = str(Path.home())
    paths = {str(ROOT), sys.prefix, home} - {"/"}
    names = {socket.gethostname(), getpass.getuser()} - {"root"}
    # A host or user name may be an ordinary word, so it counts only in the contexts where names are written.
    patterns = [
        *(re.escape(path) for path in paths),
        *(rf"(\bon |\"){re.escape(name)}(\"|:\d| at )" for name in names),
    ]
    private = re.compile("|".join(patterns).encode())
    for path in sorted(folder.rglob("*")):
        found = private.search(path.read_bytes()) if path.is_file() else None
        if found:
            raise ValueError(f"{path} tells of the machine that it was made on: {found[0]!r}")
