"""Headrace carries a write from a client to a row in somebody's database, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import Tier as Tier
    from headrace.client import aio as aio
    from headrace.client import connect as connect
    from headrace.pipeline.library import materialize as materialize

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Arrow takes its time to load, and most of the package does without Flight.
    if name == "aio":
        return import_module("headrace.client.aio")
    if name in ("connect", "Tier"):
        return getattr(import_module("headrace.client"), name)
    if name == "materialize":
        return import_module("headrace.pipeline.library").materialize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
