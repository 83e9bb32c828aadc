"""Where a pipeline keeps what it knows: recovery logs in `state`, and Spark's checkpoint folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from headrace.objects import ObjectStore
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.pipeline.settings import PipelineSettings


def open_recovery_log(settings: PipelineSettings, name: str) -> RecoveryLog:
    return _log(ObjectStore(settings.state_url, settings.state_options), name)


def check_state(settings: PipelineSettings) -> None:
    """Refuses a store in which two coordinators could both believe that they have decided an epoch."""
    if urlsplit(settings.state_url).scheme != "file":
        ObjectStore(settings.state_url, settings.state_options).check_create_only("materializations")


def look_at_recovery_log(settings: PipelineSettings, name: str) -> RecoveryLog:
    """For somebody who only reads it: no folder is made, and where there is none, nothing was decided."""
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
