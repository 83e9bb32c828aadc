"""A runtime that dies at a step: `faulty_runtime RECEIVER CONNECTOR LOG STEP OCCURRENCE`."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.testing import GrpcConnector, kill_at
from tests.connectors.webhook.crash_scenario import applied, materialize


def main() -> None:
    receiver, connector, log, step, occurrence = sys.argv[1:]
    with GrpcConnector(connector) as client:
        materialize(client, applied(receiver, client), Path(log), kill_at(step, int(occurrence)))


if __name__ == "__main__":
    main()
