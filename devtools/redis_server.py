"""A real Redis of one's own, for tests and benchmarks: the program `redis-server` of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from devtools.server import Server, ServerError


class RedisServer(Server):
    """A Redis server that keeps its data over `stop` and `kill` only if it is `append_only`.

    An append-only server has every write that it has answered on disk. `settings` are added to its
    configuration file.
    """

    name: ClassVar[str] = "Redis server"

    def __init__(self, append_only: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.password = secrets.token_urlsafe(16)
        self._settings = {
            "bind": "127.0.0.1",
            "requirepass": self.password,
            "save": '""',
            "appendonly": "yes" if append_only else "no",
            "appendfsync": "always",
            **(settings or {}),
        }

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def socket(self) -> Path:
        """A Unix socket that the server listens on as well."""
        return self.home / "redis.sock"

    def client(self, seconds: float = 60) -> redis.Redis:
        """Returns a new client with this time-out that never retries. The caller closes it."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self.password,
            socket_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
        )

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
        self.stop()

    def _prepare(self, home: Path) -> None:
        settings = {**self._settings, "port": self.port, "dir": f'"{home}"', "unixsocket": f'"{self.socket}"'}
        lines = (f"{name} {value}\n" for name, value in settings.items())
        (home / "redis.conf").write_text("".join(lines))

    def _command(self, home: Path) -> list[str]:
        return [_find_program(), str(home / "redis.conf")]

    def _is_ready(self) -> bool:
        """Logs in, because only our server knows the password."""
        with self.client(seconds=1) as client:
            try:
                client.ping()
            except RedisError:
                return False
        return True


def _find_program() -> str:
    found = shutil.which("redis-server")
    if not found:
        raise ServerError(
            "no redis-server on the PATH: install Redis 6.2 or later"
            " (on Debian: sudo apt-get install redis-server)"
        )
    return found
