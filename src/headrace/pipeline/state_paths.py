"""Where a pipeline keeps what it knows (recovery logs in `state`, Spark's checkpoint folders), and which
places of sinks are folders: of one machine, unless somebody says that it is shared."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.objects import ObjectStore
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings


def open_recovery_log(settings: PipelineSettings, name: str) -> RecoveryLog:
    return _log(ObjectStore(settings.state_url, settings.state_options), name)


def check_state(settings: PipelineSettings) -> None:
    """Refuses a store in which two coordinators could both believe that they have decided an epoch."""
    if urlsplit(settings.state_url).scheme != "file":
        ObjectStore(settings.state_url, settings.state_options).check_create_only("materializations")


def open_recovery_log_for_reading(settings: PipelineSettings, name: str) -> RecoveryLog:
    """Makes no folder: where there is none, nothing was decided."""
    parts = urlsplit(settings.state_url)
    if parts.scheme == "file" and not Path(unquote(parts.path)).exists():
        return _log(ObjectStore("memory:///"), name)
    return _log(ObjectStore(settings.state_url, settings.state_options, writes=False), name)


def _log(store: ObjectStore, name: str) -> RecoveryLog:
    return RecoveryLog(store, f"materializations/{_part(name)}/log")


@contextmanager
def checkpoint_folder(settings: PipelineSettings, name: str) -> Iterator[Path]:
    """A folder of this machine. Where `state` is no folder it is gone afterwards: it can be made anew."""
    parts = urlsplit(settings.state_url)
    if parts.scheme == "file":
        yield Path(unquote(parts.path)).absolute() / "materializations" / _part(name) / "checkpoint"
        return
    folder = Path(tempfile.mkdtemp(prefix="headrace-checkpoint-"))
    try:
        yield folder / "checkpoint"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _part(name: str) -> str:
    return quote(name, safe="")


_FILE_FORMATS = ("parquet", "delta", "hudi")
# Two names of one kind of store.
_SAME = {"s3a": "s3", "abfss": "abfs"}


def is_folder(format_name: str, location: str) -> bool:
    scheme = urlsplit(location).scheme
    return scheme == "file" or (not scheme and format_name in _FILE_FORMATS)


def canonical_place(format_name: str, location: str) -> tuple[str, str]:
    """Returns the same for all ways to write a place; two formats cannot have one folder between them."""
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
