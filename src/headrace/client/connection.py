"""A connection to a server, by its address."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pyarrow import flight

from headrace.client.failures import decode_json, flight_errors
from headrace.errors import ConfigError

DEFAULT_PORT = 8815
SCHEMES = {"grpc": "grpc", "grpc+tcp": "grpc", "grpc+tls": "grpc+tls"}
URL = re.compile(r"(?:(?P<scheme>[\w+]+)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+)(?::(?P<port>\d+))?/?")

# gRPC's own pause grows to two minutes, so a server that came back would go unnoticed for as long.
CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 300),
]


def parse_url(url: str) -> str:
    """Returns Flight's location for a URL or a plain `host:port`."""
    found = URL.fullmatch(url)
    if found is None or (found["scheme"] or "grpc") not in SCHEMES:
        raise ConfigError(
            f"{url!r} is not a server's address: write grpc://host:port or grpc+tls://host:port"
        )
    scheme = SCHEMES[found["scheme"] or "grpc"]
    return f"{scheme}://{found['host']}:{found['port'] or DEFAULT_PORT}"


class Connection:
    """A Flight client that sends its token and raises Headrace's own errors."""

    def __init__(self, url: str, token: str | None, tls_roots: str | Path | bytes | None) -> None:
        self.location = parse_url(url)
        if tls_roots is not None and not self.location.startswith("grpc+tls"):
            raise ConfigError(f"tls_roots are of use only with grpc+tls://, and the address is {url!r}")
        self._headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        roots: dict[str, Any] = {} if tls_roots is None else {"tls_root_certs": _read_roots(tls_roots)}
        with flight_errors():
            self.flight = flight.FlightClient(self.location, generic_options=CHANNEL_OPTIONS, **roots)

    def options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout, headers=self._headers)

    def action(self, name: str, body: object = None, timeout: float | None = None) -> dict[str, Any]:
        """Calls an action with JSON and returns its JSON."""
        encoded = b"" if body is None else json.dumps(body).encode()
        with flight_errors():
            results = list(self.flight.do_action(flight.Action(name, encoded), self.options(timeout)))
        if len(results) != 1:
            raise ConfigError(f"the server gave {len(results)} answers to {name}: is it headrace serve?")
        return decode_json(results[0].body.to_pybytes(), f"the answer to {name}")

    def close(self) -> None:
        self.flight.close()


def _read_roots(roots: str | Path | bytes) -> bytes:
    if isinstance(roots, bytes):
        return roots
    if isinstance(roots, str) and roots.lstrip().startswith("-----BEGIN"):
        return roots.encode()
    try:
        return Path(roots).read_bytes()
    except OSError as error:
        raise ConfigError(f"tls_roots {str(roots)!r} cannot be read: {error.strerror}") from None
