"""A connector to which something happens in the middle of a transaction, once; all else is SQLite's or
PostgreSQL's.

`install` makes it known to Python's workers as any package would. What is to happen, and what did, are files
beside the copy of this module that they import.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headrace.connectors.postgres import PostgresConnector
from headrace.connectors.sqlite import SqliteConnector
from headrace.protocol.messages import Open, Opened, Request, Response, StartedCommit
from headrace.protocol.stream import ConnectorStream

FOLDER = Path(__file__).parent
_MODULE = "headrace_struck"
# Longer than any test waits for the driver, which ends this process.
_WAIT_SECONDS = 600


@dataclass
class Strike:
    """What happens to the first attempt that comes to this point in an epoch after the first."""

    folder: Path
    """Python's workers need it on their path."""

    def plan(self, at: str, what: str) -> None:
        """`at`: Flush, when all Loads were taken; StartCommit, when all Stores were; StartedCommit, when the
        endpoint has committed. `what`: kill, of its own process; wait, until another attempt at the same
        shard has committed; orphan, in a process that outlives its executor, until the epoch after has been.
        """
        self.forget()
        (self.folder / "plan.json").write_text(json.dumps({"at": at, "what": what}))

    def forget(self) -> None:
        for path in self.folder.iterdir():
            if path.is_file() and path.suffix != ".py":
                path.unlink(missing_ok=True)  # a worker may be at it

    @property
    def struck(self) -> int | None:
        """The process that it happened to; None before."""
        with suppress(FileNotFoundError, ValueError):
            return int((self.folder / "struck").read_text())
        return None

    def outcome(self) -> str:
        """How its transaction ended: the name of an error, or `ended`."""
        from tests.waiting import wait_until  # imported here because workers do not have it

        path = self.folder / "outcome"
        wait_until(path.exists, "the end of what was struck")
        return path.read_text()


def install(folder: Path) -> Strike:
    """As the connectors `struck-sqlite` and `struck-postgres`."""
    information = folder / f"{_MODULE}-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[headrace.connectors]\n"
        f"struck-sqlite = {_MODULE}:StruckSqlite\nstruck-postgres = {_MODULE}:StruckPostgres\n"
    )
    shutil.copy(__file__, folder / f"{_MODULE}.py")
    return Strike(folder)


class StruckSqlite(SqliteConnector):
    def transactions(self, stream: ConnectorStream) -> None:
        with _Watched(stream) as watched:
            super().transactions(cast(ConnectorStream, watched))


class StruckPostgres(PostgresConnector):
    def transactions(self, stream: ConnectorStream) -> None:
        with _Watched(stream) as watched:
            super().transactions(cast(ConnectorStream, watched))


class _Watched:
    """A stream that looks at what goes through it."""

    def __init__(self, stream: ConnectorStream) -> None:
        self._stream = stream
        self._range = ""
        self._is_first_epoch = True
        self._is_struck = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_struck:
            _write("outcome", kind.__name__ if kind else "ended")

    def receive(self) -> Request | None:
        request = self._stream.receive()
        if isinstance(request, Open):
            self._range = str(request.key_range)
        self._look(type(request).__name__)
        return request

    def send(self, response: Response) -> None:
        if isinstance(response, Opened):
            self._is_first_epoch = "epoch" not in (response.runtime_checkpoint or {})
        self._look(type(response).__name__)
        if isinstance(response, StartedCommit) and not self._is_first_epoch:
            _write(self._commit(), "")
        self._stream.send(response)

    def _look(self, message: str) -> None:
        path = FOLDER / "plan.json"
        if self._is_first_epoch or not path.exists():
            return
        plan = json.loads(path.read_text())
        if message != plan["at"] or not _claim():
            return
        self._is_struck = True
        if plan["what"] == "orphan":
            os.setsid()  # or it would be told that the executor is gone
        _write("struck", str(os.getpid()))
        if plan["what"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + _WAIT_SECONDS
        awaited = FOLDER / self._commit(later=plan["what"] == "orphan")
        while not awaited.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _commit(self, later: int = 0) -> str:
        """The file that says of it."""
        return f"committed {self._range} {self._stream.runtime_checkpoint['epoch'] + later}"


def _claim() -> bool:
    """True for one process and once."""
    try:
        (FOLDER / "claimed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _write(name: str, text: str) -> None:
    """So that nobody reads half of it."""
    unfinished = FOLDER / f"{name}.{os.getpid()}"
    unfinished.write_text(text)
    unfinished.rename(FOLDER / name)
