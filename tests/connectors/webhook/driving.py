"""What the tests of this folder share: a connector to drive, and how to send a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.connectors.webhook import WebhookConnector
from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import ValidateBinding
from headrace.testing import RecoveryLog, Runtime, materialization_of

CLIENT = InProcess(WebhookConnector())

THINGS = Collection(
    "things",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
    },
)


def planned(
    address: str, *paths: str, name: str = "view", client: ConnectorClient = CLIENT, **config: Any
) -> Materialization:
    """Things, sent to each of the paths."""
    endpoint = {"address": address, "retry_for": 5, **config}
    bindings = [ValidateBinding(THINGS, {"path": path}) for path in paths or ("things",)]
    return materialization_of(client, name, "webhook", endpoint, bindings)


def send(
    materialization: Materialization,
    documents: Sequence[dict[str, Any]],
    log: RecoveryLog | None = None,
    key_range: KeyRange = FULL_RANGE,
    rows_per_message: int = 1000,
    n: int = 1,
) -> None:
    """One transaction of a stream of its own, with the same documents for each binding."""
    with Runtime(CLIENT, materialization, log, key_range, rows_per_message) as runtime:
        runtime.transact([documents] * len(materialization.bindings), {"n": n})


def things(count: int, text: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "text": text} for number in range(count)]
