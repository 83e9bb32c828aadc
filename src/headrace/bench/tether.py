"""A child process's side of the talk with the bench: JSON lines on standard input and output.

The end of standard input is the end of the child: the bench may be killed in any way and leave none behind.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, UnexpectedFailure

_PROGRESS_SECONDS = 0.2


class Tether:
    def __init__(self, on_end: Callable[[], None] = lambda: os._exit(1)) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._on_end = on_end
        threading.Thread(target=self._listen, name="tether", daemon=True).start()

    def receive(self) -> dict[str, Any]:
        command: dict[str, Any] = json.loads(self._lines.get())
        return command

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def report(self, count: Callable[[], int]) -> threading.Event:
        """Sends how far the work is, a few times a second, until the event is set."""
        done = threading.Event()

        def loop() -> None:
            while not done.wait(_PROGRESS_SECONDS):
                self.send(progress=count())

        threading.Thread(target=loop, name="progress", daemon=True).start()
        return done

    def _listen(self) -> None:
        # Not by sys.stdin: its lock would be held at the interpreter's end, which is fatal to it.
        rest = b""
        while data := os.read(0, 65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._lines.put(line)
        self._on_end()


def work(task: Callable[[Tether, dict[str, Any]], dict[str, Any]]) -> None:
    """A child's main: takes one command and answers with the task's result, or why there is none."""
    tether = Tether()
    command = tether.receive()
    try:
        result = task(tether, command)
    except HeadraceError as error:
        tether.send(error=error.to_json())
    except Exception as failure:  # noqa: BLE001 - the bench says it in one sentence
        tether.send(error=UnexpectedFailure(f"{type(failure).__name__}: {failure}").to_json())
    else:
        tether.send(result=result)
    # Threads may be stuck inside of gRPC, where the interpreter's orderly end would wait for them.
    os._exit(0)
