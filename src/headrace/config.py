"""`headrace.yaml`: what it may say, and how it is read.

Keys that are not known are refused. Paths are relative to the file's folder. In texts `${NAME}` stands for an
environment variable, and `$${` for `${`.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)

from headrace.errors import ConfigError
from headrace.ingest.engine import EngineSettings
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.ingest.server import TlsFiles
from headrace.ingest.session import SessionLimits
from headrace.ingest.yaml_files import problem_of, read_yaml
from headrace.wal.writer import LogLimits

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SIZES = {"": 1, "B": 1, **{f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)}}
_SIZES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LARGEST_MESSAGE = (1 << 31) - 1  # gRPC's


def _measure(value: Any, units: Mapping[str, float], example: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match and match[2] in units:
        return float(match[1]) * units[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    known = ", ".join(filter(None, units))
    raise ValueError(f"write a number, alone or with one of {known}, as in {example}")


def _size(value: Any) -> int:
    size = _measure(value, _SIZES, "64MiB")
    if not size.is_integer():
        raise ValueError("write a whole number of bytes")
    return int(size)


def _seconds(value: Any) -> float:
    return _measure(value, _SECONDS, "500ms")


def _url(value: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://.", value):
        raise ValueError("write a URL, such as s3://bucket/prefix or file:///folder")
    return value


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", ".")) / path.expanduser()


def _text_or(kind: str, units: Mapping[str, float]) -> WithJsonSchema:
    pattern = rf"^\s*\d+(\.\d+)?\s*({'|'.join(filter(None, units))})?\s*$"
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, {"type": "string", "pattern": pattern}]})


Size = Annotated[int, BeforeValidator(_size), Field(gt=0), _text_or("integer", _SIZES)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0), _text_or("number", _SECONDS)]
Pause = Annotated[float, BeforeValidator(_seconds), Field(ge=0), _text_or("number", _SECONDS)]
FilePath = Annotated[Path, AfterValidator(_from_folder)]
Port = Annotated[int, Field(ge=0, le=65535)]
Host = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A part of the file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )


class TlsConfig(Section):
    certificate: FilePath
    """The server's certificate chain, in PEM."""
    key: FilePath
    """The certificate's private key, in PEM."""


class LimitsConfig(Section):
    message_bytes: Annotated[Size, Field(le=_LARGEST_MESSAGE)] = SessionLimits.message_bytes
    """A message that is larger is refused."""
    unsynced_bytes: Size = SessionLimits.unsynced_bytes
    """A stream is not read while this much of it waits for the disk."""
    ranges: Annotated[int, Field(gt=0)] = SessionLimits.ranges
    """A stream is not read while this many ranges of LSNs wait to be announced to it."""


class ServeConfig(Section):
    host: Host = "127.0.0.1"
    """The address that Arrow Flight listens on; one that others can reach needs `tls` and `tokens`."""
    port: Port = 8815
    """The port of Arrow Flight; 0 takes a free one."""
    metrics_host: Host = "127.0.0.1"
    """The address of /metrics, /healthz and /readyz; the same rule holds for it."""
    metrics_port: Port | None = 8816
    """Their port; null for none."""
    tls: TlsConfig | None = None
    """Serve with TLS."""
    tokens: FilePath | None = None
    """A file of tokens and their roles; without one everybody may do everything."""
    insecure: bool = False
    """Listen on an address that others can reach, without TLS or tokens."""
    limits: LimitsConfig = LimitsConfig()
    """What one client may take up."""


class StoreConfig(Section):
    url: Annotated[str, AfterValidator(_url)]
    """Where segments of the log go: s3://bucket/prefix, gs://, az:// or file:///folder."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Of obstore, for this kind of store, such as region, endpoint or access_key_id."""


class IngestConfig(Section):
    commit_interval: Seconds = EngineSettings.commit_interval
    """How often tables are brought up to date."""
    commit_timeout: Seconds = EngineSettings.commit_timeout
    """A commit that takes longer is given up, and tried again in a new process."""
    log_bytes: Size = EngineSettings.most_log_bytes
    """No stream is read while the log that waits for object storage or Iceberg has this size."""
    segment_bytes: Size = LogLimits.segment_bytes
    """A segment of the log is ended and uploaded when it has this size,"""
    segment_seconds: Seconds = LogLimits.segment_seconds
    """or when its first write has waited for this long and no upload is under way."""
    group_bytes: Size = LogLimits.group_bytes
    """At most this much is written before a sync."""
    gather_seconds: Pause = LogLimits.gather_seconds
    """Under load writes gather for this long before a sync."""
    waiting_bytes: Size = LogLimits.waiting_bytes
    """No stream is read while this much waits for the disk."""


