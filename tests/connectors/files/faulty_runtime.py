"""A runtime that dies at a step: `faulty_runtime CONFIG LOG ADDRESS STEP OCCURRENCE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.testing import FileLog, GrpcConnector, kill_at
from tests.connectors.files.scenario import applied, materialize


def main() -> None:
    config, log, address, step, occurrence = sys.argv[1:]
    with GrpcConnector(address) as client:
        materialization = applied(json.loads(config), client)
        materialize(client, materialization, FileLog(Path(log)), kill_at(step, int(occurrence)))


if __name__ == "__main__":
    main()
