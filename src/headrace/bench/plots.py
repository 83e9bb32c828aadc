"""Latency by percentile: as bars for a terminal, and as curves in an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from rich.table import Table
from rich.text import Text

from headrace.bench.figures import CURVE, Contender, Latency

_BAR_CELLS = 30
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEAST_MS = 0.1
_COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8e5ea2", "#d18f00", "#555555", "#0f8b8d", "#a23b72")

_WIDTH, _HEIGHT, _LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 960, 480, 70, 40, 580, 380
_NINES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999))
_MOST_NINES = 4.5

_PLOTTED = ("MEMORY", "LOCAL_DISK", "DELIVERED")


def curves(single: dict[str, Contender]) -> Iterator[tuple[str, Latency]]:
    """What there is to plot: each contender's tiers up to the disk, at the offered rate."""
    for name, contender in single.items():
        if contender.offered is None:
            continue
        for tier in _PLOTTED:
            at = contender.offered.tiers.get(tier)
            if at is not None and at.latency is not None:
                yield f"{name}, {tier}", at.latency


def bars(single: dict[str, Contender]) -> Iterator[Table]:
    """A bar for each percentile, on a logarithmic scale that all share."""
    shown = list(curves(single))
    if not shown:
        return
    most = max(latency.max for _, latency in shown)
    table = Table("", "", f"{_LEAST_MS:g} ms to {most:.1f} ms, logarithmic", "ms", title="Latency", box=None)
    for number, (name, latency) in enumerate(shown):
        colour = _COLOURS[number % len(_COLOURS)]
        values = {"p50": latency.p50, "p90": latency.p90, "p99": latency.p99, "max": latency.max}
        for label, value in values.items():
            bar = Text(bar_of(share_of(value, most)), style=colour)
            table.add_row(name if label == "p50" else "", label, bar, f"{value:.2f}")
    yield table


def share_of(value: float, most: float) -> float:
    """Where a latency stands between the least that is shown and the most, on a logarithmic scale."""
    if most <= _LEAST_MS:
        return 1.0
    return min(max(math.log(max(value, _LEAST_MS) / _LEAST_MS) / math.log(most / _LEAST_MS), 0.0), 1.0)


def bar_of(share: float) -> str:
    eighths = round(share * _BAR_CELLS * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip() or "▏"


def svg(single: dict[str, Contender], title: str) -> str:
    """Percentile curves; each nine has the same width."""
    shown = list(curves(single))
    most = max((latency.max for _, latency in shown), default=1.0)
    least = min((latency.p50 for _, latency in shown), default=_LEAST_MS)
    low, high = math.floor(math.log10(max(least, 0.01))), math.ceil(math.log10(max(most, 0.02)))
    high = max(high, low + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
        *_grid(low, high),
    ]
    for number, (name, latency) in enumerate(shown):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_x(share):.1f},{_y(value, low, high):.1f}"
            for share, value in zip(CURVE, latency.curve, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = _LEFT + _PLOT_WIDTH + 20, _TOP + 14 + number * 20
        parts.append(f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _grid(low: int, high: int) -> Iterator[str]:
    bottom, right = _TOP + _PLOT_HEIGHT, _LEFT + _PLOT_WIDTH
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} ms</text>'
    for label, share in _NINES:
        x = _x(share)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
    yield f'<text x="{right}" y="{bottom + 18}" text-anchor="middle">max</text>'


def _x(share: float) -> float:
    nines = _MOST_NINES if share >= 1 else min(-math.log10(1 - share), _MOST_NINES)
    return _LEFT + _PLOT_WIDTH * nines / _MOST_NINES


def _y(value: float, low: int, high: int) -> float:
    power = min(max(math.log10(max(value, 1e-9)), low), high)
    return _TOP + _PLOT_HEIGHT * (high - power) / (high - low)
