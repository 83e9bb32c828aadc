"""Decides who may do what, by bearer tokens with roles, which are stored in a file.

The file is read again when it changes, so tokens are rotated without a restart. If it cannot be read then,
the previous tokens remain valid, and the log says why.
"""

from __future__ import annotations

import hmac
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from pyarrow import flight

from headrace.errors import ConfigError, HeadraceError, Unauthenticated
from headrace.ingest.flight_errors import flight_error
from headrace.ingest.tokens import (
    ANYBODY,
    MOST_TOKEN_CHARACTERS,
    Identity,
    TokenRow,
    digest_of,
    read_tokens,
)

__all__ = ["Access", "AccessMiddleware", "Identity", "access_middleware", "identity_of"]

log = logging.getLogger(__name__)

MIDDLEWARE = "access"
_HEADER = "authorization"
_SCHEME = "bearer"
_LOOK_SECONDS = 1.0
_HOW = "send the header 'authorization: Bearer TOKEN'"


class Access:
    """The tokens of a server. Thread-safe."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = Lock()
        self._looked_at = clock()
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Identity, ...] = ()
        self._complaint = ""
        self._refused = 0
        self.refused_elsewhere: Callable[[], int] = lambda: 0
        """Returns how many calls that the native port answers itself had no known token."""
        if path is not None:
            self._seen = _signature(path)
            self._tokens = read_tokens(path)

    @property
    def needs_tokens(self) -> bool:
        return self._path is not None

    def identify(self, headers: Mapping[str, Any]) -> Identity:
        """Whose call has these headers, whose values are texts, bytes or lists of either."""
        if self._path is None:
            return ANYBODY
        try:
            return self._find(_bearer_token(headers))
        except Unauthenticated:
            with self._lock:
                self._refused += 1
            raise

    @property
    def refused(self) -> int:
        """Counts calls without a token that is known."""
        return self._refused + self.refused_elsewhere()

    def rows(self) -> list[TokenRow] | None:
        """Returns the tokens that are good now; None where none are needed."""
        if self._path is None:
            return None
        self._look()
        return [one.row for one in self._tokens]

    def reload(self) -> None:
        """Reads the file again, changed or not; for a signal."""
        with self._lock:
            self._seen = None
            self._looked_at = -math.inf
        self._look()

    def _find(self, token: str) -> Identity:
        self._look()
        digest = digest_of(token)
        found: Identity | None = None
        for identity in self._tokens:  # to the end, so that the time says nothing
            if hmac.compare_digest(identity.digest, digest):
                found = identity
        if found is None:
            raise Unauthenticated("the token is not known here: ask who runs the server for another")
        return found

    def _look(self) -> None:
        """Reads the file if it has changed; looks at most once a second."""
        if self._path is None or self._clock() - self._looked_at < _LOOK_SECONDS:
            return
        with self._lock:
            if self._clock() - self._looked_at < _LOOK_SECONDS:
                return
            self._looked_at = self._clock()
            try:
                signature = _signature(self._path)
                if signature == self._seen:
                    return
                self._seen = signature
                self._tokens = read_tokens(self._path)
            except ConfigError as error:
                if error.message != self._complaint:
                    log.error("the tokens of before stay in force: %s", error.message)
                self._complaint = error.message
            else:
                self._complaint = ""
                log.info("read %d tokens from %s", len(self._tokens), self._path)


class AccessMiddleware(flight.ServerMiddleware):  # type: ignore[misc]
    """Holds who made a call."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity


class _Factory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(self, _info: Any, headers: Mapping[str, Any]) -> AccessMiddleware:
        try:
            return AccessMiddleware(self._access.identify(headers))
        except HeadraceError as error:
            raise flight_error(error) from None


def access_middleware(access: Access) -> dict[str, flight.ServerMiddlewareFactory]:
    """Returns the `middleware` of a Flight server that answers only calls with a valid token."""
    return {MIDDLEWARE: _Factory(access)}


def identity_of(context: Any) -> Identity:
    """Returns the caller of a server that has the middleware."""
    middleware: AccessMiddleware | None = context.get_middleware(MIDDLEWARE)
    if middleware is None:
        raise Unauthenticated("the server does not know who calls: it was started without its middleware")
    return middleware.identity


def _bearer_token(headers: Mapping[str, Any]) -> str:
    values: list[str | bytes] = []
    for name, value in headers.items():
        if name.lower() == _HEADER:
            values += value if isinstance(value, list | tuple) else [value]
    if not values:
        raise Unauthenticated(f"this server wants a token: {_HOW}")
    if len(values) > 1:
        raise Unauthenticated(f"there are {len(values)} authorization headers: send one")
    value = values[0].decode("latin-1") if isinstance(values[0], bytes) else values[0]
    scheme, _, token = value.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != _SCHEME or not token or len(token) > MOST_TOKEN_CHARACTERS:
        raise Unauthenticated(f"the authorization header holds no bearer token: {_HOW}")
    return token


def _signature(path: Path) -> tuple[int, ...]:
    """Changes whenever the file does; that of a link that is pointed elsewhere, too."""
    try:
        at = path.stat()
    except OSError as error:
        raise ConfigError(f"tokens file {path} cannot be read: {error.strerror}") from None
    return (at.st_mtime_ns, at.st_ctime_ns, at.st_size, at.st_ino, at.st_dev)
