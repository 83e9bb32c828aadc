"""The few requests of Kafka's own protocol that its clients for Python do not make.

A message has a length of four bytes before it. Requests begin with their kind, its version, a number that the
answer repeats and the client's name. From some version on a kind is *flexible*: lengths are varints, and
a list of tagged fields, which we leave empty and skip, follows each structure.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from headrace.errors import EndpointUnavailable, ProtocolError
from headrace.kafka.security import Security

T = TypeVar("T")

_CLIENT = "headrace"
_LARGEST = 64 * 1024 * 1024
"""An answer that claims more comes from something that is no broker."""
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class Writer:
    """The body of a request."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, form: str, value: int) -> Writer:
        """`form` as in `struct`: b, h, i, q for 1, 2, 4, 8 bytes."""
        self._parts.append(struct.pack(f">{form}", value))
        return self

    def text(self, value: str) -> Writer:
        return self.number("h", len(value.encode()))._add(value.encode())

    def data(self, value: bytes) -> Writer:
        return self.number("i", len(value))._add(value)

    def compact_length(self, length: int) -> Writer:
        """Writes the length of a flexible text or array, one more than it has: 0 is null."""
        return self._varint(length + 1)

    def compact_text(self, value: str) -> Writer:
        return self.compact_length(len(value.encode()))._add(value.encode())

    def no_tags(self) -> Writer:
        return self._varint(0)

    def to_bytes(self) -> bytes:
        return b"".join(self._parts)

    def _varint(self, value: int) -> Writer:
        while value > 0x7F:
            self._parts.append(bytes([value & 0x7F | 0x80]))
            value >>= 7
        return self._add(bytes([value]))

    def _add(self, raw: bytes) -> Writer:
        self._parts.append(raw)
        return self


class Reader:
    """An answer, from its body's first byte on."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack(f">{form}", self._take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        length = self.number("h")
        return self._take(length).decode() if length >= 0 else ""

    def data(self) -> bytes:
        length = self.number("i")
        return self._take(length) if length >= 0 else b""

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.number("i"))]

    def compact_text(self) -> str:
        return self._take(max(self._varint() - 1, 0)).decode()

    def compact_array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self._varint() - 1)]

    def skip_tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, length: int) -> bytes:
        taken = self._raw[self._at : self._at + length]
        if len(taken) < length:
            raise ProtocolError("an answer of a Kafka broker is shorter than it says")
        self._at += length
        return taken


class Connection:
    """A connection to one broker; a context manager. Not for several threads."""

    def __init__(self, host: str, port: int, security: Security, timeout: float) -> None:
        self.address = f"{host}:{port}"
        self._security, self._sent = security, 0
        try:
            plain = socket.create_connection((host, port), timeout)
            self._socket = security.wrapped(plain, host)
        except OSError as error:
            raise self._unavailable(error) from error
        try:
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def ask(self, kind: int, version: int, body: Writer, *, is_flexible: bool = False) -> Reader:
        self._sent += 1
        request = Writer().number("h", kind).number("h", version).number("i", self._sent).text(_CLIENT)
        if is_flexible:
            request.no_tags()
        raw = request.to_bytes() + body.to_bytes()
        try:
            self._socket.sendall(struct.pack(">i", len(raw)) + raw)
            (length,) = struct.unpack(">i", self._receive(4))
            if not 4 <= length <= _LARGEST:
                raise EndpointUnavailable(f"{self.address} does not answer as a Kafka broker does")
            answer = Reader(self._receive(length))
        except OSError as error:
            raise self._unavailable(error) from error
        if answer.number("i") != self._sent:
            raise ProtocolError(f"the Kafka broker {self.address} answers what was not asked")
        if is_flexible:
            answer.skip_tags()
        return answer

    def _receive(self, length: int) -> bytes:
        raw = bytearray()
        while len(raw) < length:
            part = self._socket.recv(length - len(raw))
            if not part:
                raise ConnectionResetError("it closed the connection")
            raw += part
        return bytes(raw)

    def _authenticate(self) -> None:
        if not self._security.mechanism:
            return
        answer = self.ask(_SASL_HANDSHAKE, 1, Writer().text(self._security.mechanism))
        if answer.number("h"):
            known = ", ".join(answer.array(answer.text))
            raise self._security.refused(self.address, f"it takes the mechanisms {known}")
        for challenge in self._security.conversation(self.address):
            answer = self.ask(_SASL_AUTHENTICATE, 0, Writer().data(challenge.says))
            code, message = answer.number("h"), answer.text()
            if code:
                raise self._security.refused(self.address, message or f"error {code}")
            challenge.hears(answer.data())

    def _unavailable(self, error: OSError) -> EndpointUnavailable:
        return EndpointUnavailable(
            f"the Kafka broker {self.address} cannot be reached: {error.strerror or error}"
        )
