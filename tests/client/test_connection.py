"""Addresses, and what failed calls mean."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import headrace
from headrace.client.connection import parse_url
from headrace.client.failures import error_of
from headrace.client.messages import Notice, decode_notice
from headrace.errors import (
    ConfigError,
    Fenced,
    HeadraceError,
    ProtocolError,
    ServerUnavailable,
    StorageFull,
    Terminal,
    Unauthenticated,
    Unauthorized,
    UnexpectedFailure,
)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("grpc://host:1", "grpc://host:1"),
        ("grpc+tls://host.example:443", "grpc+tls://host.example:443"),
        ("grpc+tcp://host:1/", "grpc://host:1"),
        ("host:1", "grpc://host:1"),
        ("127.0.0.1", "grpc://127.0.0.1:8815"),
        ("[::1]:99", "grpc://[::1]:99"),
    ],
)
def test_addresses(url: str, location: str) -> None:
    assert parse_url(url) == location


@pytest.mark.parametrize(
    "url", ["", "http://host:1", "grpc://", "host:port", "grpc://host:1/x", "a b:1", "u@h:1"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="not a server's address"):
        parse_url(url)


def test_roots_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        headrace.connect("grpc+tls://host:1", tls_roots=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"only with grpc\+tls"):
        headrace.connect("grpc://host:1", tls_roots=b"-----BEGIN")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (flight.FlightUnavailableError("x"), ServerUnavailable),
        (flight.FlightTimedOutError("x"), ServerUnavailable),
        (flight.FlightCancelledError("x"), ServerUnavailable),
        (flight.FlightUnauthenticatedError("x"), Unauthenticated),
        (flight.FlightUnauthorizedError("x"), Unauthorized),
        (flight.FlightInternalError("x"), UnexpectedFailure),
        (flight.FlightServerError("x"), UnexpectedFailure),
        (flight.FlightServerError("x", b"not json"), UnexpectedFailure),
        (flight.FlightServerError("x", b"[]"), UnexpectedFailure),
        (pa.ArrowNotImplementedError("x"), ConfigError),
        (pa.ArrowInvalid("x"), ConfigError),
        (OSError("x"), UnexpectedFailure),
        (flight.FlightUnavailableError("x", StorageFull("full").to_json().encode()), StorageFull),
        (flight.FlightServerError("x", Fenced("f", taken_by="me").to_json().encode()), Fenced),
        (Fenced("as it is"), Fenced),
    ],
)
def test_what_a_failure_means(failure: Exception, kind: type[HeadraceError]) -> None:
    assert type(error_of(failure)) is kind


@pytest.mark.parametrize(
    "said",
    [
        "gone. gRPC client debug context: UNKNOWN:Error\nmore",
        "Flight returned unavailable error, with message: gone",
        "gone. Detail: Unavailable",
        "Flight returned internal error, with message: gone. gRPC client debug context: x. Detail: Internal",
    ],
)
def test_a_failure_says_what_was_said_and_no_more(said: str) -> None:
    assert str(error_of(flight.FlightUnavailableError(said))) == "the server cannot be reached: gone"


def test_notices_that_cannot_be_read() -> None:
    assert decode_notice(None, None) == Notice()
    for bad in [b'{"assigned": [[1]]}', b'{"session": {"watermarks": {"MOON": 1}}}', b'{"session": 5}']:
        with pytest.raises(ProtocolError, match="cannot be read"):
            decode_notice(None, bad)
    with pytest.raises(Terminal, match="not a JSON object"):
        decode_notice(None, b"nonsense")
