"""What the servers that run on Java have in common."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from devtools.server import Server
from headrace.spark.jars import find_java

_LISTENING = "0A"


class JavaServer(Server):
    @classmethod
    @abstractmethod
    def jars(cls) -> list[Path]:
        """Returns the jars of the server's class path and downloads those that are missing."""

    def _is_ready(self) -> bool:
        return self._listens() and self._answers()

    def _answers(self) -> bool:
        """True if the server, which is already listening, answers as it should."""
        return True

    def _listens(self) -> bool:
        """True if the process that listens on the port belongs to this server, not to an earlier one."""
        assert self._process is not None
        sockets = _listening_sockets(self.port)
        return bool(sockets) and not sockets.isdisjoint(_open_sockets(self._process.pid))


def _listening_sockets(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                found.add(f"socket:[{fields[9]}]")
    return found


def _open_sockets(session: int) -> set[str]:
    """Returns the open sockets of all processes in a session."""
    found = set()
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # the process has ended or is not ours
            if process.name.isdecimal() and os.getsid(int(process.name)) == session:
                found |= {os.readlink(descriptor) for descriptor in (process / "fd").iterdir()}
    return found


def java_command(home: Path, jars: Sequence[Path], main: str, *arguments: str) -> list[str]:
    """Runs a main class. The JVM is set to start fast and to stay small, and leaves its traces in `home`."""
    return [
        str(find_java()),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={home}",
        f"-Duser.home={home}",
        "-Dlog4j2.level=WARN",
        "-classpath",
        ":".join(map(str, jars)),
        main,
        *arguments,
    ]


def http_status(port: int, path: str) -> int | None:
    """What a server answers; None if it does not."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def write_properties(path: Path, properties: dict[str, str]) -> None:
    """A properties file, which only its owner can read: there are secrets in some."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
