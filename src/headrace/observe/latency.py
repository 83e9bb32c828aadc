"""Quantiles of the latest latencies."""

from __future__ import annotations

from collections.abc import Sequence

QUANTILES = (0.5, 0.9, 0.99, 0.999)


def quantiles(latest: Sequence[float]) -> dict[float, float]:
    """Returns nothing if nothing was measured."""
    ordered = sorted(latest)
    last = len(ordered) - 1
    return {quantile: ordered[round(quantile * last)] for quantile in QUANTILES} if ordered else {}
