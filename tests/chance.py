"""The seed of random tests: a new one in each round of `make soak`, which prints it."""

from __future__ import annotations

import os
import random

SOAK_SEED = int(os.environ.get("HEADRACE_SOAK_SEED") or random.SystemRandom().randrange(1 << 31))
