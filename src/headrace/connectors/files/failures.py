"""Translates a store's failures to our two kinds of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from headrace.connectors.files.config import FilesEndpoint
from headrace.errors import EndpointError, EndpointUnavailable

_FOR_GOOD = (
    FileNotFoundError,  # of the bucket, since objects that may be missing are asked for with care
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
# The library has no kind of its own for some refusals; then its text has to tell.
_REFUSED_FOR_GOOD = re.compile(r"status code: (400|401|403|404|405|501)\b|No such container|NoSuchBucket")
_SAID = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_ANSWER = re.compile(r"status code: (\d+[^:<]*)")
_MOST_CHARACTERS = 300
_SHORTEST_SECRET = 4  # or "1" would be struck out of every number


class StoreFailures:
    """Names the store in errors, and keeps the values of its options out of them."""

    def __init__(self, endpoint: FilesEndpoint) -> None:
        self._url = endpoint.url
        self._secrets = sorted(_texts(endpoint.options), key=len, reverse=True)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            sentence = f"store {self._url} cannot {what}: {self.text(error)}"
            if isinstance(error, _FOR_GOOD) or _REFUSED_FOR_GOOD.search(str(error)):
                raise EndpointError(sentence) from None  # its own text may hold a secret
            raise EndpointUnavailable(sentence) from None

    def text(self, error: Exception) -> str:
        """Returns the problem in one line."""
        whole = str(error)
        if said := _SAID.search(whole):
            text = f"{said[2]} ({said[1]})"
        elif answer := _ANSWER.search(whole):
            text = f"it answered {answer[1].strip()}"
        else:
            text = " ".join(whole.split("Debug source:")[0].split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def _texts(options: Any) -> Iterator[str]:
    """Yields the texts among options that are long enough to be a secret, at any depth."""
    if isinstance(options, Mapping):
        for value in options.values():
            yield from _texts(value)
    elif isinstance(options, str) and len(options) >= _SHORTEST_SECRET:
        yield options