class HeadraceConfig(Section):
    data: FilePath = Path("data")
    """The server's folder: its log and, unless `store` and `catalog` say otherwise, everything else."""
    serve: ServeConfig = ServeConfig()
    """Who reaches the server, and how."""
    store: StoreConfig | None = None
    """Object storage; without it, a folder in the data folder."""
    catalog: CatalogSettings | None = None
    """The Iceberg catalog; without it or its properties, SQLite and a warehouse in the data folder."""
    ingest: IngestConfig = IngestConfig()
    """How writes travel."""

    def serve_settings(self) -> ServeSettings:
        serve = self.serve
        return ServeSettings(
            host=serve.host,
            port=serve.port,
            metrics_host=serve.metrics_host,
            metrics_port=serve.metrics_port,
            tls=TlsFiles(serve.tls.certificate, serve.tls.key) if serve.tls else None,
            tokens=serve.tokens,
            insecure=serve.insecure,
        )

    def engine_settings(self, data: Path | None = None) -> EngineSettings:
        """`data` outranks the file's."""
        folder = data or self.data
        ingest, limits = self.ingest, self.serve.limits
        catalog = self.catalog
        if catalog is not None and not catalog.properties:
            catalog = catalog.model_copy(update={"properties": embedded_catalog(folder).properties})
        return EngineSettings(
            data=folder,
            store_url=self.store.url if self.store else "",
            store_options=self.store.options if self.store else {},
            catalog=catalog,
            commit_interval=ingest.commit_interval,
            commit_timeout=ingest.commit_timeout,
            most_log_bytes=ingest.log_bytes,
            log=LogLimits(
                segment_bytes=ingest.segment_bytes,
                segment_seconds=ingest.segment_seconds,
                group_bytes=ingest.group_bytes,
                gather_seconds=ingest.gather_seconds,
                waiting_bytes=ingest.waiting_bytes,
            ),
            session=SessionLimits(limits.message_bytes, limits.unsynced_bytes, limits.ranges),
        )

    @classmethod
    def read(cls, raw: Any, folder: Path, what: str) -> Self:
        """`what` begins the sentence that says what is wrong."""
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise ConfigError(f"{what}: write keys and values, such as 'data: ./data'")
        try:
            return cls.model_validate(_substitute(raw, what, ()), context={"folder": folder})
        except ValidationError as error:
            raise ConfigError(f"{what}: {problem_of(error, cls)}") from None


@dataclass(frozen=True)
class ServeSettings:
    """What `headrace serve` listens on, after the command line had its say (`dataclasses.replace`)."""

    host: str = "127.0.0.1"
    port: int = 8815
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = 8816
    tls: TlsFiles | None = None
    tokens: Path | None = None
    insecure: bool = False


def load_config(path: Path | None = None) -> HeadraceConfig:
    """A file's configuration; without a file, the defaults, with the data in the current folder."""
    if path is None:
        return HeadraceConfig.read({}, Path(), "defaults")
    return HeadraceConfig.read(read_yaml(path, "configuration"), path.parent, f"configuration {path}")


def config_schema() -> dict[str, Any]:
    """The JSON Schema of `headrace.yaml`."""
    schema = HeadraceConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "headrace.yaml"}


def check_exposure(settings: ServeSettings) -> None:
    """Refuses to be reached by others without TLS and tokens, unless that is spelled out."""
    hosts = [settings.host]
    if settings.metrics_port is not None:
        hosts.append(settings.metrics_host)
    missing = [name for name in ("tls", "tokens") if getattr(settings, name) is None]
    for host in hosts:
        if missing and not settings.insecure and not is_loopback(host):
            raise ConfigError(
                f"{host} can be reached by others: set {' and '.join(f'serve.{name}' for name in missing)} "
                "in the configuration, or say --insecure"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may resolve to anything


def _substitute(value: Any, what: str, at: tuple[Any, ...]) -> Any:
    """Puts the environment's variables into every text; not into keys."""
    if isinstance(value, dict):
        return {key: _substitute(below, what, (*at, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [_substitute(below, what, (*at, index)) for index, below in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        found = os.environ.get(match[2])
        if found is None:
            where = ".".join(map(str, at))
            raise ConfigError(f"{what}: {where}: the environment variable {match[2]!r} is not set: set it")
        return found

    return _VARIABLE.sub(replaced, value)
