"""Posts delta updates to a webhook; the recovery log is authoritative."""

from headrace.connectors.webhook.connector import WebhookConnector

__all__ = ["WebhookConnector"]
