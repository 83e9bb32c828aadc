"""What every crash test carries into Redis, and what must be there in the end.

Where the last write wins the view is exact, whatever crashed. What is summed or appended is all there, and
may be there more than once: never more often than its transaction was tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from headrace.connectors.redis import chunks, fence
from headrace.connectors.redis.session import Command, Session
from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import RecoveryLog, Runtime, combine, materialization_of, samples
from headrace.testing.conformance import Conformance
from tests.connectors.redis_endpoint import RedisEndpointUnderTest
from tests.crash.forking import ForkedConnector

DOCUMENTS = samples.orders(seed=11, count=150)
SEEN = [{"id": number % 17, "place": f"place {number}"} for number in range(150)]
TRANSACTION = 30
"""Documents in each transaction: five transactions in all, whose keys repeat from one to the next."""
EXACT = {"customer", "day", "largest", "first", "note"}
"""The fields of an order that are the same when documents are reduced a second time."""


def applied(url: str, client: ConnectorClient) -> Materialization:
    bindings = [
        ValidateBinding(samples.ORDERS, {"prefix": "orders"}),
        ValidateBinding(samples.LAST_SEEN, {"prefix": "seen"}),
        ValidateBinding(samples.ORDERS, {"prefix": "deltas", "delta_updates": True}),
    ]
    materialization = materialization_of(client, "view", "redis", {"url": url}, bindings)
    client.apply(Apply(materialization, "1"))
    return materialization


def materialize(
    client: ConnectorClient,
    materialization: Materialization,
    log: RecoveryLog,
    observer: Callable[[str], None] = lambda _: None,
) -> None:
    """Goes on from where the recovery log stands, to the end."""
    with Runtime(client, materialization, log, rows_per_message=7, observer=observer) as runtime:
        done = runtime.checkpoint.get("done", 0)
        while done < len(DOCUMENTS):
            part = slice(done, done + TRANSACTION)
            done += TRANSACTION
            runtime.transact([DOCUMENTS[part], SEEN[part], DOCUMENTS[part]], {"done": done})


def small_chunks(told: Callable[[str], None]) -> None:
    """From now on in this process, chunks are small, and an observer is told of their steps."""
    chunks.ROWS_AT_ONCE = 5
    write, verify = fence.Fence.write, fence.Fence.verify

    def write_and_tell(self: fence.Fence, session: Session, commands: list[Command]) -> None:
        write(self, session, commands)
        told("wrote a chunk")

    def verify_and_tell(self: fence.Fence, session: Session) -> None:
        verify(self, session)
        told("verified the fence")

    fence.Fence.write = write_and_tell  # type: ignore[method-assign, assignment]
    fence.Fence.verify = verify_and_tell  # type: ignore[method-assign]


def of_third_commit(observer: Callable[[str], None]) -> Callable[[str], None]:
    """An observer that hears of the steps of chunks in the third transaction alone."""
    commits = 0

    def observe(happened: str) -> None:
        nonlocal commits
        commits += happened == "received StartCommit"
        if commits == 3 or happened not in ("wrote a chunk", "verified the fence"):
            observer(happened)

    return observe


def faulty_connector(fault: str, step: str, occurrence: int) -> ForkedConnector:
    arguments = [fault, step, str(occurrence)]
    return ForkedConnector("redis", "tests.connectors.redis.faulty_connector", arguments)


def assert_delivered(url: str, materialization: Materialization, tries: int = 2) -> None:
    """All is there, and the third transaction, in which the tests crash, at most this many times."""
    endpoint = RedisEndpointUnderTest(url)
    orders, seen, deltas = materialization.bindings
    Conformance().assert_holds(endpoint, seen, list(combine(samples.LAST_SEEN, SEEN).values()))
    stored = {(row["customer"], str(row["day"])): row["_document"] for row in endpoint.rows(orders)}
    least, most = _view(DOCUMENTS), _view(DOCUMENTS + (tries - 1) * DOCUMENTS[60:90])
    assert stored.keys() == least.keys()
    for key, document in stored.items():
        assert all(document[name] == least[key][name] for name in EXACT & least[key].keys())
        assert least[key]["count"] <= document["count"] <= most[key]["count"]
        assert Decimal(least[key]["total"]) <= Decimal(document["total"]) <= Decimal(most[key]["total"])
        assert Counter(least[key]["lines"]) <= Counter(document["lines"]) <= Counter(most[key]["lines"])
    batches = [DOCUMENTS[begin : begin + TRANSACTION] for begin in range(0, len(DOCUMENTS), TRANSACTION)]
    again = (tries - 1) * batches[2:3]
    entries = Counter(_text(row["_document"]) for row in endpoint.rows(deltas))
    assert _deltas(batches) <= entries <= _deltas(batches + again)


def assert_exact(url: str, materialization: Materialization) -> None:
    """All is there, once."""
    assert_delivered(url, materialization, tries=1)


def _view(documents: list[Any]) -> dict[tuple[Any, ...], Any]:
    return {(key[0], str(key[1])): document for key, document in combine(samples.ORDERS, documents).items()}


def _deltas(batches: list[list[Any]]) -> Counter[str]:
    return Counter(_text(delta) for batch in batches for delta in combine(samples.ORDERS, batch).values())


def _text(document: Any) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
