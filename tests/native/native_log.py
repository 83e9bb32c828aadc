"""The native log, in a process of its own, and what its segments say to the reader in Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.native.programs import program


class NativeLog:
    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, *records: dict[str, Any]) -> bytes:
        """The bytes of records, as they stand in a segment."""
        return bytes.fromhex(self._ask(encode=records))

    def state(self, state: Any) -> Any:
        """A state, read and written again."""
        return self._ask(state=state)

    def live(self, **life: Any) -> Any:
        """A life of a log by a random schedule."""
        return self._ask(live=life)

    def _ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the program has ended: see its error output"
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def native_log() -> Iterator[NativeLog]:
    log = NativeLog(program("log"))
    try:
        yield log
    finally:
        log.close()
