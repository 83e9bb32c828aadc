"""A connector that takes everything and keeps nothing: what is left is the cost of the protocol."""

from __future__ import annotations

from headrace.model.collections import DOCUMENT_FIELD
from headrace.protocol.connector import Connector
from headrace.protocol.loop import accept_acknowledge, accept_open, loads, stores
from headrace.protocol.messages import (
    Acknowledged,
    Applied,
    Apply,
    Constraint,
    ConstraintKind,
    Flushed,
    Opened,
    Spec,
    Specified,
    StartedCommit,
    Validate,
    Validated,
    ValidatedBinding,
)
from headrace.protocol.stream import ConnectorStream

REQUIRED = Constraint(ConstraintKind.REQUIRED, "all of it is dropped")


class NoopConnector(Connector):
    def spec(self, request: Spec) -> Specified:
        return Specified({"type": "object"}, {"type": "object"}, "https://example.com/")

    def validate(self, request: Validate) -> Validated:
        return Validated(
            tuple(
                ValidatedBinding(
                    dict.fromkeys((*(field.name for field in binding.fields), DOCUMENT_FIELD), REQUIRED),
                    (binding.collection.name,),
                    delta_updates=False,
                )
                for binding in request.bindings
            )
        )

    def apply(self, request: Apply) -> Applied:
        return Applied("")

    def transactions(self, stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened())
        while accept_acknowledge(stream):
            stream.send(Acknowledged())
            for _ in loads(stream):
                pass
            stream.send(Flushed())
            for _ in stores(stream):
                pass
            stream.send(StartedCommit())
