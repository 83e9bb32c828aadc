"""Our errors as Flight's: a sentence for people, and JSON in `extra_info` for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from headrace.errors import HeadraceError, Transient, Unauthenticated, Unauthorized, UnexpectedFailure

# A message travels three times in headers, once with each byte as three, and gRPC takes 8 KiB of headers; of
# more it makes an error of its own, which clients would try again.
_MOST_BYTES = 800


def flight_error(error: HeadraceError) -> flight.FlightError:
    match error:
        case Unauthenticated():
            kind = flight.FlightUnauthenticatedError
        case Unauthorized():
            kind = flight.FlightUnauthorizedError
        case Transient():
            kind = flight.FlightUnavailableError
        case _:
            kind = flight.FlightServerError
    message = _shortened(error.message)
    told = {**json.loads(error.to_json()), "message": message}
    told["fields"] = {
        name: _shortened(value) if isinstance(value, str) else value for name, value in told["fields"].items()
    }
    return kind(message, extra_info=json.dumps(told, default=str).encode())


def _shortened(message: str) -> str:
    encoded = message.encode(errors="replace")
    if len(encoded) <= _MOST_BYTES:
        return message
    return f"{encoded[:_MOST_BYTES].decode(errors='ignore')} ..."


@contextmanager
def as_flight_errors() -> Iterator[None]:
    """Around what a client asked for."""
    try:
        yield
    except HeadraceError as error:
        raise flight_error(error) from None
    except flight.FlightError:
        raise
    except Exception as error:
        unexpected = UnexpectedFailure(f"the server failed: {type(error).__name__}: {error}")
        raise flight_error(unexpected) from error
