"""Builds the URL for libpq from the user's configuration and the settings of every connection."""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from headrace.connectors.postgres.config import PostgresEndpoint
from headrace.connectors.postgres.urls import parse_url
from headrace.errors import ConfigError

# Parameters of the user's url outrank these.
_DEFAULTS = {
    "application_name": "headrace",
    # Arrow's text is UTF-8, whatever encoding the database has.
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    # A server that vanished is noticed in a minute, not in the two hours that Linux takes by itself.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


def connection_url(endpoint: PostgresEndpoint) -> str:
    """Returns the URL. It contains the password, so it must not be shown to anybody."""
    url = None if endpoint.url is None else parse_url(endpoint.url.get_secret_value())
    # To libpq a parameter outranks the same thing in the address.
    parameters = {**_DEFAULTS, **(url.parameters if url else {}), **_configured(endpoint)}
    password = _password(endpoint, has_password=url is not None and url.has_password)
    if password is not None:
        parameters["password"] = password
    address = url.address if url else "postgresql://"
    return f"{address}?{urlencode(parameters, quote_via=quote, safe='')}"


def _configured(endpoint: PostgresEndpoint) -> dict[str, str]:
    values = {
        "host": endpoint.host,
        "port": endpoint.port if endpoint.host else None,
        "dbname": endpoint.database,
        "user": endpoint.user,
        "sslmode": endpoint.sslmode,
        "sslrootcert": endpoint.sslrootcert,
        "sslcert": endpoint.sslcert,
        "sslkey": endpoint.sslkey,
        "connect_timeout": endpoint.connect_timeout,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _password(endpoint: PostgresEndpoint, has_password: bool) -> str | None:
    """Returns the password, or `None` to leave it to the url, or to libpq's own PGPASSWORD and password
    file."""
    if endpoint.password is not None:
        return endpoint.password.get_secret_value()
    if has_password or endpoint.password_env is None:
        return None
    try:
        return os.environ[endpoint.password_env]
    except KeyError:
        raise ConfigError(
            f"endpoint: key 'password_env': there is no environment variable {endpoint.password_env!r}"
        ) from None
