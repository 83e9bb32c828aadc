"""What the tests and the benchmarks of this repository share, and no user of the package needs."""

import os
from pathlib import Path

# Jars are kept in the repository, where `make clean` finds them; processes that tests start inherit this.
os.environ.setdefault("HEADRACE_JARS_CACHE", str(Path(__file__).parents[1] / ".jars"))
# PySpark gives results up that its JVM does not begin to send in 15 s, which happens on a busy machine.
os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "120")
