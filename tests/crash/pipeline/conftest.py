"""Scenarios over each source and endpoint."""

from tests.pipeline.scenarios import make_scenario as make_scenario
