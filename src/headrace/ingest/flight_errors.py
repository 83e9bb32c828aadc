"""Our errors as Flight's: a sentence for people, and JSON in `extra_info` for programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from headrace.errors import HeadraceError, Transient, Unauthenticated, Unauthorized, UnexpectedFailure


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
    return kind(error.message, extra_info=error.to_json().encode())


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
