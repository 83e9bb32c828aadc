"""A pytest plugin, `-p devtools.soak_profile --hypothesis-profile soak`: Hypothesis tries more examples."""

from __future__ import annotations

import os

from hypothesis import settings

EXAMPLES = "HEADRACE_SOAK_EXAMPLES"
_FEW = 1000

# Not derandomized, not even in CI: the seed is given on the command line.
settings.register_profile(
    "soak",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=int(os.environ.get(EXAMPLES, _FEW)),
)
