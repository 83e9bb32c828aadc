"""How many examples a property is tried with, in proportion to the profile of the run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(times: float, **others: Any) -> settings:
    """For a property that wants so many times the usual number of examples; `others` are further settings."""
    return settings(max_examples=round(times * settings().max_examples), **others)
