"""Checks the requirements of the whole demo."""

from __future__ import annotations

from importlib.util import find_spec

from headrace.errors import ConfigError
from headrace.spark.jars import find_java
from headrace.spark.lines import Needs, installed_line, jars_for


def check_installed() -> None:
    """Reports which requirement is missing, and fetches the jars if that was never done: no part of the
    show."""
    if find_spec("duckdb") is None:
        raise ConfigError(
            "DuckDB, which the demo compares the view with, is not installed: pip install 'headrace[demo]'"
        )
    line = installed_line()
    find_java()
    jars_for(line, [Needs.ICEBERG, Needs.SQLITE])
