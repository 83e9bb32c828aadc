"""Puts load on the machine while tests run: keeps two cores and the disk busy.

    python -m devtools.load burn </dev/zero
    python -m devtools.load sync </dev/zero

Each process ends at the end of file on its standard input, and therefore with the process that holds the
other end of the pipe, however that one ends. The file that it writes has no name, so nothing is left of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from devtools.running import REPOSITORY

_KINDS = ("burn", "burn", "sync")
_CHUNK = bytes(1 << 20)
_FILE_CHUNKS = 512


@contextmanager
def loaded() -> Iterator[None]:
    """Runs two processes that use a core each and one that fills the page cache and syncs it."""
    with ExitStack() as stack:
        for kind in _KINDS:
            # A separate process group, so that Ctrl-C reaches only its owner.
            command = [sys.executable, "-m", "devtools.load", kind]
            process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, process_group=0)
            stack.callback(_end, process)
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def main(kind: str) -> None:
    threading.Thread(target=_end_with_the_owner, daemon=True).start()
    if kind == "burn":
        while True:
            pass
    with tempfile.TemporaryFile() as file:
        while True:
            fill(file, _FILE_CHUNKS)


def fill(file: BinaryIO, chunks: int) -> None:
    """Writes that many MiB, syncs and reads them, and truncates the file."""
    for _ in range(chunks):
        file.write(_CHUNK)
    file.flush()
    os.fsync(file.fileno())
    file.seek(0)
    while file.read(len(_CHUNK)):
        pass
    file.seek(0)
    file.truncate()


def _end_with_the_owner() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
