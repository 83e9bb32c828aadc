"""The native admission of messages, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from headrace.ingest.collections import write_schema

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

Message = tuple[bytes, bytes]
"""Header and body."""


class Refused(NamedTuple):
    error: str
    message: str


class Admission:
    """Admits messages as the server's port does."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def admit(
        self,
        messages: Sequence[Message],
        kept: pa.Schema,
        *,
        required: Sequence[int] = (),
        most: int = 64 << 20,
        without: int = 0,
    ) -> list[bytes | Refused]:
        """What the log would have of each batch of a stream, of which the first message is the schema."""
        (schema, _), *rest = messages
        kept_message = write_schema(kept)
        request = {
            "schema": len(schema),
            "kept": len(kept_message),
            "required": list(required),
            "most": most,
            "messages": [[len(header), len(body)] for header, body in rest],
            "without": without,
        }
        assert self.process.stdin is not None
        parts = [part for message in rest for part in message]
        data = b"".join([json.dumps(request).encode(), b"\n", schema, kept_message, *parts])
        self.process.stdin.write(data)
        self.process.stdin.flush()
        return [answer for _ in rest if (answer := self._answer()) is not None]

    def _answer(self) -> bytes | Refused | None:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "error" in answer:
            return Refused(answer["error"], answer["message"])
        return self.process.stdout.read(answer["bytes"]) if answer else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def read(kept: pa.Schema, messages: Sequence[bytes]) -> pa.RecordBatch:
    """The rows of messages in the log, as those who read it see them."""
    stream = b"".join([write_schema(kept), *messages, END_OF_STREAM])
    with pa.ipc.open_stream(pa.py_buffer(stream), options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        return pa.concat_batches(list(reader))
