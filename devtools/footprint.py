"""Tracks what a test run leaves on this machine: processes, listening ports and files. Linux only."""

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
# pytest keeps the test folders of the last three runs for debugging.
_OF_PYTEST = "pytest-of-"


class Footprint:
    """Tracks the processes, ports and files of a run that is started with `environment`.

    A process belongs to the run if it has the run's environment, if it works in the run's temporary folder or
    names it on its command line (servers are started with a clean environment), or if its parent belongs to
    it.
    """

    def __init__(self) -> None:
        self._common = Path(tempfile.gettempdir())
        self._before = {*self._common.iterdir(), *self._common.glob("headrace-*/*"), *_in_repository()}
        self.home = Path(tempfile.mkdtemp(prefix="headrace-footprint-"))
        """The caller may keep its own files here; they do not count as leftovers."""
        self.folder = self.home / "tmp"
        self.folder.mkdir()
        # If we are root, PostgreSQL runs as another user, who must be able to enter the folder and to remove
        # its own files, as in any temporary folder.
        self.home.chmod(0o755)
        self.folder.chmod(0o1777)
        self._mark = f"{_MARK}={uuid4().hex}"
        self._pids: dict[int, str] = {}
        """Start time by process id, because ids are reused."""
        self._sockets: dict[str, int] = {}
        self._elsewhere: set[Path] = set()
        """Files that the run had open in the system's temporary folder instead of its own."""

    @property
    def environment(self) -> dict[str, str]:
        name, value = self._mark.split("=")
        # Java ignores TMPDIR.
        java = f"-Djava.io.tmpdir={self.folder}"
        return {name: value, "TMPDIR": str(self.folder), "JAVA_TOOL_OPTIONS": java}

    def look(self) -> None:
        """Records the run's processes, listening ports and open files; call it often during the run."""
        listening = _listening()
        for pid in self._find_processes():
            for link in _links(pid):
                inode = link.removeprefix("socket:[").removesuffix("]")
                if inode in listening:
                    self._sockets[inode] = listening[inode]
                self._note_file(Path(link))

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Calls `look` until the condition holds or the time is up; returns whether it held."""
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
        """Command lines of the processes that are running now."""
        return [command_of(pid) for pid in self._find_processes()]

    def left(self) -> list[str]:
        """Describes each process, port and file that is left, one line each, after the run has ended."""
        still = _listening()
        own = (path for path in self.folder.iterdir() if not path.name.startswith(_OF_PYTEST))
        elsewhere = {path for path in self._elsewhere if path.exists()} | (_in_repository() - self._before)
        return [
            *(f"process {pid}: {_shorten(command_of(pid))}" for pid in self._find_processes()),
            *(f"port {port}" for inode, port in self._sockets.items() if inode in still),
            *(f"file {path}" for path in sorted({*own, *elsewhere})),
        ]

    def remove(self) -> None:
        """Kills the processes that are left and removes the run's folder."""
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


def _shorten(command: str) -> str:
    """Shortens a command line in the middle, where Java's class path takes thousands of characters."""
    return command if len(command) <= _SHOWN else f"{command[: _SHOWN // 2]} ... {command[-_SHOWN // 2 :]}"


def _all_pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _start_of(pid: int) -> str:
    """Returns the start time of a process; empty if it has ended or is a zombie."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the process name, which may contain any character."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _in_repository() -> set[Path]:
    """Lists the repository's top-level files, because Spark and Derby write to the working directory."""
    return set(REPOSITORY.glob("[!.]*"))


def _links(pid: int) -> list[str]:
    """Returns the targets of the process's open file descriptors."""
    try:
        descriptors = os.listdir(_PROC / str(pid) / "fd")
    except OSError:
        return []
    return [_link(pid, f"fd/{one}") for one in descriptors]


def _listening() -> dict[str, int]:
    """Maps the inode of each listening socket to its port."""
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _read(pid: int, name: str) -> bytes:
    """Returns nothing if the process has ended or belongs to another user."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(_PROC / str(pid) / name)
    except OSError:
        return ""
