"""Scales the number of examples of a property with the profile of the run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(times: float, **others: Any) -> settings:
    """Returns settings with a multiple of the profile's number of examples; `others` are further settings."""
    return settings(max_examples=max(1, round(times * settings().max_examples)), **others)
