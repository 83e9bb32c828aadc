"""Redis says by its own configuration what its rows survive."""

from __future__ import annotations

import pytest

from devtools.redis_server import RedisServer
from headrace.protocol.messages import Durability, Survival, Validate, ValidateBinding
from tests.connectors.redis.driving import CLIENT, things


def durability(url: str) -> Durability:
    binding = ValidateBinding(things(), {"prefix": "things"})
    return CLIENT.validate(Validate("view", "redis", {"url": url}, (binding,))).durability


@pytest.mark.parametrize(
    ("appends", "syncs", "expected"),
    [
        (False, "always", Durability(Survival.NOTHING, "the memory of Redis (`appendonly no`)")),
        (
            True,
            "everysec",
            Durability(Survival.NOTHING, "the append-only file of Redis (`appendfsync everysec`)"),
        ),
        (
            True,
            "always",
            Durability(Survival.HOST, "the append-only file of Redis (`appendfsync always`)"),
        ),
    ],
)
def test_by_the_append_only_file(appends: bool, syncs: str, expected: Durability) -> None:
    with RedisServer(appends, {"appendfsync": syncs}) as server:
        assert durability(server.url) == expected


def test_a_server_that_keeps_its_configuration_to_itself(own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all", "-config", "-@dangerous"
        )
    address = own_server.url.partition("@")[2]
    assert durability(f"redis://guest:secret@{address}") == Durability()
