"""Processes to kill and freeze, forked from one that has already imported everything.

Starting Python and importing Arrow and gRPC takes a second of CPU time; a fork takes a few milliseconds. A
forked process is like any other: it shares no thread, connection or file with its parent, which never uses
gRPC and opens nothing itself. It runs the same `main` as a process that is started.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

from headrace.errors import UnexpectedFailure
from headrace.protocol.grpc import GrpcConnector
from tests.waiting import wait_until

_IMPORTED = (
    "headrace.cli.connector",
    "headrace.connectors.files",
    "headrace.connectors.postgres",
    "headrace.connectors.redis",
    "headrace.connectors.sqlite",
    "headrace.connectors.webhook",
    "tests.crash.faulty_connector",
    "tests.crash.faulty_runtime",
    "tests.connectors.files.faulty_connector",
    "tests.connectors.files.faulty_runtime",
    "tests.connectors.redis.faulty_connector",
    "tests.connectors.redis.faulty_runtime",
    "tests.connectors.webhook.faulty_connector",
    "tests.connectors.webhook.faulty_runtime",
)
_MOST_BYTES = 1 << 20
"""Limit of a request, which contains the environment."""
_RUNNING, _FROZEN = "running", "frozen"


class ForkedProcess:
    """Runs `main` of a module with these arguments; the context manager kills it on exit."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading)
        try:
            self.pid = int(_forks().ask({"fork": [module, *arguments], "env": dict(os.environ)}, [writing]))
        finally:
            os.close(writing)
        self._exit_code: int | None = None

    def kill(self) -> None:
        """Kills the process with SIGKILL: no handler runs and nothing is flushed."""
        if self._exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def resume(self) -> None:
        """Resumes a frozen process."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_frozen(self) -> None:
        """Returns once the process has stopped itself with SIGSTOP or has ended."""
        wait_until(lambda: self._state() != _RUNNING, f"the end or freezing of process {self.pid}")

    def wait(self) -> int:
        """Waits for the end; returns the exit code, or the negative number of the signal that ended it."""
        if self._exit_code is None:
            wait_until(lambda: isinstance(self._state(), int), f"the end of process {self.pid}")
            self._exit_code = int(_forks().ask({"reap": self.pid}))
        return self._exit_code

    def _state(self) -> Any:
        return _forks().ask({"state": self.pid})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.stdout.close()


class ForkedConnector(ForkedProcess):
    """Runs `headrace connector NAME` on a free port, or `main` of another module with the same options."""

    def __init__(self, name: str, module: str = "headrace.cli", arguments: Sequence[str] = ()) -> None:
        before = arguments or (["connector"] if module == "headrace.cli" else [])
        super().__init__(module, [*before, name, "--grpc", "127.0.0.1:0"])
        line = self.stdout.readline()
        if "listens on" not in line:
            raise UnexpectedFailure(f"connector {name} did not start: exit {self.wait()}")
        self.address = line.rsplit(" ", 1)[1].strip()
        self.client = GrpcConnector(self.address)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        super().__exit__(*_)


class _Forks:
    """Client of the process that forks. When the socket closes, all forked processes are killed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.forking", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # must not receive Ctrl-C: it ends with the tests
                # Only a process with one thread can be forked safely, and importing numpy would start more.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    def ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))
        answer = self._socket.recv(_MOST_BYTES)
        if not answer:
            raise UnexpectedFailure(f"the process that is forked is gone: exit {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _forks() -> _Forks:
    forks = _Forks()
    atexit.register(forks.close)
    return forks


class _Zygote:
    """The process that forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: set[int] = set()

    def serve(self) -> None:
        """Answers requests until the tests have ended."""
        try:
            while self._answer_one():
                pass
        finally:
            for child in self._children:
                os.kill(child, signal.SIGKILL)

    def _answer_one(self) -> bool:
        text, descriptors, _, _ = socket.recv_fds(self._requests, _MOST_BYTES, 1)
        if not text:
            return False
        match json.loads(text):
            case {"fork": [module, *arguments], "env": environment}:
                answer: Any = self._fork(module, arguments, environment, descriptors[0])
            case {"state": pid}:
                answer = _state_of(pid)
            case {"reap": pid}:
                self._children.remove(pid)
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._requests.send(json.dumps(answer).encode())
        return True

    def _fork(self, module: str, arguments: list[str], environment: dict[str, str], stdout: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._requests.close()
            _run(module, arguments, environment, stdout)
        os.close(stdout)
        self._children.add(pid)
        return pid


def _run(module: str, arguments: list[str], environment: dict[str, str], stdout: int) -> None:
    """Runs the module as `python -m` does, and does not return."""
    try:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [module, *arguments]
        importlib.import_module(module).main()
        sys.stdout.flush()
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(1)


def _state_of(pid: int) -> str | int:
    """Returns whether the process is running or frozen, or its exit code if it has ended."""
    found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return _RUNNING
    if found.si_code == os.CLD_STOPPED:
        return _FROZEN
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def main() -> None:
    """Serves requests on the socket whose descriptor is the argument."""
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        for module in _IMPORTED:
            importlib.import_module(module)
        _Zygote(requests).serve()


if __name__ == "__main__":
    main()
