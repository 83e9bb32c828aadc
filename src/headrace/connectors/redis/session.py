"""One connection to a Redis server.

The driver's own client is not used: it reconnects and repeats commands, but a repeated XADD is a second
entry, and a new connection watches nothing. Here a lost connection stays lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from headrace.connectors.redis.config import RedisEndpoint
from headrace.connectors.redis.failures import as_endpoint_failure, failures
from headrace.connectors.redis.urls import Url, parse_url
from headrace.errors import ConfigError, EndpointUnavailable

Command = Sequence[str | bytes | int]


class Session:
    """A connection. As a context manager it closes itself."""

    def __init__(self, endpoint: RedisEndpoint) -> None:
        self._replicas = endpoint.replicas
        self._timeout = endpoint.timeout
        self._is_lost = False
        self._connection = _connection(endpoint)
        try:
            with failures():
                self._connection.connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.disconnect()

    def call(self, *command: str | bytes | int) -> Any:
        """Returns the response to one command."""
        return self.pipeline([command])[0]

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Returns the responses to commands that are sent together; raises the first that is an error."""
        answers = self._exchange(commands)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise as_endpoint_failure(answer)
        return answers

    def transaction(self, commands: Sequence[Command]) -> bool:
        """Runs commands atomically.

        Returns False, and does nothing, if a key has changed that this session watches. Watches none
        afterwards.
        """
        *queued, done = self._exchange([("MULTI",), *commands, ("EXEC",)])
        # The error of the command that could not be queued says more than the refusal to run any of them.
        for answer in (*queued, *(done if isinstance(done, list) else [done])):
            if isinstance(answer, RedisError):
                raise as_endpoint_failure(answer)
        return done is not None

    def await_replicas(self) -> None:
        """Returns once the configured number of replicas has everything that this session wrote."""
        if self._replicas:
            # Before the connection's own time-out it is answered how many there are until then.
            milliseconds = max(1, int(self._timeout * 800))
            reached: int = self.call("WAIT", self._replicas, milliseconds)
            if reached < self._replicas:
                raise EndpointUnavailable(
                    f"Redis: {reached} of {self._replicas} replicas have the writes after "
                    f"{milliseconds / 1000:g} seconds"
                )

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        if self._is_lost:
            raise EndpointUnavailable("Redis: the connection was lost")
        try:
            with failures():
                self._connection.send_packed_command(self._connection.pack_commands(commands))
                return [self._answer() for _ in commands]
        except BaseException:
            self._is_lost = True  # answers that were not read would be taken for the next command's
            self.close()
            raise

    def _answer(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error


def _connection(endpoint: RedisEndpoint) -> Any:
    url = parse_url(endpoint.url.get_secret_value())
    assert url is not None  # or the configuration would not have been read
    common: dict[str, Any] = {
        "db": url.database,
        "username": url.user,
        "password": _password(endpoint, url),
        "socket_timeout": endpoint.timeout,
        "socket_connect_timeout": endpoint.timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if url.path:
        by_socket: Any = redis.UnixDomainSocketConnection  # which its types take to be abstract
        return by_socket(path=url.path, **common)
    common |= {"host": url.host, "port": url.port, "socket_keepalive": True}
    if not url.is_tls:
        return redis.Connection(**common)  # type: ignore[no-untyped-call]
    if endpoint.ca_file is not None and not os.path.isfile(endpoint.ca_file):
        raise ConfigError(f"endpoint: key 'ca_file': there is no file {endpoint.ca_file!r}")
    return redis.SSLConnection(ssl_ca_certs=endpoint.ca_file, ssl_check_hostname=True, **common)


def _password(endpoint: RedisEndpoint, url: Url) -> str | None:
    if endpoint.password is not None:
        return endpoint.password.get_secret_value()
    if url.password is not None or endpoint.password_env is None:
        return url.password
    try:
        return os.environ[endpoint.password_env]
    except KeyError:
        raise ConfigError(
            f"endpoint: key 'password_env': there is no environment variable {endpoint.password_env!r}"
        ) from None
