"""The server's part of `headrace.yaml`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headrace.config.values import FilePath, Pause, Seconds, Section, Size, Text, Url
from headrace.errors import ConfigError
from headrace.ingest.engine_settings import EngineSettings, LogLimits, SessionLimits
from headrace.ingest.quarantine.stuck import StuckLimits
from headrace.ingest.server import TlsFiles

_LARGEST_MESSAGE = (1 << 31) - 1  # gRPC's

Port = Annotated[int, Field(ge=0, le=65535)]


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
    receive_bytes: Size = SessionLimits.receive_bytes
    """What all clients together may send before it is read."""


@dataclass(frozen=True)
class ServeSettings:
    """The settings of `headrace serve`, after options of the command line were applied
    (`dataclasses.replace`)."""

    host: str = "127.0.0.1"
    port: int = 8815
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = 8816
    tls: TlsFiles | None = None
    tokens: Path | None = None
    insecure: bool = False


class ServeConfig(Section):
    host: Text = "127.0.0.1"
    """The address that Arrow Flight listens on; one that others can reach needs `tls` and `tokens`."""
    port: Port = 8815
    """The port of Arrow Flight; 0 takes a free one."""
    metrics_host: Text = "127.0.0.1"
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

    def settings(self) -> ServeSettings:
        return ServeSettings(
            host=self.host,
            port=self.port,
            metrics_host=self.metrics_host,
            metrics_port=self.metrics_port,
            tls=TlsFiles(self.tls.certificate, self.tls.key) if self.tls else None,
            tokens=self.tokens,
            insecure=self.insecure,
        )


class StoreConfig(Section):
    url: Url
    """Where segments of the log go: s3://bucket/prefix, gs://, az:// or file:///folder."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Of obstore, for this kind of store, such as region, endpoint or access_key_id."""


class QuarantineConfig(Section):
    refusals: Annotated[int, Field(gt=0)] = StuckLimits.refusals
    """A collection is quarantined after so many commits in a row that were refused for good,"""
    failures: Annotated[int, Field(gt=0)] = StuckLimits.failures
    """or that failed in another way, while its table answers and others are committed,"""
    deaths: Annotated[int, Field(gt=0)] = StuckLimits.deaths
    """or that ended the process that commits, each with a single segment of this collection to commit,"""
    log_share: Annotated[float, Field(gt=0)] = StuckLimits.log_share
    """or when it alone keeps so much of `log_bytes` on the disk while others are committed."""

    def limits(self) -> StuckLimits:
        return StuckLimits(self.refusals, self.failures, self.deaths, self.log_share)


class IngestConfig(Section):
    commit_interval: Seconds = EngineSettings.commit_interval
    """How often tables are brought up to date."""
    commit_timeout: Seconds = EngineSettings.commit_timeout
    """A commit that takes longer is given up, and tried again in a new process."""
    log_bytes: Size = EngineSettings.most_log_bytes
    """No stream is read while the log that waits for object storage or Iceberg has this size."""
    free_bytes: Size = EngineSettings.free_bytes
    """No write is taken while less than this is free on the disk of the data folder."""
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
    quarantine: QuarantineConfig = QuarantineConfig()
    """When a collection that cannot be committed is kept apart, so that the others go on."""

    def log_limits(self) -> LogLimits:
        return LogLimits(
            segment_bytes=self.segment_bytes,
            segment_seconds=self.segment_seconds,
            group_bytes=self.group_bytes,
            gather_seconds=self.gather_seconds,
            waiting_bytes=self.waiting_bytes,
        )


def check_exposure(settings: ServeSettings) -> None:
    """Refuses to listen where others can connect without TLS and tokens, unless that is explicitly
    allowed."""
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
    """Returns whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may resolve to anything
