"""A runtime that dies at a step: `faulty_runtime URL LOG ADDRESS STEP OCCURRENCE`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.testing import FileLog, GrpcConnector, kill_at
from tests.connectors.redis.crash_scenario import applied, materialize


def main() -> None:
    url, log, address, step, occurrence = sys.argv[1:]
    with GrpcConnector(address) as client:
        materialize(client, applied(url, client), FileLog(Path(log)), kill_at(step, int(occurrence)))


if __name__ == "__main__":
    main()
