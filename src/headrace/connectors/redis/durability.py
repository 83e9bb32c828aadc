"""Asks a Redis server for its own configuration whether it keeps what it has acknowledged."""

from __future__ import annotations

from headrace.connectors.redis.session import Session
from headrace.errors import EndpointError
from headrace.protocol.messages import Durability, Survival

_SETTINGS = ("appendonly", "appendfsync")


def durability_of(session: Session) -> Durability:
    """Returns the server's durability. Snapshots (`save`) do not count: rows since the last one are lost with
    the server."""
    try:
        appends, syncs = (_setting(session, name) for name in _SETTINGS)
    except EndpointError:  # hosted servers refuse CONFIG
        return Durability()
    if appends != "yes":
        return Durability(Survival.NOTHING, "the memory of Redis (`appendonly no`)")
    survives = Survival.HOST if syncs == "always" else Survival.NOTHING
    return Durability(survives, f"the append-only file of Redis (`appendfsync {syncs}`)")


def _setting(session: Session, name: str) -> str:
    found = session.call("CONFIG", "GET", name)
    if len(found) != 2:
        raise EndpointError(f"Redis has no setting {name!r}")
    return _text(found[1])


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
