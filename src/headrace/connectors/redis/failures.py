"""Translates failures of the server and the driver to our two kinds of errors."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from headrace.errors import EndpointError, EndpointUnavailable, HeadraceError

# Signing in fails as a kind of lost connection to the driver, but will fail again.
_SIGN_IN = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
)
_CLUSTER = (exceptions.AskError, exceptions.ClusterCrossSlotError)  # MOVED is a kind of ASK
_TRANSIENT = (
    exceptions.ConnectionError,  # also LOADING, and too many clients
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,  # a replica, until it takes over
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,  # also MASTERDOWN
    exceptions.TryAgainError,
    exceptions.InvalidResponse,
    OSError,
)
# Codes that the driver has no class for: a script or a failover runs, the disk is full, a quorum is missing.
_TRANSIENT_CODES = {"BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED", "FAILOVER"}
_TLS_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_MOST_CHARACTERS = 500


@contextmanager
def failures() -> Iterator[None]:
    """Translates failures while a connection is used."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise as_endpoint_failure(error) from error


def as_endpoint_failure(error: Exception) -> HeadraceError:
    text = f"Redis: {_one_line(str(error))}"
    if isinstance(error, _SIGN_IN):
        return EndpointError(f"{text}; see to 'url' and 'password'")
    if isinstance(error, exceptions.NoPermissionError):
        return EndpointError(f"{text}; see to the permissions of its user")
    if isinstance(error, _CLUSTER):
        return EndpointError(
            f"{text}; this is a node of a Redis Cluster, which is not supported: name a server that is not"
        )
    if _is_tls(error):
        return EndpointError(f"{text}; see to 'url' and 'ca_file'")
    if isinstance(error, _TRANSIENT) or str(error).partition(" ")[0] in _TRANSIENT_CODES:
        return EndpointUnavailable(text)
    return EndpointError(text)


def _is_tls(error: Exception) -> bool:
    """Returns whether the two sides disagree about TLS, which the driver wraps as a lost connection."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return not isinstance(chain, _TLS_LOST)
        chain = chain.__cause__ or chain.__context__
    return False


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 3] + "..."
