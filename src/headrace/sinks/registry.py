"""Finds sinks of rows by the format that they write, ours and those of other packages alike.

A package adds one with an entry point in the group `headrace.sinks`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from headrace.connectors.registry import find_class
from headrace.sinks.contract import RowSink

GROUP = "headrace.sinks"


def sink_formats() -> list[str]:
    return sorted(entry_points(group=GROUP).names)


def find_sink(format_name: str) -> type[RowSink]:
    """The kind of sink that writes this format; `RowSink.open` makes one."""
    found: type[RowSink] = find_class(GROUP, "sink", format_name, RowSink)
    return found
