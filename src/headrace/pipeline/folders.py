"""Sinks whose place is a folder: of one machine, unless somebody says that it is shared."""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.errors import ConfigError
from headrace.pipeline.settings import MaterializationSettings

_FILE_FORMATS = ("parquet", "delta", "hudi")
# Two names of one kind of store.
_SAME = {"s3a": "s3", "abfss": "abfs"}


def is_folder(format_name: str, location: str) -> bool:
    scheme = urlsplit(location).scheme
    return scheme == "file" or (not scheme and format_name in _FILE_FORMATS)


def place_of(format_name: str, location: str) -> tuple[str, str]:
    """The same for all ways to write a place; two formats cannot have one folder between them."""
    if format_name not in _FILE_FORMATS:
        return format_name, location
    if is_folder(format_name, location):
        folder = Path(unquote(urlsplit(location).path) if ":" in location else location)
        return "files", posixpath.normpath(folder.absolute())
    parts = urlsplit(location)
    path = posixpath.normpath(f"/{parts.path.lstrip('/')}")
    return "files", f"{_SAME.get(parts.scheme, parts.scheme)}://{parts.netloc}{path}"


def refuse_folders(master: str, settings: MaterializationSettings) -> None:
    """On a cluster, those that are not shared: what workers write to their own disks nobody would find."""
    if master.startswith("local"):
        return
    found = [
        (f"sink {sink.name} goes", target.location)
        for sink in settings.sinks
        for target in sink.targets
        if target is not None and not sink.shared and is_folder(sink.format, target.location)
    ]
    dead = settings.dead_letters
    if dead is not None and not dead.shared and is_folder(dead.format, dead.location):
        found.append(("dead letters go", dead.location))
    for what, location in found:
        raise ConfigError(
            f"materialization {settings.name!r}: {what} to {location}, a folder, and Spark runs on {master}: "
            "name a bucket or, if all workers and the driver see the same folder there, write `shared: true`"
        )
