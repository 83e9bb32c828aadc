"""Translates failures of the server and the driver to our two kinds of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from adbc_driver_manager import AdbcStatusCode
from adbc_driver_postgresql import dbapi

from headrace.errors import EndpointError, EndpointUnavailable, HeadraceError

# Connection lost, out of resources, stopped by an operator, rolled back for another's sake.
_TRANSIENT_CLASSES = {"08", "53", "57", "40"}
# A lock that could not be had in time; two time-outs that end a session in the middle of a transaction; a
# server that only reads, as a standby does until it takes over.
_TRANSIENT_STATES = {"55P03", "25P03", "25P04", "25006"}
_NOT_IN_ENCODING = "22021"

# The driver gives no SQLSTATE when a connection cannot be made, so its text has to tell. What is not here
# is taken to be an outage: to try again in vain does less harm than to give up on a server that restarts.
_REFUSED_FOR_GOOD = re.compile(
    r"authentication failed"
    r"|no password supplied"
    r"|pg_hba\.conf"
    r"|(role|user|database) .* does not exist"
    r"|no such (user|database)"  # PgBouncer's words
    r"|not permitted to log in"
    r"|permission denied for database"
    r"|not currently accepting connections"
    r"|does not support SSL"
    r"|certificate"
    r"|private key"
    r"|SSL error: .* alert"
    r"|may not be used with"
    r"|invalid .*(value|parameter|option)"
)

_DRIVER_PREFIX = re.compile(r"^[A-Z_]+: (\[libpq\] )?(Failed to connect: )?")
_MOST_CHARACTERS = 500  # a failing row is part of some messages


@contextmanager
def connecting() -> Iterator[None]:
    """Translates failures while a connection is opened."""
    try:
        yield
    except dbapi.Error as error:
        text = _one_line(_DRIVER_PREFIX.sub("", str(error)))
        kind = EndpointError if _REFUSED_FOR_GOOD.search(text) else EndpointUnavailable
        raise kind(f"PostgreSQL: {text}") from error


@contextmanager
def statements() -> Iterator[None]:
    """Translates failures while a connection is used."""
    try:
        yield
    except dbapi.Error as error:
        raise _statement_failure(error) from error


@contextmanager
def reading() -> Iterator[None]:
    """Translates failures while a result is read.

    The reader raises Arrow's errors, without a SQLSTATE. But the server has already accepted the query: only
    an outage or an operator can end it in the middle.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise EndpointUnavailable(f"PostgreSQL: {_one_line(str(error))}") from error


def _statement_failure(error: dbapi.Error) -> HeadraceError:
    state = error.sqlstate
    text = f"PostgreSQL: {_server_text(error)}"
    if state is None:
        # Only a connection that is gone has none and is reported as an I/O error.
        lost = error.status_code == AdbcStatusCode.IO
        return EndpointUnavailable(text) if lost else EndpointError(text)
    text = f"{text} (SQLSTATE {state})"
    if state == _NOT_IN_ENCODING and "0x00" in text:
        return EndpointError(
            f"a text value holds the character U+0000, which PostgreSQL cannot store; {text}"
        )
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES:
        return EndpointUnavailable(text)
    return EndpointError(text)


def _server_text(error: dbapi.Error) -> str:
    """Returns the server's own message and detail, or else the driver's version of it."""
    said = {_decoded(name): _decoded(value) for name, value in error.details}
    parts = [said.get(f"PG_DIAG_MESSAGE_{part}", "") for part in ("PRIMARY", "DETAIL")]
    return _one_line(": ".join(filter(None, parts)) or _DRIVER_PREFIX.sub("", str(error)))


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="replace")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 3] + "..."
