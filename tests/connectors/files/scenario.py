"""The stream of orders that tests carry into files, and the one right end of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import RecoveryLog, combine, materialization_of, samples
from tests.connectors.files_endpoint import EndingRuntime, FilesEndpointUnderTest

DOCUMENTS = samples.orders(seed=11, count=150)
TRANSACTION = 30
"""Documents in each transaction: five transactions in all, whose keys repeat from one to the next."""
PREFIXES = ("orders", "by/customer")


def applied(config: Mapping[str, Any], client: ConnectorClient) -> Materialization:
    """Two bindings, so that a transaction stages and publishes two files."""
    bindings = [ValidateBinding(samples.ORDERS, {"prefix": prefix}) for prefix in PREFIXES]
    materialization = materialization_of(client, "orders", "files", config, bindings, ["lines"])
    client.apply(Apply(materialization, "1"))
    return materialization


def materialize(
    client: ConnectorClient,
    materialization: Materialization,
    log: RecoveryLog,
    observer: Callable[[str], None] = lambda _: None,
) -> None:
    """Goes on from wherever the recovery log stands, to the end."""
    runtime = EndingRuntime(client, materialization, log, rows_per_message=7, observer=observer)
    with runtime:
        done = runtime.checkpoint.get("done", 0)
        while done < len(DOCUMENTS):
            batch = DOCUMENTS[done : done + TRANSACTION]
            done += TRANSACTION
            runtime.transact([batch, batch], {"done": done})
        runtime.settle()


Rows = set[tuple[str, str, int, str]]
"""Key, count and first order of each row: enough to tell whose orders went into it, and how often."""


def published(endpoint: FilesEndpointUnderTest, prefix: str) -> list[Rows]:
    """What each file holds, in the files' order."""
    return [
        {(row["customer"], str(row["day"]), row["count"], row["first"]) for row in table.to_pylist()}
        for table in endpoint.table(prefix)
    ]


def expected(committed: int = len(DOCUMENTS)) -> list[Rows]:
    """What the file of each transaction holds, of as many documents as are committed."""
    batches = [DOCUMENTS[begin : begin + TRANSACTION] for begin in range(0, committed, TRANSACTION)]
    return [
        {
            (row["customer"], row["day"], row["count"], row["first"])
            for row in combine(samples.ORDERS, batch).values()
        }
        for batch in batches
    ]


def assert_exact(endpoint: FilesEndpointUnderTest) -> None:
    """Each transaction is one file, whole, and there once."""
    for prefix in PREFIXES:
        assert published(endpoint, prefix) == expected()
        assert [table.num_rows for table in endpoint.table(prefix)] == [len(rows) for rows in expected()]


def assert_only_committed(endpoint: FilesEndpointUnderTest, log: RecoveryLog) -> None:
    """What is published is of transactions in the recovery log: all, or all but the last."""
    committed = expected(log.read().runtime_checkpoint.get("done", 0))
    for prefix in PREFIXES:
        assert published(endpoint, prefix) in (committed, committed[:-1])
