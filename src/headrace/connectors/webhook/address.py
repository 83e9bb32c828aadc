"""The address of requests, and how much of it may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

# Characters that a path may contain unescaped (RFC 3986); not the percent sign, so a path is taken literally.
_PATH_CHARACTERS = "/!$&'()*+,;=:@~-._"
_NOT_IN_A_URL = re.compile(r"[^\x21-\x7e]|[\\\"<>^`{|}]")


@dataclass(frozen=True)
class Address:
    """An http or https URL that a user wrote. It has no representation, since any part may be a secret."""

    _parts: SplitResult

    @property
    def scheme(self) -> str:
        return self._parts.scheme

    @property
    def authority(self) -> str:
        """Returns host and port."""
        return self._parts.netloc.rpartition("@")[2]

    @property
    def origin(self) -> str:
        """Returns scheme, host and port: the only parts that errors and logs contain."""
        return f"{self.scheme}://{self.authority}"

    @property
    def credentials(self) -> tuple[str, str] | None:
        """Returns the user and password before the host, if there are any."""
        if "@" not in self._parts.netloc:
            return None
        return unquote(self._parts.username or ""), unquote(self._parts.password or "")

    @property
    def path(self) -> str:
        return self._parts.path

    @property
    def query(self) -> str:
        return self._parts.query

    def url(self, path: str) -> str:
        """Returns the URL for the requests of a resource, without the credentials."""
        base = self._parts.path
        if path != "/":
            base = f"{base.rstrip('/')}/{quote(path, safe=_PATH_CHARACTERS)}"
        return f"{self.origin}{base or '/'}" + (f"?{self._parts.query}" if self._parts.query else "")

    def __repr__(self) -> str:
        return "Address(...)"


def parse_address(text: str) -> Address | None:
    """Returns the parts of a URL, or `None` if requests cannot be posted to it."""
    if _NOT_IN_A_URL.search(text):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or "#" in text:
        return None
    # Another one may be of a password with a / or ? in it, of which a part would then pass for the host.
    if text.count("@") > 1 or "@" in parts.path + parts.query:
        return None
    return Address(parts)


def path_problem(path: str) -> str:
    """Returns why a resource cannot have this path; empty if it can."""
    if any(ord(character) < 0x20 or "\ud800" <= character <= "\udfff" for character in path):
        return "it holds a character that no URL can carry"
    if "?" in path or "#" in path:
        return "it holds '?' or '#': a query belongs into the endpoint's 'address'"
    first = path.removesuffix("/").split("/")
    if path != "/" and not {"", ".", ".."}.isdisjoint(first):
        return "it has an empty part, '.' or '..': write it as orders or shop/orders"
    return ""
