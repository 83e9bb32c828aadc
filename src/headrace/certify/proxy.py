"""A TCP relay whose connections can be cut and stalled, as a network does it."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

_LOOK_EVERY = 0.02
_CONNECT_SECONDS = 5.0
_AT_ONCE = 1 << 16
# Closing such a socket sends a reset, and drops what is still to be sent.
_NO_LINGERING = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a port of its own of this machine, and passes all on to another. A context manager."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        """Where new connections go; may be changed."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Resets every connection there is; new ones are welcome. Returns when they are reset."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.is_cut = True
        for connection in connections:
            connection.join()

    def stall(self) -> None:
        """From now on nothing gets through, new connections neither, and nobody is told."""
        self._flowing.clear()

    def heal(self) -> None:
        """Ends a stall; what was sent meanwhile arrives."""
        self._flowing.set()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._listener.close()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            if (
                not self._flowing.wait(_LOOK_EVERY)
                or not select.select([self._listener], [], [], _LOOK_EVERY)[0]
            ):
                continue
            client, _ = self._listener.accept()
            connection = _Connection(client, self.target, self._flowing, self._ended)
            with self._lock:
                self._connections.add(connection)
                connection.start()  # here, since whoever finds it waits for its end

    def _ended(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Connection(threading.Thread):
    """Both sockets are this thread's alone, so that closing them takes effect at once."""

    def __init__(
        self,
        client: socket.socket,
        target: tuple[str, int],
        flowing: threading.Event,
        ended: Callable[[_Connection], None],
    ) -> None:
        super().__init__(name="proxied connection", daemon=True)
        self._client, self._target, self._flowing, self._ended = client, target, flowing, ended
        self.is_cut = False

    def run(self) -> None:
        sockets = [self._client]
        try:
            server = socket.create_connection(self._target, _CONNECT_SECONDS)
            sockets.append(server)
            self._relay(_Way(self._client, server), _Way(server, self._client))
        except OSError:  # of one side, which the other hears of as a reset
            self.is_cut = True
        finally:
            for each in sockets:
                if self.is_cut:
                    with suppress(OSError):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
                each.close()
            self._ended(self)

    def _relay(self, *ways: _Way) -> None:
        for way in ways:
            way.source.setblocking(False)
            way.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or small answers take 40 ms
        while not self.is_cut and not all(way.is_over for way in ways):
            if not self._flowing.wait(_LOOK_EVERY):
                continue
            reading = [way.source for way in ways if not way.pending and not way.is_over]
            writing = [way.sink for way in ways if way.pending]
            readable, writable, _ = select.select(reading, writing, [], _LOOK_EVERY)
            if not self._flowing.is_set():
                continue
            for way in ways:
                if way.source in readable and not way.pending:
                    way.read()
                if way.sink in writable and way.pending:
                    way.write()


class _Way:
    """One direction."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.pending = b""
        self.is_over = False

    def read(self) -> None:
        self.pending = self.source.recv(_AT_ONCE)
        if not self.pending:
            self.is_over = True
            self.sink.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        self.pending = self.pending[self.sink.send(self.pending) :]
