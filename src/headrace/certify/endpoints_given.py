"""Endpoints as the command line has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.certify.endpoints import Brokers, Bucket, Endpoints
from headrace.errors import ConfigError

KINDS = ("postgres", "redis", "kafka", "s3", "connector")


def endpoints_given(given: Sequence[str], *, embedded: bool) -> Endpoints:
    """From `KIND=VALUE`, where a value is an address, a JSON object, or @FILE with one."""
    values: dict[str, Any] = {}
    connectors: list[Mapping[str, Any]] = []
    for one in given:
        kind, is_value, text = one.partition("=")
        if kind not in KINDS or not is_value:
            raise ConfigError(f"--endpoint {one}: write KIND=VALUE, where KIND is one of {', '.join(KINDS)}")
        if kind in values or (kind == "s3" and "bucket" in values):
            raise ConfigError(f"--endpoint {kind} is there twice: certify one after the other")
        match kind:
            case "connector":
                connectors.append(_connector(_json(kind, text)))
            case "kafka":
                values["kafka"] = _brokers(_read(kind, text, "bootstrap"))
            case "s3":
                values["bucket"] = _bucket(_json(kind, text))
            case _:
                values[kind] = _read(kind, text, "url")
    return Endpoints(embedded=embedded, connectors=tuple(connectors), **values)


def _read(kind: str, text: str, address: str) -> dict[str, Any]:
    return _json(kind, text) if text.startswith(("{", "@")) else {address: text}


def _json(kind: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except OSError as error:
        raise ConfigError(f"--endpoint {kind}={text}: {error.strerror}") from None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--endpoint {kind}: write a JSON object, or @FILE with one")
    return value


def _refuse_unknown(kind: str, raw: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in raw:
        if name not in known:
            raise ConfigError(f"--endpoint {kind}: there is no {name!r}; there are {', '.join(known)}")


def _brokers(raw: dict[str, Any]) -> Brokers:
    _refuse_unknown("kafka", raw, ("bootstrap", "options", "source_options"))
    if not raw.get("bootstrap"):
        raise ConfigError("--endpoint kafka: give bootstrap, such as broker:9092")
    brokers = Brokers(raw["bootstrap"], raw.get("options", {}), raw.get("source_options", {}))
    assert brokers.client  # refuses options that nobody knows
    return brokers


def _connector(raw: dict[str, Any]) -> dict[str, Any]:
    _refuse_unknown("connector", raw, ("name", "config", "resource", "grpc", "tls"))
    if not isinstance(raw.get("resource"), dict) or not raw.get("name"):
        raise ConfigError('--endpoint connector: give name and resource, such as {"table": "{lane}"}')
    return {"config": {}, **raw}


def _bucket(raw: dict[str, Any]) -> Bucket:
    _refuse_unknown("s3", raw, ("url", "options", "catalog"))
    if not str(raw.get("url", "")).startswith("s3://"):
        raise ConfigError('--endpoint s3: give url, such as "s3://bucket/prefix"')
    return Bucket(raw["url"].rstrip("/"), raw.get("options", {}), raw.get("catalog", {}))
