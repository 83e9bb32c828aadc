"""`headrace connector redis` with a fault: `kill|stop STEP OCCURRENCE` come before its own arguments.

A step is one of `headrace.testing.faults`, or of the third transaction: `wrote a chunk` or `verified the
fence`. Chunks are small.
"""

from __future__ import annotations

import sys
import threading

from headrace.connectors.redis import RedisConnector
from headrace.protocol.grpc import GrpcServer
from headrace.testing import Observed, kill_at, stop_at
from tests.connectors.redis.crash_scenario import of_third_commit, small_chunks


def main() -> None:
    fault, step, occurrence, _, _, address = sys.argv[1:]
    observer = of_third_commit({"kill": kill_at, "stop": stop_at}[fault](step, int(occurrence)))
    small_chunks(observer)
    with GrpcServer(Observed(RedisConnector(), observer), address) as server:
        print(f"listens on 127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()
