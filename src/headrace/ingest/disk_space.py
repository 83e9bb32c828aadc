"""Stops a server from taking more before the disk of its log is full.

What was taken has to be committed, and with an embedded catalog and warehouse that takes room on the same
disk: on one that is full to the last byte nothing could be committed, so nothing could be removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
_LARGEST_SHARE = 10  # of a small disk the reserve is no more than a tenth
_MARGIN = 4  # a quarter of the reserve has to be free besides it before writes are taken again
LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats the disk says how much room it has."""


class DiskSpace:
    """Looks several times a second, on a thread of its own: a disk that hangs holds up nobody.

    `room(folder)` says how many bytes are free there, and how many there are; `on_problem(reason or None)` is
    called when it changes. `reserve` bytes are to stay free, besides `owed()`: what was taken will still need
    that much.
    """

    def __init__(
        self,
        folder: Path,
        reserve: int,
        owed: Callable[[], int],
        room: Callable[[Path], tuple[int, int]],
        on_problem: Callable[[str | None], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._reserve, self._owed, self._room = folder, reserve, owed, room
        self._on_problem, self._beat = on_problem, beat
        self.free = self.needed = 0
        self.problem: str | None = None
        """Why nothing may be taken now."""
        self._closing = Event()
        self._thread = Thread(target=self._run, name="disk space", daemon=True)

    def start(self) -> None:
        self._beat()
        self.look()
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def look(self) -> None:
        try:
            self.free, size = self._room(self._folder)
        except OSError as error:
            self._note(
                f"the disk of {self._folder} does not say how much room it has ({error.strerror}): mend it"
            )
            return
        reserve = min(self._reserve, size // _LARGEST_SHARE)
        self.needed = reserve + self._owed()
        if self.free < self.needed:
            self._note(
                f"the disk of {self._folder} is almost full, and the rest is for what was taken before: free "
                "space, or wait until that is committed"
            )
        elif self.problem is None or self.free >= self.needed + reserve // _MARGIN:
            self._note(None)

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            self._beat()
            self.look()

    def _note(self, problem: str | None) -> None:
        if problem is None and self.problem is not None:
            log.warning("the disk of %s has room again", self._folder)
        elif problem != self.problem:
            log.error("%s", problem)
        self.problem = problem
        self._on_problem(problem)


def room_of(folder: Path) -> tuple[int, int]:
    """Returns how many bytes are free on the disk of a folder, and how many it has."""
    told = os.statvfs(folder)
    return told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize


def shares_disk(folder: Path, url: str) -> bool:
    """Returns whether a URL names a folder, which may not be there yet, on the disk of another one."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or not parts.path.startswith("/"):
        return False
    path = Path(unquote(parts.path))
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    return nearest.stat().st_dev == folder.stat().st_dev
