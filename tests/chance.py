"""The seed of tests by chance: another one in each round of `make soak`, which names it."""

from __future__ import annotations

import os
import random

SOAK_SEED = int(os.environ.get("HEADRACE_SOAK_SEED") or random.SystemRandom().randrange(1 << 31))
