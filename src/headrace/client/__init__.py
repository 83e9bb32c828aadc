"""The Python client: a writer that reports how far each write has come."""

from headrace.client.client import Client, connect
from headrace.client.receipts import Receipt
from headrace.client.sender import Reconnect
from headrace.client.writer import Writer
from headrace.model.tiers import Tier

__all__ = ["Client", "Receipt", "Reconnect", "Tier", "Writer", "connect"]
