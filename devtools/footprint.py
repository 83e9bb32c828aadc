"""What a run has on this machine: its processes, the ports they listen on, and its files. Linux alone."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from devtools.running import REPOSITORY

_MARK = "HEADRACE_RUN"
_POLL_SECONDS = 0.2
_LISTENING = "0A"
_SHOWN = 600
_PROC = Path("/proc")
# The folders of tests: pytest keeps those of the last three runs, so that a failure can be looked into.
_OF_PYTEST = "pytest-of-"


class Footprint:
    """A run is started with `environment`; what it has is seen by `look`, and by `left` when it has ended.

    A process belongs to it if it was given the environment, or works in the run's temporary folder or names
    that on its command line, as servers do, which are given a clean environment; or if its parent does.
    """

    def __init__(self) -> None:
        self._common = Path(tempfile.gettempdir())
        self._before = {*self._common.iterdir(), *self._common.glob("headrace-*/*"), *_in_repository()}
        self.home = Path(tempfile.mkdtemp(prefix="headrace-footprint-"))
        """For what the caller wants to keep beside it."""
        self.folder = self.home / "tmp"
        self.folder.mkdir()
        # PostgreSQL, which refuses to run as root, is another user then: as in any temporary folder, it has
        # to get there, and to remove what is its own.
        self.home.chmod(0o755)
        self.folder.chmod(0o1777)
        self._mark = f"{_MARK}={uuid4().hex}"
        self._pids: dict[int, str] = {}
        """With the time of their start: a number is used again."""
        self._sockets: dict[str, int] = {}
        self._elsewhere: set[Path] = set()
        """Files that a process of the run had open, in the common temporary folder in place of its own."""

    @property
    def environment(self) -> dict[str, str]:
        name, value = self._mark.split("=")
        # Java alone does not ask TMPDIR where its files should be.
        java = f"-Djava.io.tmpdir={self.folder}"
        return {name: value, "TMPDIR": str(self.folder), "JAVA_TOOL_OPTIONS": java}

    def look(self) -> None:
        """Notes the processes of the run and what they listen on; to be called often while it runs."""
        listening = _listening()
        for pid in self._find_processes():
            for link in _links(pid):
                inode = link.removeprefix("socket:[").removesuffix("]")
                if inode in listening:
                    self._sockets[inode] = listening[inode]
                self._note_file(Path(link))

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Looks until the condition is true, which is returned, or until so many seconds have passed."""
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            if condition():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)

    @property
    def commands(self) -> list[str]:
        """The command lines of the processes that run now."""
        return [command_of(pid) for pid in self._find_processes()]

    def left(self) -> list[str]:
        """A line about each thing that is there although the run has ended."""
        still = _listening()
        own = (path for path in self.folder.iterdir() if not path.name.startswith(_OF_PYTEST))
        elsewhere = {path for path in self._elsewhere if path.exists()} | (_in_repository() - self._before)
        return [
            *(f"process {pid}: {_in_short(command_of(pid))}" for pid in self._find_processes()),
            *(f"port {port}" for inode, port in self._sockets.items() if inode in still),
            *(f"file {path}" for path in sorted({*own, *elsewhere})),
        ]

    def remove(self) -> None:
        """Kills what is left, and removes the folder."""
        for pid in self._find_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def _find_processes(self) -> list[int]:
        self._pids = {pid: since for pid, since in self._pids.items() if _start_of(pid) == since}
        parents = {pid: _parent_of(pid) for pid in _all_pids() if pid != os.getpid()}
        found = {pid for pid in parents if pid in self._pids or self._is_marked(pid)}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        self._pids |= {pid: since for pid in found if (since := _start_of(pid))}
        return sorted(self._pids)

    def _is_marked(self, pid: int) -> bool:
        folder = str(self.folder)
        return (
            self._mark.encode() in _read(pid, "environ").split(b"\0")
            or folder.encode() in _read(pid, "cmdline")
            or _link(pid, "cwd").startswith(folder)
        )

    def _note_file(self, path: Path) -> None:
        if path.is_relative_to(self._common) and not path.is_relative_to(self.home):
            depth = len(self._common.parts)
            top, below = Path(*path.parts[: depth + 1]), Path(*path.parts[: depth + 2])
            if top not in self._before:
                self._elsewhere.add(top)
            elif top.match("headrace-*") and below not in self._before:
                self._elsewhere.add(below)


def command_of(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _in_short(command: str) -> str:
    """Java's has thousands of characters in the middle, with its class path."""
    return command if len(command) <= _SHOWN else f"{command[: _SHOWN // 2]} ... {command[-_SHOWN // 2 :]}"


def _all_pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _start_of(pid: int) -> str:
    """When a process was started; nothing of one that has ended, and waits for its parent to notice."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """What follows the name, which may have anything in it."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _in_repository() -> set[Path]:
    """What Spark and Derby would leave where they are started."""
    return set(REPOSITORY.glob("[!.]*"))


def _links(pid: int) -> list[str]:
    """What a process has open."""
    try:
        descriptors = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return []
    return [_link(pid, f"fd/{one}") for one in descriptors]


def _listening() -> dict[str, int]:
    """The ports on which anybody listens, by the numbers of their sockets."""
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _read(pid: int, name: str) -> bytes:
    """Nothing of a process that is gone, or of somebody else's."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(_PROC / str(pid) / name)
    except OSError:
        return ""
