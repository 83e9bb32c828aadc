"""A plugin of pytest's, `-p devtools.soak_profile --hypothesis-profile soak`: Hypothesis looks further."""

from __future__ import annotations

import os

from hypothesis import settings

EXAMPLES = "HEADRACE_SOAK_EXAMPLES"
_FEW = 1000

# Not derandomized, in CI neither: a seed is given on the command line.
settings.register_profile(
    "soak",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=int(os.environ.get(EXAMPLES, _FEW)),
)
