"""Lets a server that has no TLS be reached by it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import trustme

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def make_certificates(folder: Path) -> None:
    """An authority, a server and a client that it vouches for, and another authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "root.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other_root.pem")
    for name, issued in {
        "server": authority.issue_cert("localhost"),
        "client": authority.issue_cert("client@example.com"),
    }.items():
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        (folder / f"{name}.key").chmod(0o600)


class TlsFront:
    """Takes connections on a port of its own, and passes on what comes out of their TLS."""

    def __init__(self, server_port: int, certificates: Path, wants_client_certificate: bool = False) -> None:
        self._server_port = server_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        if wants_client_certificate:
            self._context.load_verify_locations(certificates / "root.pem")
            self._context.verify_mode = ssl.CERT_REQUIRED
            # In 1.3 the client takes itself to be let in before its certificate was looked at.
            self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.encrypted = 0
        """How many connections have been."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if client.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
                return  # one that does without TLS is not let in
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as inside,
                socket.create_connection(("127.0.0.1", self._server_port)) as server,
            ):
                self.encrypted += 1
                back = threading.Thread(target=_copy, args=(server, inside), daemon=True)
                back.start()
                _copy(inside, server)
                back.join()


def _copy(origin: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := origin.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
