"""Bars and curves."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from headrace.bench.figures import Contender, Latency, Run, Tier
from headrace.bench.plots import bar_of, share_of, svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("share", "cells"), [(0.0, 1), (0.5, 15), (1.0, 30)])
def test_a_bar_is_as_long_as_its_share(share: float, cells: int) -> None:
    assert len(bar_of(share)) == cells


def test_the_scale_is_logarithmic() -> None:
    assert share_of(0.1, 1000.0) == 0.0
    assert share_of(10.0, 1000.0) == pytest.approx(0.5)
    assert share_of(1000.0, 1000.0) == 1.0
    assert share_of(0.05, 0.07) == 1.0


def test_the_svg_has_a_curve_for_each_latency() -> None:
    latency = Latency.of(np.linspace(0.001, 0.05, 1000))
    run = Run(1000, 10.0, {"MEMORY": Tier(1000, 1.0, latency), "LOCAL_DISK": Tier(1000, 1.0, latency)})
    single = {"a < b": Contender(run), "no latencies": Contender(top=run)}
    drawing = ElementTree.fromstring(svg(single, "x & y"))
    lines = drawing.findall(f"{SVG}polyline")
    assert len(lines) == 2
    heights = [float(point.split(",")[1]) for point in lines[0].attrib["points"].split()]
    assert heights == sorted(heights, reverse=True)
    texts = [text.text for text in drawing.findall(f"{SVG}text")]
    assert {"x & y", "a < b, MEMORY", "a < b, LOCAL_DISK", "p99"} <= set(texts)
