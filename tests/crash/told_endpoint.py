"""An endpoint that another process has told us of; good for writing to, not for looking into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.connectors import find_connector
from headrace.model.materializations import Binding
from headrace.testing.conformance import EndpointUnderTest


class ToldEndpoint(EndpointUnderTest):
    def __init__(self, endpoint_type: str, config: Mapping[str, Any]) -> None:
        self.connector = find_connector(endpoint_type)
        self.endpoint_type = endpoint_type
        self.config = config

    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        return {"table": name, "delta_updates": delta_updates}

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        raise AssertionError("the process that owns the endpoint looks into it")
