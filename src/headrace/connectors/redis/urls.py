"""Parses the URL that a user wrote.

The driver can parse one by itself, but its errors repeat what it cannot parse, which may be a part of a
password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

_ESCAPE = r"%(?!00)[0-9A-Fa-f]{2}"
_PART = rf"(?:[^\s:@/?\#\[\]%]|{_ESCAPE})*"
_USER = rf"(?:(?P<user>{_PART})(?::(?P<password>{_PART}))?@)?"
_TCP = re.compile(
    rf"""
    (?P<scheme>rediss?)://{_USER}
    (?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:@/?\#\[\]%]+))
    (?::(?P<port>[0-9]{{1,5}}))?
    (?:/(?P<database>[0-9]{{0,5}}))?
    """,
    re.VERBOSE,
)
_SOCKET = re.compile(
    rf"unix://{_USER}(?P<path>/(?:[^\s?\#%@]|{_ESCAPE})+)(?:\?db=(?P<database>[0-9]{{1,5}}))?"
)

DEFAULT_PORT = 6379


@dataclass(frozen=True)
class Url:
    """A server and one of its databases: by host and port, or by the path of a socket."""

    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    is_tls: bool = False
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def parse_url(text: str) -> Url | None:
    """Returns the parts of a Redis URL, or `None` if it is none."""
    if match := _SOCKET.fullmatch(text):
        place = Url(path=unquote(match["path"]))
    elif match := _TCP.fullmatch(text):
        port = int(match["port"] or DEFAULT_PORT)
        if not 1 <= port <= 65535:
            return None
        place = Url(match["address"] or match["host"], port, is_tls=match["scheme"] == "rediss")
    else:
        return None
    return Url(
        place.host,
        place.port,
        place.path,
        place.is_tls,
        int(match["database"] or 0),
        unquote(match["user"]) if match["user"] else None,
        unquote(match["password"]) if match["password"] else None,
    )
