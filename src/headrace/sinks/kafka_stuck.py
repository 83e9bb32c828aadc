"""Transactions of ours that are open, for people who wonder why readers of a topic wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.kafka.config import ClientOptions
from headrace.kafka.transactions import Description, Identity, Transactions
from headrace.sinks.kafka_checkpoints import Checkpoints, Record
from headrace.sinks.kafka_options import PREFIX, materialization_of

_TAKEN_FOR_MS = 60_000
"""For how long brokers would keep what a producer begins after us; ours begins nothing."""


@dataclass(frozen=True)
class OpenTransaction:
    description: Description
    record: Record | None
    """What it says of itself, if it came that far."""

    @property
    def identity(self) -> Identity:
        return self.description.identity

    @property
    def materialization(self) -> str:
        return materialization_of(self.identity.transactional_id)

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(self.description.started_ms / 1000, UTC)


def open_transactions(client: ClientOptions, checkpoints: str) -> Iterator[OpenTransaction]:
    """Those whose ids are ours, the oldest first."""
    with Transactions(client.bootstrap, client.security) as transactions:
        described = [transactions.describe(name) for name in transactions.list(PREFIX)]
    found = [one for one in described if one is not None and one.is_open]
    if not found:
        return
    records = Checkpoints(client, checkpoints, PREFIX).read_all().records
    for one in sorted(found, key=lambda one: one.started_ms):
        record = records.get(one.identity.transactional_id)
        yield OpenTransaction(one, record if record and record.is_of(one.identity) else None)


def abort_transaction(client: ClientOptions, transactional_id: str) -> None:
    """Its producer is fenced off too, so that it cannot go on as if nothing had been."""
    with Transactions(client.bootstrap, client.security) as transactions:
        transactions.take_over(transactional_id, _TAKEN_FOR_MS)
