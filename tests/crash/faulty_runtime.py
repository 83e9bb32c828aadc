"""A runtime that dies at a step: `faulty_runtime FILE ADDRESS STEP OCCURRENCE`, with FILE an endpoint's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.testing import FileLog, GrpcConnector, kill_at
from tests.crash.scenario import applied, materialize
from tests.crash.told_endpoint import ToldEndpoint


def main() -> None:
    told, address, step, occurrence = sys.argv[1:]
    endpoint = ToldEndpoint(**json.loads(Path(told).read_text()))
    with GrpcConnector(address) as client:
        materialization = applied(endpoint, client)
        log = FileLog(Path(told).with_name("recovery.json"))
        materialize(client, materialization, log, kill_at(step, int(occurrence)))


if __name__ == "__main__":
    main()
