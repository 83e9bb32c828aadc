"""Keeps the secrets of an endpoint out of messages that quote a receiver's response."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import parse_qsl, unquote

from headrace.connectors.webhook.config import WebhookEndpoint

_MASK = "***"
# A shorter text is not a secret, and would be masked in every other word.
_LEAST_CHARACTERS = 4


class Secrets:
    """All values of an endpoint's configuration that a receiver might repeat."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        address = endpoint.target
        known = {value.get_secret_value() for value in endpoint.headers.values()}
        known |= {endpoint.bearer_token or "", address.query, address.path, *address.path.split("/")}
        known |= {value for _, value in parse_qsl(address.query)}
        if address.credentials:
            known |= {*address.credentials, basic_token(address.credentials)}
        known |= {unquote(secret) for secret in known}
        known |= {json.dumps(secret)[1:-1] for secret in known}
        # The longest first, since one may be a part of another.
        self._known = sorted((s for s in known if len(s) >= _LEAST_CHARACTERS), key=len, reverse=True)

    @property
    def longest(self) -> int:
        return len(self._known[0]) if self._known else 0

    def mask(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, _MASK)
        return text


def basic_token(credentials: tuple[str, str]) -> str:
    return b64encode(":".join(credentials).encode()).decode()
