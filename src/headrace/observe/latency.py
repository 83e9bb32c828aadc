"""Quantiles of the latest latencies of all streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

QUANTILES = (0.5, 0.9, 0.99, 0.999)
_MOST_SAMPLES = 8192
_LEAST_OF_EACH = 64


def quantiles(latest: Sequence[deque[float]]) -> dict[float, float]:
    """Each stream has an equal part, its newest ones; empty if nothing was measured."""
    filled = [samples for samples in latest if samples]
    if not filled:
        return {}
    share = max(_MOST_SAMPLES // len(filled), _LEAST_OF_EACH)
    # `list` does this without letting another thread in, so none can change the deque meanwhile.
    merged = sorted(sample for samples in filled for sample in list(islice(reversed(samples), share)))
    last = len(merged) - 1
    return {quantile: merged[round(quantile * last)] for quantile in QUANTILES} if merged else {}
