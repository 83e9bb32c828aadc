"""A whole ingest server in one process: engine, port, and an orderly end."""

from __future__ import annotations

import gc
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from headrace.errors import ConfigError
from headrace.ingest.access import Access
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.flight_server import FlightServer
from headrace.ingest.iceberg.scanner import Scanner
from headrace.ingest.reads import Reads

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 30.0
_HANG_UP_SECONDS = 5.0


@dataclass(frozen=True)
class TlsFiles:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Listen:
    host: str = "127.0.0.1"
    port: int = 8815
    """0 takes a free one."""
    tls: TlsFiles | None = None


class IngestServer:
    """Listens as soon as it is made; `start` begins to upload and commit what comes.

    Streams of writes are answered natively. Every other call goes on to a server of Arrow's own, on a unix
    socket in a folder that nobody else may look into. Its `serve` is not called: calls are answered without
    it, and it takes the process's signals.
    """

    def __init__(self, engine: EngineSettings | Engine, listen: Listen, access: Access) -> None:
        certificates = _certificates(listen.tls)
        self.engine = engine if isinstance(engine, Engine) else Engine(engine)
        self._listen = listen
        self._reads = Reads(self.engine, Scanner(self.engine.catalog))
        self._folder = TemporaryDirectory(prefix="headrace-")
        socket = Path(self._folder.name) / "calls"
        self._flight = FlightServer(self.engine, self._reads, access, socket)
        port = {"host": listen.host, "port": listen.port, "tls": certificates, "others": socket}
        try:
            self._port = self.engine.open_port(port, access)
        except OSError as error:
            self.stop()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"cannot listen on {listen.host}:{listen.port}: {reason}") from None

    @property
    def port(self) -> int:
        return self._port.port

    @property
    def url(self) -> str:
        scheme = "grpc+tls" if self._listen.tls else "grpc"
        return f"{scheme}://{_bracketed(self._listen.host)}:{self.port}"

    def start(self) -> None:
        self.engine.start()
        self._port.set_serving(True)
        # What is there now stays for good; the collector would stop everybody for long to look through it.
        gc.collect()
        gc.freeze()

    def stop(self) -> bool:
        """Takes nothing more, syncs what was taken, hangs up; says whether everything is on the disk."""
        synced = self.engine.close(_DRAIN_SECONDS)
        gc.unfreeze()
        # It waits for every call, and a client may keep one open for ever. Nothing depends on how it ends.
        hang_up = Thread(target=self._flight.shutdown, name="hang up", daemon=True)
        hang_up.start()
        hang_up.join(_HANG_UP_SECONDS)
        self._reads.close()
        self._folder.cleanup()
        return synced


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _certificates(tls: TlsFiles | None) -> tuple[bytes, bytes] | None:
    if tls is None:
        return None
    pair = (_read(tls.certificate), _read(tls.key))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as error:  # of which Arrow says nothing
        raise ConfigError(f"TLS files {tls.certificate} and {tls.key}: {error.strerror or error}") from None
    return pair


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS file {path}: {error.strerror}") from None
