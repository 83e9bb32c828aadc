"""The endpoint on which a connector is tested, with independent read access to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from headrace.model.materializations import Binding
from headrace.protocol.connector import Connector


class EndpointUnderTest(ABC):
    """The conformance suite's view of a kind of endpoint."""

    connector: Connector
    endpoint_type: str
    config: Mapping[str, Any]
    """The configuration of an empty endpoint that belongs to this test."""
    keeps_checkpoints: bool = True
    """Whether the endpoint is authoritative: it answers Open with its own checkpoint, and fences."""

    @abstractmethod
    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        """Returns the resource configuration of a binding to a table, or the like, with this name."""

    @abstractmethod
    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        """Returns the endpoint's rows of a binding, by field name, without reading them through the
        connector.

        Values are the Python values that `RecordBatch.to_pylist` returns for a field's type; the document and
        fields of type json are parsed.
        """
