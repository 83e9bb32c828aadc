"""Where a format keeps its files: a folder of this machine, or a place in object storage, by URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from headrace.connectors.files.bucket import Bucket
from headrace.connectors.files.config import FilesEndpoint
from headrace.connectors.files.failures import StoreFailures
from headrace.connectors.files.folder import Folder
from headrace.connectors.files.storage import Storage
from headrace.errors import ConfigError
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place

REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
# Of the connection and not of the kind of store; obstore wants to be told them apart from the rest.
_CLIENT_OPTIONS = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
    )
)


@dataclass(frozen=True)
class Root:
    """Above all files of a place. It travels to Spark's tasks, which write there."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of obstore for this kind of store, all as texts; may hold secrets."""

    @property
    def folder(self) -> Path | None:
        """The one of this machine; None in object storage."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    def below(self, name: str) -> Root:
        """A folder in this one."""
        return Root(f"{self.url}/{quote(name, safe='=')}", self.options)

    def check(self) -> None:
        """Refuses options that there are not. Nothing is reached for."""
        if self.folder is None:
            self.objects()
        elif self.options:
            raise ConfigError(f"a folder has no option {min(self.options)!r}: leave it out")

    def objects(self, *, writes: bool = True) -> ObjectStore:
        """For the driver: small objects that are created once. Makes a folder if it `writes`."""
        return ObjectStore(self.url, None if self.folder else self._nested(), writes=writes)

    def files(self) -> Storage:
        """For tasks: files of any size."""
        return Folder(self.folder) if self.folder else Bucket(self._endpoint())

    def said(self, error: BaseException) -> str:
        """What an error of the store says, in one line without the values of the options."""
        return StoreFailures(self._endpoint()).text(Exception(str(error)))

    def _endpoint(self) -> FilesEndpoint:
        return FilesEndpoint(url=self.url, options={} if self.folder else self._nested())

    def _nested(self) -> dict[str, Any]:
        client = {key: value for key, value in self.options.items() if key in _CLIENT_OPTIONS}
        rest = {key: value for key, value in self.options.items() if key not in _CLIENT_OPTIONS}
        return {**rest, "client_options": client}


def root_of(place: Place, options: Mapping[str, str] | None = None) -> Root:
    """Of a place that has a URL or a path as its location."""
    given = place.options if options is None else options
    parts = urlsplit(place.location)
    if parts.scheme in REMOTE_SCHEMES and parts.netloc:
        return Root(place.location.rstrip("/"), given)
    if not parts.scheme and place.location:
        return Root(Path(place.location).absolute().as_uri(), given)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return Root(Path(unquote(parts.path)).as_uri(), given)
    kinds = ", ".join(f"{scheme}://" for scheme in REMOTE_SCHEMES)
    raise ConfigError(f"{place.location!r} is no folder (file:///folder) and none of {kinds}: write one")


def partition_folder(column: str, value: str | None) -> str:
    """As Hive names it, and as readers of partitioned files understand it."""
    return f"{quote(column, safe=' ')}={quote(value, safe=' ') if value else '__HIVE_DEFAULT_PARTITION__'}"
