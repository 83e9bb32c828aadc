"""The webhook connector: push-only, with delta updates.

A receiver cannot be queried, so it keeps no checkpoint and the recovery log decides. The documents of a
transaction wait until StartCommit, and are sent before StartedCommit: a crash before the recovery log has the
transaction makes the runtime send it again, and the connector with it, under the same keys.
"""

from __future__ import annotations

from headrace.connectors.config import read_config
from headrace.connectors.webhook.batches import TransactionBatches
from headrace.connectors.webhook.client import WebhookClient
from headrace.connectors.webhook.config import WebhookEndpoint, WebhookResource
from headrace.connectors.webhook.delivery import deliver
from headrace.connectors.webhook.spool import Spool
from headrace.errors import ConfigError, ProtocolError
from headrace.model.checkpoints import JsonObject
from headrace.model.collections import DOCUMENT_FIELD, Collection
from headrace.model.materializations import Materialization
from headrace.protocol.connector import Connector
from headrace.protocol.loop import accept_acknowledge, accept_open, loads, stores
from headrace.protocol.messages import (
    Acknowledged,
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Delivery,
    Durability,
    Flushed,
    Opened,
    Spec,
    Specified,
    StartedCommit,
    Survival,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)
from headrace.protocol.stream import ConnectorStream

_TRANSACTION = "transaction"
_DURABILITY = Durability(Survival.HOST, "the storage of the receiver, which has answered for it")


class WebhookConnector(Connector):
    """Posts each transaction's documents to a URL."""

    def spec(self, request: Spec) -> Specified:  # noqa: ARG002 - the answer depends on nothing
        return Specified(
            WebhookEndpoint.model_json_schema(),
            WebhookResource.model_json_schema(),
            "https://github.com/headrace/headrace/blob/main/docs/connectors/webhook.md",
        )

    def validate(self, request: Validate) -> Validated:
        # The receiver is not asked: whatever it is sent it may take for data.
        with WebhookClient(read_config(WebhookEndpoint, request.endpoint, "endpoint")):
            bindings = tuple(_validate_binding(binding) for binding in request.bindings)
            return Validated(bindings, durability=_DURABILITY)

    def apply(self, request: Apply) -> Applied:
        _check_bindings(request.materialization)
        with WebhookClient(read_config(WebhookEndpoint, request.materialization.endpoint, "endpoint")):
            return Applied("")

    def transactions(self, stream: ConnectorStream) -> None:
        opened = accept_open(stream)
        endpoint = read_config(WebhookEndpoint, opened.materialization.endpoint, "endpoint")
        _check_bindings(opened.materialization)
        batches = TransactionBatches(opened, endpoint)
        transaction = _last_transaction(opened.connector_checkpoint)
        with WebhookClient(endpoint) as client:
            stream.send(Opened())
            while accept_acknowledge(stream):
                stream.send(Acknowledged())
                list(loads(stream))  # none: it ends at Flush
                stream.send(Flushed())
                transaction += 1
                with Spool(len(opened.materialization.bindings)) as spool:
                    for store in stores(stream):
                        spool.add(store)
                    deliver(batches.of(transaction, spool), client.post, endpoint.concurrency)
                stream.send(StartedCommit({_TRANSACTION: transaction}))


def _validate_binding(binding: ValidateBinding) -> ValidatedBinding:
    resource = read_config(WebhookResource, binding.resource, "resource")
    constraints = _constrain(binding.collection)
    return ValidatedBinding(constraints, (resource.path,), delta_updates=True, delivery=Delivery.REPEATED)


def _constrain(collection: Collection) -> dict[str, Constraint]:
    key = Constraint(ConstraintKind.REQUIRED, "it is part of the key")
    value = Constraint(ConstraintKind.FORBIDDEN, "it is sent within the document, never by itself")
    constraints = {
        field.name: key if field in collection.key_fields else value for field in collection.fields
    }
    constraints[DOCUMENT_FIELD] = Constraint(ConstraintKind.REQUIRED, "it is what is sent")
    return constraints


def _check_bindings(materialization: Materialization) -> None:
    for binding in materialization.bindings:
        if not binding.delta_updates:
            raise ConfigError(f"binding {binding} wants a full view, and a webhook takes delta updates only")
        if binding.document is None or binding.values:
            raise ConfigError(f"binding {binding} must store its document and nothing else beside the key")


def _last_transaction(checkpoint: JsonObject | None) -> int:
    last = (checkpoint or {}).get(_TRANSACTION, 0)
    if not isinstance(last, int) or isinstance(last, bool) or last < 0:
        raise ProtocolError(
            "Open brings a connector checkpoint that is not a webhook's: its 'transaction' must be a number",
            message_name="Open",
            expected='a connector checkpoint such as {"transaction": 1}',
        )
    return last
