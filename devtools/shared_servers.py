"""One server of each kind for a whole test run, shared by all of its processes.

The process that hosts the servers starts each one when it is first requested. The others request it over a
Unix socket and get a copy that knows addresses and passwords (`devtools.server`).
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from devtools.s3_server import S3Server
from devtools.server import Server, ServerError

REDIS_DATABASES = 4096
"""One for each test that requests a database, with room to spare."""
_WAREHOUSE = "warehouse"


class Servers(Protocol):
    def get(self, kind: str) -> Any:
        """Returns the server of a kind, starting it if necessary; raises ServerError if it cannot start."""
        ...


class ServerHost:
    """Hosts the servers in this process and serves requests for them at `address`, authenticated by `key`.

    It is a context manager that stops all servers when it exits.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-tests-")
        self.folder = Path(self._folder.name)
        self.address = str(self.folder / "servers")
        self.key = secrets.token_bytes(32)
        self.running: dict[str, Server] = {}
        self._kinds: dict[str, Callable[[], Server]] = {
            "postgres": partial(PostgresServer, is_durable=False),
            "redis": partial(RedisServer, append_only=True, settings={"databases": str(REDIS_DATABASES)}),
            "kafka": KafkaBroker,
            "s3": S3Server,
            "rest": self._rest_catalog,
        }
        self._locks = {kind: threading.Lock() for kind in self._kinds}
        self._failures: dict[str, str] = {}
        self._listener = Listener(self.address, "AF_UNIX", authkey=self.key)
        threading.Thread(target=self._listen, name="headrace-servers", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for server in reversed(self.running.values()):
            server.close()
        self.running.clear()
        self._folder.cleanup()

    def get(self, kind: str) -> Any:
        """Starts a server of each kind at most once: after a failure, every later test fails at once."""
        with self._locks[kind]:
            if kind in self._failures:
                raise ServerError(self._failures[kind])
            if kind not in self.running:
                try:
                    server = self._kinds[kind]()
                    server.start()
                except Exception as error:
                    self._failures[kind] = str(error)
                    raise
                self.running[kind] = server
            return self.running[kind]

    def _rest_catalog(self) -> Server:
        """Creates a catalog whose warehouse is a bucket of the S3 server."""
        s3 = self.get("s3")
        s3.create_bucket(_WAREHOUSE)
        return IcebergRestCatalog(f"s3://{_WAREHOUSE}/rest", s3)

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # the listener was closed
                return
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            try:
                answer: object = self.get(connection.recv())
            except Exception as error:  # noqa: BLE001 - passed on to the client
                answer = ServerError(str(error))
            connection.send(answer)


class RemoteServers:
    """Requests servers from the process that hosts them."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address, self._key = address, key

    def get(self, kind: str) -> Any:
        with Client(self._address, "AF_UNIX", authkey=self._key) as connection:
            connection.send(kind)
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer
