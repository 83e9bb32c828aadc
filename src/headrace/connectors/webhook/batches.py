"""The requests of a transaction: their bodies, and the keys by which a receiver recognizes repeated ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from headrace.connectors.webhook.config import WebhookEndpoint
from headrace.connectors.webhook.spool import Spool
from headrace.model.materializations import Binding
from headrace.protocol.messages import Open

FORMAT = 1
"""The version of the body, raised by a change that requires receivers to change."""


@dataclass(frozen=True)
class Batch:
    """One request."""

    path: str
    body: bytes
    idempotency_key: str


class TransactionBatches:
    """Creates the requests of one stream's transactions."""

    def __init__(self, opened: Open, endpoint: WebhookEndpoint) -> None:
        self._materialization = opened.materialization
        self._key_range = str(opened.key_range)
        self._endpoint = endpoint

    def of(self, transaction: int, spool: Spool) -> Iterator[Batch]:
        """Yields the requests in order, each created only when it is needed."""
        for index, binding in enumerate(self._materialization.bindings):
            batches = spool.batches(index, self._endpoint.batch_documents, self._endpoint.batch_bytes)
            for number, rows in enumerate(batches, 1):
                envelope = self._envelope(binding, transaction, number, len(batches))
                body = b"".join(
                    [orjson.dumps(envelope)[:-1], b',"documents":[', b",".join(spool.documents(rows)), b"]}"]
                )
                place = self._place(binding, transaction, number)
                yield Batch(binding.resource_path[0], body, f"{_digest(place)}-{_digest(body)}")

    def _envelope(self, binding: Binding, transaction: int, batch: int, batches: int) -> dict[str, object]:
        return {
            "format": FORMAT,
            "materialization": self._materialization.name,
            "resource": binding.resource_path[0],
            "collection": binding.collection.name,
            "key_range": self._key_range,
            "transaction": transaction,
            "batch": batch,
            "batches": batches,
        }

    def _place(self, binding: Binding, transaction: int, batch: int) -> bytes:
        return orjson.dumps(
            [self._materialization.name, binding.resource_path[0], self._key_range, transaction, batch]
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
