"""The endpoint that a connector is tested against, and an independent look into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from headrace.model.materializations import Binding
from headrace.protocol.connector import Connector


class EndpointUnderTest(ABC):
    """What the conformance suite needs to know of a kind of endpoint."""

    connector: Connector
    endpoint_type: str
    config: Mapping[str, Any]
    """The endpoint configuration of an empty endpoint of this test's own."""
    keeps_checkpoints: bool = True
    """Whether the endpoint is authoritative: it answers Open with its own checkpoint, and fences."""

    @abstractmethod
    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        """The resource configuration of a binding that goes to a table, or the like, of this name."""

    @abstractmethod
    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        """What the endpoint holds of a binding, by field name, not read through the connector.

        Values are those of Python that `RecordBatch.to_pylist` gives for a field's type; the document
        and fields of type json are parsed.
        """
