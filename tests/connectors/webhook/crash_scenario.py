"""The stream of orders that the crash tests carry to a receiver, and the one right end of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import FileLog, Runtime, combine, materialization_of, samples
from tests.connectors.webhook_endpoint import Receiver

DOCUMENTS = samples.orders(seed=11, count=150)
TRANSACTION = 30
"""Documents in each transaction: five transactions, whose keys repeat from one to the next."""
RESOURCES = ("orders", "copies")


def applied(address: str, client: ConnectorClient) -> Materialization:
    materialization = materialization_of(
        client,
        "orders",
        "webhook",
        {"address": address, "batch_documents": 4, "retry_for": 10},
        [ValidateBinding(samples.ORDERS, {"path": resource}) for resource in RESOURCES],
    )
    client.apply(Apply(materialization, "1"))
    return materialization


def materialize(
    client: ConnectorClient,
    materialization: Materialization,
    log: Path,
    observer: Callable[[str], None] = lambda _: None,
) -> None:
    """Goes on from wherever the recovery log stands, to the end."""
    with Runtime(client, materialization, FileLog(log), rows_per_message=7, observer=observer) as runtime:
        done = runtime.checkpoint.get("done", 0)
        while done < len(DOCUMENTS):
            batch = DOCUMENTS[done : done + TRANSACTION]
            done += TRANSACTION
            runtime.transact([batch, batch], {"done": done})


def assert_each_once_and_in_order(receiver: Receiver) -> None:
    """For a receiver that minds the keys; whatever it had twice had the same content under the same key."""
    batches = [DOCUMENTS[begin : begin + TRANSACTION] for begin in range(0, len(DOCUMENTS), TRANSACTION)]
    expected: dict[tuple[str, str], list[object]] = {}
    for batch in batches:
        for row in combine(samples.ORDERS, batch).values():
            expected.setdefault((row["customer"], row["day"]), []).append(row)
    for resource in RESOURCES:
        stored: dict[tuple[str, str], list[object]] = {}
        for row in receiver.stored(resource):
            stored.setdefault((row["customer"], row["day"]), []).append(row)
        assert stored == expected
