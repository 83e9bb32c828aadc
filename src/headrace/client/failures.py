"""Translates a failed Flight call to one of Headrace's own errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import flight

from headrace.errors import (
    ConfigError,
    HeadraceError,
    ServerUnavailable,
    Terminal,
    Unauthenticated,
    Unauthorized,
    UnexpectedFailure,
)

# Messages of gRPC if our server gave no reason. The order matters: the first match counts.
BY_CLASS: tuple[tuple[type[Exception], type[HeadraceError], str], ...] = (
    (flight.FlightUnavailableError, ServerUnavailable, "the server cannot be reached"),
    (flight.FlightTimedOutError, ServerUnavailable, "the server did not answer in time"),
    (flight.FlightCancelledError, ServerUnavailable, "the call was broken off"),
    (flight.FlightUnauthenticatedError, Unauthenticated, "the server wants a token that it knows"),
    (flight.FlightUnauthorizedError, Unauthorized, "the token does not allow this"),
    (pa.ArrowNotImplementedError, ConfigError, "the server does not offer this; is it headrace serve?"),
    (pa.ArrowInvalid, ConfigError, "the server refused the call"),
    (pa.ArrowKeyError, ConfigError, "the server does not know this"),
)

ARROWS_OWN = re.compile(
    r"^Flight returned [\w ]+ error, with message: |\. gRPC client debug context:.*|\. Detail: \w+$"
)


def error_of(failure: BaseException) -> HeadraceError:
    """Returns the error that the server raised, or one that corresponds to how the call ended."""
    if isinstance(failure, HeadraceError):
        return failure
    told = getattr(failure, "extra_info", None)
    if told:
        try:
            return HeadraceError.from_json(bytes(told).decode())
        except (ValueError, KeyError, TypeError):
            pass  # a server, or something in between, that is not ours
    said = first_line(failure)
    for kind, error, meaning in BY_CLASS:
        if isinstance(failure, kind):
            return error(f"{meaning}: {said}")
    return UnexpectedFailure(f"the call failed: {type(failure).__name__}: {said}")


def first_line(failure: BaseException) -> str:
    """Returns the message without the text that Arrow adds to it."""
    lines = str(failure).strip().splitlines() or [type(failure).__name__]
    return ARROWS_OWN.sub("", lines[0])


@contextmanager
def flight_errors() -> Iterator[None]:
    """Translates errors that Flight raises in the block to ours."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as failure:
        raise error_of(failure) from None


def decode_json(text: bytes, what: str) -> dict[str, object]:
    """Parses the JSON object that a server sent. Anything else did not come from one of our servers."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Terminal(f"{what} is not a JSON object: {text[:80]!r}")
    return value
