"""The server is killed at random moments."""

from __future__ import annotations

import pytest

from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from tests.chance import SOAK_SEED
from tests.crash.ingest.test_killed_server import run

KILLS = 25

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.timeout(1800)]


def test_killed_at_any_moment(folders: Surroundings, journal: Journal) -> None:
    run(folders, journal, SOAK_SEED, KILLS)


def test_killed_at_any_moment_with_s3_and_a_rest_catalog(s3_and_rest: Surroundings, journal: Journal) -> None:
    run(s3_and_rest, journal, SOAK_SEED + 1, KILLS)
