"""What the making of each fixture needs."""

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
    """Of a process that makes a fixture: it finds our modules, and does not know its machine's name."""
    return {**os.environ, "PYTHONPATH": f"{FORMATS / 'neutral'}{os.pathsep}{ROOT}"}


def revision() -> str:
    """Of the code that is in use."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", "src"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def refuse_private(folder: Path) -> None:
    """Raises if a file tells of the machine that it was made on."""
    home = str(Path.home())
    paths = {str(ROOT), sys.prefix, home} - {"/"}
    names = {socket.gethostname(), getpass.getuser()} - {"root"}
    # A name may be as short as a word of any text: it counts where we and others write it.
    told = [
        *(re.escape(path) for path in paths),
        *(rf"(\bon |\"){re.escape(name)}(\"|:\d| at )" for name in names),
    ]
    private = re.compile("|".join(told).encode())
    for path in sorted(folder.rglob("*")):
        found = private.search(path.read_bytes()) if path.is_file() else None
        if found:
            raise ValueError(f"{path} tells of the machine that it was made on: {found[0]!r}")
