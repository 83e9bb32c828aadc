"""Messages below Arrow's own client: protobuf, HTTP/2 and gRPC made by hand, right or wrong as wanted."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pyarrow as pa

from tests.waiting import DEADLINE_SECONDS

SERVICE = "/arrow.flight.protocol.FlightService"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH, COMMAND = 1, 2

_DATA, _HEADERS, _RESET, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, value: bytes | int) -> bytes:
    """A protobuf field: bytes with their length, or an integer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def descriptor(*path: bytes, kind: int = PATH, command: bytes = b"") -> bytes:
    return field(1, kind) + (field(2, command) if command else b"") + b"".join(field(3, p) for p in path)


def flight_data(
    *, to: bytes | None = None, header: bytes = b"", metadata: bytes = b"", body: bytes = b""
) -> bytes:
    """A FlightData message."""
    parts = [field(1, to)] if to is not None else []
    parts += [field(number, value) for number, value in ((2, header), (3, metadata), (1000, body)) if value]
    return b"".join(parts)


def parts_of(message: pa.Buffer) -> tuple[bytes, bytes]:
    """Header and body of an encapsulated IPC message."""
    data = message.to_pybytes()
    continuation, length = struct.unpack_from("<Ii", data)
    assert continuation == 0xFFFFFFFF
    return data[8 : 8 + length], data[8 + length :]


def ipc_messages(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> list[tuple[bytes, bytes]]:
    """Header and body of the schema, then of the dictionaries and batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found = []
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        body = message.body
        found.append((message.metadata.to_pybytes(), body.to_pybytes() if body is not None else b""))
    return found


def shared_body(columns: int, rows: int) -> tuple[pa.Schema, bytes, bytes]:
    """A batch's schema, its header, and a body of one column, which is in the place of all of them."""
    column = pa.array(range(rows))
    batch = pa.record_batch([column] * columns, [f"c{number}" for number in range(columns)])
    header, body = parts_of(batch.serialize())
    changed, size = bytearray(header), 8 * rows
    everything, one, nothing = (struct.pack("<q", length) for length in (len(body), size, 0))
    first = header.index(nothing * 3 + one)  # where the buffers are described: validity, then values
    changed[first : first + 32 * columns] = (nothing * 3 + one) * columns
    at = header.index(everything)
    changed[at : at + 8] = one
    return batch.schema, bytes(changed), body[:size]


class RawFlight:
    """Calls with messages that are sent as they are."""

    def __init__(self, port: int) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel: Any = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        self._exchange: Any = self._channel.stream_stream(f"{SERVICE}/DoExchange")

    def open(self, messages: Iterable[bytes], timeout: float | None = None) -> Any:
        """An exchange that sends these messages and then is done; iterate over it, or cancel it."""
        return self._exchange(iter(messages), timeout=timeout)

    def exchange(self, messages: Iterable[bytes], timeout: float = DEADLINE_SECONDS) -> grpc.StatusCode:
        """How the server ends an exchange. What it answers before that is thrown away."""
        call = self.open(messages, timeout)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        code: grpc.StatusCode = call.code()
        return code

    def unary(self, method: str, message: bytes) -> grpc.StatusCode:
        call = self._channel.unary_stream(f"{SERVICE}/{method}")(message, timeout=DEADLINE_SECONDS)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        code: grpc.StatusCode = call.code()
        return code

    def __enter__(self) -> RawFlight:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings() -> bytes:
    return frame(_SETTINGS, 0, 0, b"")


def headers(stream: int, method: str = "DoExchange") -> bytes:
    """Opens a call. Header fields are literals, so no compression is needed."""
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{SERVICE}/{method}",
        ":authority": "test",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in pairs.items()
    )
    return frame(_HEADERS, _END_HEADERS, stream, block)


def data(stream: int, payload: bytes, end: bool = False) -> bytes:
    """In frames of the size that HTTP/2 allows at first."""
    pieces = [payload[at : at + 16384] for at in range(0, max(len(payload), 1), 16384)]
    return b"".join(
        frame(_DATA, _END_STREAM if end and piece is pieces[-1] else 0, stream, piece) for piece in pieces
    )


def reset(stream: int) -> bytes:
    return frame(_RESET, 0, stream, struct.pack(">I", 8))


def grpc_message(payload: bytes, length: int | None = None, compressed: int = 0) -> bytes:
    """With its prefix; `length` may lie."""
    return struct.pack(">BI", compressed, len(payload) if length is None else length) + payload


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)


def say(port: int, parts: Iterable[bytes]) -> None:
    """Sends on a connection of its own, and hangs up; the server may hang up first."""
    with connect(port) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(0.2)
            while connection.recv(65536):
                pass
        except OSError:
            pass


def cuts(whole: bytes, at: Iterable[int]) -> Iterator[bytes]:
    return (whole[:end] for end in at)
