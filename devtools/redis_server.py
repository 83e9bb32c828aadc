"""A real Redis of one's own, for tests and benchmarks: the program `redis-server` of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from devtools.processes import free_port, start_server, stop_server, tail

_START_SECONDS = 60.0


class RedisServerError(RuntimeError):
    """The server cannot be found, started or stopped."""


class RedisServer:
    """One server, on a free port of 127.0.0.1, with its data in a folder of its own.

    A context manager, which removes every trace at its end. After `stop` or `kill` the server is down but
    keeps its port and, if it is `append_only`, its data: what it has answered is on disk. It also goes away
    when this process dies. `settings` are more of its configuration file's.
    """

    def __init__(self, append_only: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self.password = secrets.token_urlsafe(16)
        self._port = free_port()
        self._settings = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "requirepass": self.password,
            "save": '""',
            "appendonly": "yes" if append_only else "no",
            "appendfsync": "always",
            **(settings or {}),
        }
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self._port}/0"

    @property
    def home(self) -> Path:
        """Where its data are, and the socket `redis.sock`."""
        assert self._home is not None, "start the server first"
        return self._home

    def client(self) -> redis.Redis:
        """A new client of it, which tries nothing twice; the caller closes it."""
        return redis.Redis(
            host="127.0.0.1",
            port=self._port,
            password=self.password,
            socket_timeout=10,
            retry=Retry(NoBackoff(), 0),
        )

    def start(self) -> None:
        """Starts the server, for the first time or again; returns when it answers."""
        if self._process is not None:
            raise RedisServerError("this Redis server is already started")
        program = _find_program()
        try:
            if self._home is None:
                self._home = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
                settings = {
                    **self._settings,
                    "dir": str(self._home),
                    "unixsocket": str(self._home / "redis.sock"),
                }
                lines = (f"{name} {value}\n" for name, value in settings.items())
                (self._home / "redis.conf").write_text("".join(lines))
            log = self._home / "server.log"
            with log.open("ab") as output:
                self._process = start_server(
                    [program, str(self._home / "redis.conf")],
                    self._home,
                    signal.SIGTERM,
                    stdout=output,
                    stderr=output,
                    cwd=self._home,
                )
            self._await_ready(self._process, log)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """An orderly shutdown; does nothing if it is not started."""
        if self._process is not None:
            stop_server(self._process)
            self._process = None

    def kill(self) -> None:
        """What kill -9 does: nothing is flushed."""
        assert self._process is not None, "start the server first"
        with self.client() as client:
            pid = int(client.info("server")["process_id"])
        os.kill(pid, signal.SIGKILL)
        # First its end and then that of the pipe, which alone would mean that this process is dead.
        self._process.wait()
        self._process.communicate()
        self._process = None

    def close(self) -> None:
        """Ends the server for good and removes its data; does nothing if there are none."""
        self.stop()
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def _await_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if process.poll() is not None:
                raise RedisServerError(f"Redis did not start:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise RedisServerError(f"Redis was not ready in {_START_SECONDS:.0f} s:\n{tail(log)}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                client.ping()
            except RedisError:
                return False
        return True


def _find_program() -> str:
    found = shutil.which("redis-server")
    if not found:
        raise RedisServerError(
            "no redis-server on the PATH: install Redis 6.2 or later"
            " (on Debian: sudo apt-get install redis-server)"
        )
    return found
