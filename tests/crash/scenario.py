"""The stream of orders that every crash test carries into a view, and the one right end of it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import RecoveryLog, Runtime, combine, materialization_of, samples
from headrace.testing.conformance import Conformance, EndpointUnderTest
from tests.crash.forking import ForkedConnector

DOCUMENTS = samples.orders(seed=11, count=150)
TRANSACTION = 30
"""Documents in each transaction: five transactions in all, whose keys repeat from one to the next."""


def applied(endpoint: EndpointUnderTest, client: ConnectorClient) -> Materialization:
    """A full view and a log of deltas in one materialization, so that both kinds go through every crash."""
    materialization = materialization_of(
        client,
        "orders",
        endpoint.endpoint_type,
        endpoint.config,
        [
            ValidateBinding(samples.ORDERS, endpoint.resource("orders")),
            ValidateBinding(samples.ORDERS, endpoint.resource("deltas", delta_updates=True)),
        ],
        include=["lines"],
    )
    client.apply(Apply(materialization, "1"))
    return materialization


def materialize(
    client: ConnectorClient,
    materialization: Materialization,
    log: RecoveryLog,
    observer: Callable[[str], None] = lambda _: None,
) -> None:
    """Goes on from wherever the endpoint stands, to the end."""
    with Runtime(client, materialization, log, rows_per_message=7, observer=observer) as runtime:
        done = runtime.checkpoint.get("done", 0)
        while done < len(DOCUMENTS):
            batch = DOCUMENTS[done : done + TRANSACTION]
            done += TRANSACTION
            runtime.transact([batch, batch], {"done": done})


def assert_exact(endpoint: EndpointUnderTest, materialization: Materialization) -> None:
    view, deltas = materialization.bindings
    Conformance().assert_holds(endpoint, view, list(combine(samples.ORDERS, DOCUMENTS).values()))
    batches = [DOCUMENTS[begin : begin + TRANSACTION] for begin in range(0, len(DOCUMENTS), TRANSACTION)]
    roll_ups = [row for batch in batches for row in combine(samples.ORDERS, batch).values()]
    Conformance().assert_holds(endpoint, deltas, roll_ups)


def faulty_connector(name: str, fault: str, step: str, occurrence: int) -> ForkedConnector:
    arguments = ["--fault", fault, "--step", step, "--occurrence", str(occurrence)]
    return ForkedConnector(name, "tests.crash.faulty_connector", arguments)
