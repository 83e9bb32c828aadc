"""Parses the URL that a user wrote.

libpq can parse one by itself, but its errors repeat what it cannot parse, which may be a part of a password.
So only a URL of this stricter grammar gets as far as libpq.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

_ESCAPE = r"%(?!00)[0-9A-Fa-f]{2}"
_PART = rf"(?:[^\s:@/?\#\[\]%]|{_ESCAPE})*"
_HOST = rf"(?:\[[0-9A-Fa-f:.]+(?:{_ESCAPE}\w+)?\]|(?:[^\s:,@/?\#\[\]%]|{_ESCAPE})*)(?::[0-9]*)?"
_PARAMETER = rf"[A-Za-z_]+=(?:[^\s&=@\#%]|{_ESCAPE})*"
_URL = re.compile(
    rf"""
    (?P<address>
        postgres(?:ql)?://
        (?:{_PART}(?::(?P<password>{_PART}))?@)?
        {_HOST}(?:,{_HOST})*
        (?:/{_PART})?
    )
    (?:\?(?P<query>(?:{_PARAMETER}(?:&{_PARAMETER})*)?))?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Url:
    """A URL that a user wrote. It has no representation, since it may contain a password."""

    address: str
    parameters: Mapping[str, str]
    has_password: bool

    def __repr__(self) -> str:
        return "Url(...)"


def parse_url(text: str) -> Url | None:
    """Returns the parts of a PostgreSQL URL, or `None` if it is none."""
    match = _URL.fullmatch(text)
    if match is None:
        return None
    pairs = [item.partition("=") for item in (match["query"] or "").split("&") if item]
    parameters = {name: unquote(value) for name, _, value in pairs}
    return Url(match["address"], parameters, bool(match["password"]) or "password" in parameters)
