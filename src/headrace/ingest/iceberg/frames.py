"""How the rows of a scan come through a pipe: frames of a kind, a length and a body."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import BinaryIO

_HEAD = struct.Struct("<BQ")
HEAD_BYTES = _HEAD.size


class Frame(IntEnum):
    HEADER = 1
    """JSON: how far the table is, and the schema."""
    BATCH = 2
    """An Arrow IPC message."""
    END = 3
    ERROR = 4
    """JSON, as an error writes itself."""


def write_frame(pipe: BinaryIO, kind: Frame, body: bytes | memoryview = b"") -> None:
    pipe.write(_HEAD.pack(kind, len(body)))
    pipe.write(body)


def decode_head(head: bytes) -> tuple[Frame, int]:
    kind, length = _HEAD.unpack(head)
    return Frame(kind), length
