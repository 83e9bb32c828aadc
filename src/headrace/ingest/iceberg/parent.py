"""The server's end of a process that it talks to on stdin and stdout, with a time limit on everything."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

from headrace.ingest.iceberg.child import DIE_WITH_PARENT

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 1 << 20
_LAST_WORDS_SECONDS = 1.0
_LOWEST_PRIORITY = 19
_SENT_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ChildGone(Exception):
    """The process ended, or did not answer in time."""


class ChildSilent(ChildGone):
    """It did not answer in time."""


class ChildKilled(ChildGone):
    """It was ended by a signal that others send, and that no fault of its own raises."""


class Child:
    """A process that reads lines of JSON; after any error it is of no more use and has to be closed."""

    def __init__(self, command: Sequence[str], niceness: int = 0) -> None:
        """`niceness` is added to our own."""
        # The kernel would send the signal when the *thread* that started the process ends. Other threads than
        # the main one may do so long before the server does; then the child has only the end of its stdin.
        outlived = [DIE_WITH_PARENT] if threading.current_thread() is threading.main_thread() else []
        self._process = subprocess.Popen(
            [*command, *outlived],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        if niceness:
            ours = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, self._process.pid, min(ours + niceness, _LOWEST_PRIORITY))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._answers = self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        self._unread = bytearray()
        self._logs = threading.Thread(target=self._relay_logs, name="logs of a child", daemon=True)
        self._logs.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, value: Any, deadline: float) -> None:
        left = memoryview(json.dumps(value).encode() + b"\n")
        try:
            while left:
                self._wait(self._requests, select.POLLOUT, deadline)
                left = left[os.write(self._requests, left[:_MOST_AT_ONCE]) :]
        except OSError as error:
            raise self._gone() from error

    def read_line(self, deadline: float) -> bytes:
        while (end := self._unread.find(b"\n")) < 0:
            self._read_more(deadline)
        return self._take(end + 1)

    def read(self, size: int, deadline: float) -> bytes:
        while len(self._unread) < size:
            self._read_more(deadline)
        return self._take(size)

    def kill(self) -> None:
        """What kill -9 does; other threads that wait for the process hear of its end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._logs.join(_LAST_WORDS_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _relay_logs(self) -> None:
        """Logs what the child does as if it were said here, so that one format holds for all."""
        assert self._process.stderr is not None
        with io.BufferedReader(cast(io.RawIOBase, self._process.stderr)) as lines:
            for line in lines:
                try:
                    said = json.loads(line)
                    logging.getLogger(said["logger"]).log(said["level"], "%s", said["message"])
                except (
                    ValueError,
                    TypeError,
                    KeyError,
                ):  # not by its logging: a library's words, or its last
                    log.warning("%s", line.decode(errors="replace").rstrip())

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._unread)[:size])
        del self._unread[:size]
        return taken

    def _read_more(self, deadline: float) -> None:
        self._wait(self._answers, select.POLLIN, deadline)
        data = os.read(self._answers, _MOST_AT_ONCE)
        if not data:
            raise self._gone()
        self._unread += data

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
            raise ChildSilent("it did not answer in time")

    def _gone(self) -> ChildGone:
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return ChildGone("it closed its end")
        kind = ChildKilled if -status in _SENT_BY_OTHERS else ChildGone
        return kind(f"it ended with {status}")


def python_module(name: str) -> list[str]:
    return [sys.executable, "-m", name]
