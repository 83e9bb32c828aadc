"""Redis: keys under a prefix for each lane, on a server that others may use too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from headrace.certify.documents import LATEST
from headrace.certify.targets.documents_of import parsed
from headrace.certify.targets.proxied import through_proxy
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.target import VIEW, Place, Rows, Target
from headrace.connectors.config import read_config
from headrace.connectors.redis.config import RedisEndpoint
from headrace.connectors.redis.session import Session

_AT_ONCE = 1000
_PORT = 6379


class RedisTarget(Target):
    """Delivers at least once: sums of a replay count twice."""

    name = "redis"
    is_atomic: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        """The connector's, of its endpoint."""
        self._config = self._reached = dict(config)
        self._endpoint = read_config(RedisEndpoint, config, "endpoint")

    def check(self) -> None:
        with self._session() as session:
            session.call("PING")

    def versions(self) -> Mapping[str, str]:
        with self._session() as session:
            told = bytes(session.call("INFO", "server")).decode()
        found = [line.partition(":")[2] for line in told.splitlines() if line.startswith("redis_version:")]
        return {"redis server": found[0]} if found else {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with through_proxy(self._config, _PORT) as (self.proxy, self._reached):
            yield

    def place(self, lane: str) -> Place:
        return Place(
            {"connector": "redis", "config": self._reached},
            {"resource": {"prefix": _prefix(lane)}},
        )

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {VIEW: steadily(lambda: self._read(lane))}

    def _read(self, lane: str) -> Rows:
        with self._session() as session:
            keys = _keys(session, lane)
            found = session.call("MGET", *keys) if keys else []
            return Rows([parsed(text) for text in found if text is not None])

    def remove(self, lane: str) -> None:
        """With what the connector has noted of it."""
        with self._session() as session:
            session.call("DEL", f"headrace:fences:{lane}", *_keys(session, lane))
            for noted in ("headrace:layouts", "headrace:stored"):
                session.call("HDEL", noted, _prefix(lane))

    def _session(self) -> Session:
        return Session(self._endpoint)


class LatestRedisTarget(RedisTarget):
    """Where the last write wins, a replay writes what is there."""

    name = "redis-latest"
    is_loaded: ClassVar[bool] = False

    def place(self, lane: str) -> Place:
        place = super().place(lane)
        return Place(place.materialization, {**place.binding, "collection": LATEST})

    def read(self, lane: str) -> Mapping[str, Rows]:
        found = super().read(lane)[VIEW].documents
        return {VIEW: Rows(sorted(found, key=lambda one: int(one["last"])), is_view=False)}


def _prefix(lane: str) -> str:
    return f"headrace-certify:{lane}"


def _keys(session: Session, lane: str) -> list[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, some = session.call("SCAN", cursor, "MATCH", f"{_prefix(lane)}:*", "COUNT", _AT_ONCE)
        found |= set(some)
        if cursor == b"0":
            return sorted(found)
