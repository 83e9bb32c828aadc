"""A Spark cluster of one's own: a standalone master and two workers, as processes of this machine.

Each worker has an address of its own, since Spark runs two attempts at a task on two hosts only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from devtools.java_server import JavaServer, java_command
from devtools.ports import free_port
from devtools.server import ServerError

_HOSTS = ("127.0.0.1", "127.0.0.2")
_REGISTER_SECONDS = 60.0
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """One core and 700 MB on each worker. A context manager, which removes every trace at its end."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._master = _Master()
        self._workers = [_Worker(self._master, host) for host in _HOSTS]

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.enter_context(self._master)
            with ThreadPoolExecutor() as pool:
                list(pool.map(started.enter_context, self._workers))
            self._await_workers()
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def master(self) -> str:
        """Its URL."""
        return self._master.url

    def executors(self) -> list[int]:
        """The ids of the processes in which the workers now run executors."""
        homes = {worker.home for worker in self._workers}
        return [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdecimal() and _is_executor(process, homes)
        ]

    def _await_workers(self) -> None:
        deadline = time.monotonic() + _REGISTER_SECONDS
        while (self._master.status() or {}).get("aliveworkers") != len(self._workers):
            if time.monotonic() > deadline:
                raise ServerError(f"not all Spark workers were known in {_REGISTER_SECONDS:.0f} s")
            time.sleep(0.05)


class _SparkDaemon(JavaServer):
    main: ClassVar[str]

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    @classmethod
    def jars(cls) -> list[Path]:
        return [find_spark() / "jars/*"]

    def _draw_ports(self) -> None:
        self._ports = [free_port(), free_port()]

    def _prepare(self, home: Path) -> None:
        (home / "work").mkdir()

    def _command(self, home: Path) -> list[str]:
        # Not by bin/spark-class, which starts another Java to find out how to start this one.
        spark = find_spark()
        surroundings = {
            "SPARK_HOME": str(spark),
            # Which bin/spark-class would say; a worker needs to know it.
            "SPARK_SCALA_VERSION": _scala_version(spark),
            "SPARK_LOCAL_IP": self._host,
            "SPARK_LOCAL_DIRS": str(home / "work"),
        }
        addresses = ["--host", self._host, "--port", str(self.port), "--webui-port", str(self._ports[1])]
        return [
            "env",
            *(f"{name}={value}" for name, value in surroundings.items()),
            *java_command(home, self.jars(), self.main, *addresses, *self._arguments(home)),
        ]

    def _arguments(self, home: Path) -> list[str]:  # noqa: ARG002 - a worker's are there
        return []

    def _answers(self) -> bool:
        return self.status() is not None

    def status(self) -> Any:
        """What its web page says; None if it does not say anything yet."""
        connection = HTTPConnection(self._host, self._ports[1], timeout=5)
        try:
            connection.request("GET", "/json/")
            return json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()


class _Master(_SparkDaemon):
    name: ClassVar[str] = "Spark master"
    main = "org.apache.spark.deploy.master.Master"

    def __init__(self) -> None:
        super().__init__(_HOSTS[0])

    @property
    def url(self) -> str:
        return f"spark://{self._host}:{self.port}"


class _Worker(_SparkDaemon):
    name: ClassVar[str] = "Spark worker"
    main = "org.apache.spark.deploy.worker.Worker"

    def __init__(self, master: _Master, host: str) -> None:
        super().__init__(host)
        self._master = master

    def _arguments(self, home: Path) -> list[str]:
        return ["--cores", "1", "--memory", "700m", "--work-dir", str(home / "work"), self._master.url]


def find_spark() -> Path:
    """The folder of the Spark that is installed."""
    # Importing the package takes a second; its place is all that is needed.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError("PySpark is not installed: run `make setup`")
    return Path(spec.origin).parent


def _scala_version(spark: Path) -> str:
    (core,) = spark.glob("jars/spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]


def _is_executor(process: Path, homes: set[Path]) -> bool:
    """Whether it is one, in a folder of these workers."""
    try:
        return (
            _EXECUTOR in (process / "cmdline").read_bytes()
            and Path(os.readlink(process / "cwd")).parents[2] in homes
        )
    except OSError:  # it has ended, or is not ours
        return False
