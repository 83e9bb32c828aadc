"""What the tests of this folder share: a connector to drive, and a look into the server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import redis

from headrace.connectors.redis import RedisConnector
from headrace.model.collections import Collection
from headrace.model.materializations import Materialization
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import Runtime, materialization_of

CLIENT = InProcess(RedisConnector())


def things(required: Sequence[str] = ("id",), **properties: dict[str, Any]) -> Collection:
    schema = {
        "type": "object",
        "required": list(required),
        "reduce": {"strategy": "merge"},
        "properties": {"id": {"type": "integer"}, **properties},
    }
    return Collection("things", ("/id",), schema)


def planned(
    url: str, collection: Collection, include: Sequence[str] = (), name: str = "view", **resource: Any
) -> Materialization:
    binding = ValidateBinding(collection, {"prefix": "things", **resource})
    return materialization_of(CLIENT, name, "redis", {"url": url}, [binding], include)


def apply(url: str, collection: Collection, **resource: Any) -> str:
    return CLIENT.apply(Apply(planned(url, collection, **resource), "1")).action_description


def write(url: str, collection: Collection, *documents: dict[str, Any], **resource: Any) -> int:
    """Commits one transaction and says how many documents were loaded in it."""
    with Runtime(CLIENT, planned(url, collection, **resource)) as runtime:
        return runtime.transact([list(documents)], {"n": 1}, always_load=True).loaded


def ask(url: str, *command: str | int) -> Any:
    """What the server answers, through the driver's own client."""
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    with closing(client):
        return client.execute_command(*command)


def documents_keys(url: str) -> set[str]:
    """All keys but the connector's own."""
    return {key for key in ask(url, "KEYS", "*") if not key.startswith("headrace:")}
