"""The proxy that the environment names for an address."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import LocationValueError
from urllib3.util import make_headers, parse_url

from headrace.connectors.webhook.address import Address
from headrace.errors import ConfigError


def pool_manager(address: Address, **options: Any) -> urllib3.PoolManager:
    """Returns connections to an address, through the environment's proxy if there is one for it."""
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.authority):
        return urllib3.PoolManager(**options)
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        signed = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(signed)) if signed else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    except (LocationValueError, ValueError):
        # Its text would repeat the proxy's password.
        raise ConfigError(
            f"the environment names a proxy for {address.scheme} that cannot be used: "
            "write it as http://host:port or https://host:port"
        ) from None
