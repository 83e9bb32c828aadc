"""An endpoint that is reached by a URL, through a proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headrace.certify.proxy import Proxy


@contextmanager
def through_proxy(
    config: Mapping[str, Any], default_port: int
) -> Iterator[tuple[Proxy | None, dict[str, Any]]]:
    """With the configuration by which a pipeline goes through it.

    Without a proxy where there is none to be had: a socket of the file system, or TLS, whose certificate is
    for another host.
    """
    parts = urlsplit(str(config.get("url", "")))
    is_secured = parts.scheme == "rediss" or any("ssl" in name for name in (parts.query, *config))
    if not parts.hostname or is_secured:
        yield None, dict(config)
        return
    with Proxy(parts.hostname, parts.port or default_port) as proxy:
        user, at, _ = parts.netloc.rpartition("@")
        url = urlunsplit(parts._replace(netloc=f"{user}{at}{proxy.address}"))
        yield proxy, {**config, "url": url}
