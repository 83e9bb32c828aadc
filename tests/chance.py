"""The seed of random tests: a new one in each round of `make soak`, which prints it."""

from __future__ import annotations

import os
import random

from devtools.pytest_reports import SEED_VARIABLE

SOAK_SEED = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
# For the command that repeats a test.
os.environ[SEED_VARIABLE] = str(SOAK_SEED)
