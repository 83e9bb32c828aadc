"""HTML as text, in which only what was made here is markup."""

from __future__ import annotations

from html import escape

_EMPTY = {"meta", "br"}
# Begin a line, so that two pages can be compared line by line.
_OWN_LINE = {"head", "body", "main", "section", "h2", "table", "tr", "dt", "li"}


class Markup(str):
    """Is put into a page as it is. Any other text is escaped."""

    __slots__ = ()


def element(name: str, /, *inside: str, **attributes: str) -> Markup:
    """Attributes are written with a trailing underscore where Python wants the word for itself."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    before = "\n" if name in _OWN_LINE else ""
    return Markup(f"{before}<{name}{written}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))
