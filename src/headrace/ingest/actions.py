"""The calls of clients other than writing and reading; bodies and answers are JSON objects."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import ConfigError
from headrace.ingest.access import Identity
from headrace.ingest.collections import read_schema
from headrace.ingest.engine import Engine
from headrace.ingest.schemas import describe_fields
from headrace.model.tiers import Tier

_FLUSH_SECONDS = 60.0
_MOST_SECONDS = 86_400
_RELEASE_SECONDS = 600.0
_MOST_LSNS = 100_000

Body = dict[str, Any]


class Actions:
    """The actions of one server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.known: dict[str, tuple[str, Callable[[Body, Identity], Body]]] = {
            "create_collection": ("Create a collection by an Arrow or a JSON schema.", self._create),
            "list_collections": ("Describe all collections that may be read.", self._list),
            "describe_collection": ("Describe one collection.", self._describe),
            "watermarks": ("How far everything is, and given LSNs.", self._watermarks),
            "flush": ("Wait until everything written before is at a level.", self._flush),
            "list_quarantine": ("Which collections are in quarantine, and why.", self._list_quarantine),
            "release_quarantine": ("Commit what a collection in quarantine has.", self._release),
            "drop_quarantine": ("Give up what a collection in quarantine has.", self._drop),
            "health": ("What works and what does not.", self._health),
        }

    def run(self, name: str, data: bytes, identity: Identity) -> bytes:
        if name not in self.known:
            raise ConfigError(f"there is no action {name!r}; there are {', '.join(self.known)}")
        _, action = self.known[name]
        return orjson.dumps(action(_parse(name, data), identity))

    def describe(self, name: str) -> Body:
        collection = self._engine.collections.get(name)
        committed = self._engine.progress.of(Tier.COMMITTED, name)
        return {
            "name": name,
            "key": list(collection.key),
            "json_schema": collection.json_schema,
            "fields": describe_fields(self._engine.collections.schema(name)),
            "arrow_schema": b64encode(collection.schema).decode(),
            "table": ".".join(self._engine.catalog.identifier(name)),
            "committed_lsn": committed.lsn,
            "snapshot_id": committed.snapshot_id,
        }

    def _create(self, body: Body, identity: Identity) -> Body:
        name = _text(body, "name")
        identity.require_write(name)
        if "arrow_schema" in body:
            _only(body, "name", "arrow_schema")
            self._engine.collections.create(name, _arrow_schema(body["arrow_schema"]))
        elif "schema" in body:
            _only(body, "name", "key", "schema")
            key, schema = body.get("key"), body["schema"]
            if not isinstance(key, list) or not all(isinstance(pointer, str) for pointer in key):
                raise ConfigError('create_collection: key is a list of JSON pointers, such as ["/id"]')
            if not isinstance(schema, dict):
                raise ConfigError("create_collection: schema is a JSON schema")
            self._engine.collections.create_keyed(name, tuple(key), schema)
        else:
            raise ConfigError("create_collection: give arrow_schema, or key and schema")
        return self.describe(name)

    def _list(self, body: Body, identity: Identity) -> Body:
        _only(body)
        names = filter(identity.may_read, self._engine.collections.names())
        return {"collections": [self.describe(name) for name in names]}

    def _describe(self, body: Body, identity: Identity) -> Body:
        _only(body, "name")
        name = _text(body, "name")
        identity.require_read(name)
        return self.describe(name)

    def _health(self, body: Body, identity: Identity) -> Body:
        _only(body)
        health = self._engine.health(identity.may_see)
        if not identity.is_admin:
            del health["sessions"]  # who else writes is nobody's business
        return health

    def _watermarks(self, body: Body, identity: Identity) -> Body:
        _only(body, "collection", "lsns")
        collection, lsns = body.get("collection"), body.get("lsns", [])
        if collection is not None:
            name = _text(body, "collection")
            if not identity.may_see(name):
                identity.require_read(name)
            self._engine.collections.get(name)
        if not isinstance(lsns, list) or len(lsns) > _MOST_LSNS or not all(isinstance(n, int) for n in lsns):
            raise ConfigError(f"watermarks: lsns is a list of at most {_MOST_LSNS:,} LSNs")
        return {
            "watermarks": self._engine.watermarks(collection, identity.may_see),
            "lost": self._engine.lost(collection=collection),
            "lsns": {
                str(lsn): tier
                for lsn, tier in self._engine.tiers_of(lsns, collection, identity.may_see).items()
            },
        }

    def _list_quarantine(self, body: Body, identity: Identity) -> Body:
        _only(body)
        listed = self._engine.quarantine_calls.listed()
        return {"quarantine": [one.to_json() for one in listed if identity.may_see(one.collection)]}

    def _release(self, body: Body, identity: Identity) -> Body:
        _only(body, "name", "timeout")
        name = _text(body, "name")
        identity.require_write(name)
        self._engine.quarantine_calls.release(name, _timeout("release_quarantine", body, _RELEASE_SECONDS))
        return {"name": name, "committed_lsn": self._engine.progress.of(Tier.COMMITTED, name).lsn}

    def _drop(self, body: Body, identity: Identity) -> Body:
        """Asks for the name twice, as somebody who gives data up should."""
        _only(body, "name", "confirm")
        name = _text(body, "name")
        identity.require_admin()
        if body.get("confirm") != name:
            raise ConfigError(
                f"drop_quarantine gives up what was acknowledged: repeat the name {name!r} in confirm"
            )
        return {"name": name, "lost": self._engine.quarantine_calls.drop(name)}

    def _flush(self, body: Body, identity: Identity) -> Body:
        _only(body, "level", "timeout")
        if not identity.roles.write:
            identity.require_admin()
        timeout = _timeout("flush", body, _FLUSH_SECONDS)
        self._engine.flush(Tier.parse(body.get("level", Tier.COMMITTED)), timeout)
        return self._watermarks({}, identity)


def _parse(name: str, data: bytes) -> Body:
    try:
        body = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        raise ConfigError(f"{name}: the body is not JSON") from None
    if not isinstance(body, dict):
        raise ConfigError(f"{name}: the body is not a JSON object")
    return body


def _timeout(name: str, body: Body, default: float) -> float:
    timeout = body.get("timeout", default)
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 <= timeout <= _MOST_SECONDS:
        raise ConfigError(
            f"{name}: timeout is a number of seconds, at most {_MOST_SECONDS:,}, not {timeout!r}"
        )
    return float(timeout)


def _text(body: Body, key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise ConfigError(f"{key} is missing or not a text")
    return value


def _only(body: Body, *known: str) -> None:
    for key in body:
        if key not in known:
            raise ConfigError(f"key {key!r} is not known; the keys are {', '.join(known) or 'none'}")


def _arrow_schema(value: Any) -> pa.Schema:
    try:
        return read_schema(b64decode(value, validate=True))
    except (ValueError, TypeError, pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"create_collection: arrow_schema is not a schema in Arrow IPC form, base64: {error}"
        ) from None
