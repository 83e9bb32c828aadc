"""A TCP relay whose connections can be cut, as a network does it."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Listens on a port of its own, and passes all on to another one of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_mute = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """Breaks every connection there is; new ones are welcome."""
        with self._lock:
            cut, self._sockets = self._sockets, set()
            self._is_mute = False
        for each in cut:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mute(self) -> None:
        """Passes nothing on any more that the server says, until connections are cut."""
        self._is_mute = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()  # that accepts: it may be about to add a connection
        self.cut()
        for thread in self._threads:
            thread.join()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or small answers take 40 ms
            with self._lock:
                self._sockets |= {client, server}
            # Each socket is closed by the thread that reads from it, when nobody will write to it any more.
            done = threading.Barrier(2)
            self._start(self._pump, client, server, done, False)
            self._start(self._pump, server, client, done, True)

    def _pump(
        self, source: socket.socket, sink: socket.socket, done: threading.Barrier, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (is_answer and self._is_mute):
                    sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        done.wait()
        source.close()
        with self._lock:
            self._sockets.discard(source)
