"""Headrace carries a write from a client to a row in somebody's database, exactly once."""

__version__ = "0.1.0"
