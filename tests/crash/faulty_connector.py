"""`headrace connector`, but with a fault: `--fault kill|stop --step STEP --occurrence N` come before its own.

A step is one of `headrace.testing.faults`, or `statement of commit M`: a statement that was just executed in
the endpoint's M-th transaction after Open.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from typing import Any

from headrace.connectors import find_connector
from headrace.connectors.sql.connector import SqlConnector
from headrace.protocol.grpc import GrpcServer
from headrace.testing import Observed, kill_at, stop_at

Observer = Callable[[str], None]


def watch_statements(connector: SqlConnector[Any, Any], observer: Observer) -> None:
    """Tells the observer of each statement that the connector's databases have executed."""
    connect = connector.connect

    def watched(endpoint: Any) -> Any:
        database: Any = connect(endpoint)
        execute = database.execute

        def execute_and_tell(statement: str, *parameters: Any) -> Any:
            result = execute(statement, *parameters)
            observer("executed a statement")
            return result

        database.execute = execute_and_tell
        return database

    connector.connect = watched  # type: ignore[method-assign]


def naming_commits(observer: Observer) -> Observer:
    """Statements are told under the name of the commit that they belong to."""
    commits = 0

    def observe(step: str) -> None:
        nonlocal commits
        commits += step == "received StartCommit"
        observer(f"statement of commit {commits}" if step == "executed a statement" else step)

    return observe


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["kill", "stop"], required=True)
    parser.add_argument("--step", required=True)
    parser.add_argument("--occurrence", type=int, default=1)
    parser.add_argument("name")
    parser.add_argument("--grpc", required=True)
    arguments = parser.parse_args()
    fault = {"kill": kill_at, "stop": stop_at}[arguments.fault]
    observer = naming_commits(fault(arguments.step, arguments.occurrence))
    connector = find_connector(arguments.name)
    assert isinstance(connector, SqlConnector)
    watch_statements(connector, observer)
    with GrpcServer(Observed(connector, observer), arguments.grpc) as server:
        print(f"listens on 127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()
