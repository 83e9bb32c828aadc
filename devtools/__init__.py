"""What the tests and the benchmarks of this repository share, and no user of the package needs."""

import os
from pathlib import Path

# Jars are kept in the repository, where `make clean` finds them; processes that tests start inherit this.
os.environ.setdefault("HEADRACE_JARS_CACHE", str(Path(__file__).parents[1] / ".jars"))
