"""The log in object storage, and who may write it.

    log-id                 says which log this is; never removed
    epochs/0000000003      one for each server that ever began with an empty disk; never removed
    wal/00000000000000000042.wal

A server owns the log while no later epoch exists. It looks *after* each put, and a new server claims its
epoch *before* it reads what is there. So a put that a new owner did not see is never acknowledged.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
import orjson
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from headrace.errors import ConfigError, EndpointUnavailable, Fenced
from headrace.wal.records import SEGMENT_HEADER_BYTES, BadRecord, SegmentHeader
from headrace.wal.segments import Segment, map_segment, segment_name

_LOG_ID = "log-id"
_EPOCHS = "epochs"
_SEGMENTS = "wal"
# The library's own retries are kept short: ours go on for ever, count, and say what is wrong.
_RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
_TIMEOUTS: Any = {"timeout": "30s", "connect_timeout": "5s"}
_CHUNK = 8 << 20


class SegmentStore:
    """Segments in any store that `obstore` knows by URL."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        parts = urlsplit(url)
        # A file that is put is in the page cache only; nothing is announced before it is synced.
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        if self._folder is not None:
            _make_folders(self._folder)
        config = dict(options or {})
        client = {**_TIMEOUTS, **config.pop("client_options", {})}
        remote: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES}
        arguments = {} if self._folder else remote
        try:
            self._store = from_url(url, **arguments, **config)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"store {url!r}: {_first_line(error)}") from None

    def log_id(self) -> str:
        """What tells this log from any other; made by the first who asks."""
        with self._speaking("identify the log"):
            with suppress(AlreadyExistsError):
                self._put(_LOG_ID, uuid4().hex.encode())
            return bytes(obstore.get(self._store, _LOG_ID).bytes()).decode()

    def join(self, log_id: str, epoch: int) -> None:
        """Goes on with the log of a data folder. An empty store becomes that log's."""
        with self._speaking("identify the log"):
            with suppress(AlreadyExistsError):
                self._put(_LOG_ID, log_id.encode())
            found = bytes(obstore.get(self._store, _LOG_ID).bytes()).decode()
            if found == log_id:
                with suppress(AlreadyExistsError):
                    self._put(_epoch_path(epoch), _who())
        if found != log_id:
            raise ConfigError(
                f"store {self.url} holds the log {found}, and the data folder is of the log {log_id}: "
                "name the store that it had, or start with a new data folder"
            )

    def claim_epoch(self) -> int:
        """An epoch that nobody had before; from now on the server of the one before is fenced off."""
        while True:
            with self._speaking("claim an epoch"):
                epoch = max(self._epochs(), default=-1) + 1
                try:
                    self._put(_epoch_path(epoch), _who())
                except AlreadyExistsError:
                    continue
                return epoch

    def check_owner(self, epoch: int) -> None:
        """Refuses if a later epoch was claimed."""
        with self._speaking("look for other servers"):
            try:
                obstore.head(self._store, _epoch_path(epoch + 1))
            except FileNotFoundError:
                return
        raise Fenced(
            f"another server took over the log in {self.url}: "
            "stop this one, or start it with a new data folder",
            fence=epoch,
        )

    def refuse_old_copy(self, newest: int, epoch: int) -> None:
        """Raises if this epoch has put a segment after the newest that a data folder knows of."""
        later = max(self.numbers(), default=0)
        if later <= newest:
            return
        with self._speaking(f"get segment {later}"):
            header = self._header(_segment_path(later))
        with suppress(BadRecord):
            if SegmentHeader.decode(header).epoch >= epoch:
                raise Fenced(
                    f"{self.url} has segment {later} and the data folder ends with {newest}, so it is an old "
                    "copy: start with the newest one, or with a new data folder",
                    fence=epoch,
                )

    def put(self, segment: Segment, epoch: int) -> None:
        """Returns when the segment is in the store and the server of this epoch still owns the log."""
        path = _segment_path(segment.header.number)
        with self._speaking(f"put segment {segment.header.number}"):
            try:
                self._put(path, map_segment(segment.path)[: segment.length])
            except AlreadyExistsError:
                self._settle_conflict(segment, path)
        self.check_owner(epoch)

    def has(self, segment: Segment) -> bool:
        """Whether this very segment is there; one of a log that another server wrote is not."""
        path = _segment_path(segment.header.number)
        with self._speaking(f"look for segment {segment.header.number}"):
            try:
                found = obstore.head(self._store, path)
            except FileNotFoundError:
                return False
            is_it = found["size"] == segment.length and self._header(path) == segment.header.encode()
            if is_it:
                self._sync(path)
            return is_it

    def numbers(self) -> list[int]:
        """The numbers of the segments that are there, in order."""
        with self._speaking("list segments"):
            names = [Path(path).name for path in self._list(_SEGMENTS)]
        return sorted(int(name.removesuffix(".wal")) for name in names)

    def fetch(self, number: int, folder: Path) -> None:
        """Copies a segment into a folder, synced."""
        target = folder / segment_name(number)
        with self._speaking(f"get segment {number}"), target.open("wb") as file:
            for chunk in obstore.get(self._store, _segment_path(number)).stream(min_chunk_size=_CHUNK):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, number: int) -> None:
        with self._speaking(f"remove segment {number}"):
            try:
                obstore.delete(self._store, _segment_path(number))
            except FileNotFoundError:
                return

    def _settle_conflict(self, segment: Segment, path: str) -> None:
        """The name is taken: by this very segment, whose answer was lost, or by a replaced server."""
        if self.has(segment):
            return
        try:
            other = SegmentHeader.decode(self._header(path)).epoch
        except BadRecord:  # a file that was put and not yet synced when the machine stopped
            other = -1
        if other >= segment.header.epoch:
            raise Fenced(
                f"{self.url} already has another segment {segment.header.number}: two servers write there, "
                "or the data folder is an old copy; stop this one, or start it with a new data folder",
                fence=segment.header.epoch,
            )
        # Put by the owner of an earlier epoch after this one was claimed, so it was never acknowledged.
        obstore.put(self._store, path, map_segment(segment.path)[: segment.length], use_multipart=False)
        self._sync(path)

    def _header(self, path: str) -> bytes:
        """What tells a segment from every other: no two of one epoch and number were ever sealed."""
        size = obstore.head(self._store, path)["size"]
        end = min(size, SEGMENT_HEADER_BYTES)
        return bytes(obstore.get_range(self._store, path, start=0, end=end)) if end else b""

    def _put(self, path: str, data: bytes | memoryview) -> None:
        obstore.put(self._store, path, data, mode="create", use_multipart=False)
        self._sync(path)

    def _sync(self, path: str) -> None:
        if self._folder is not None:
            _sync(self._folder / path)
            _sync((self._folder / path).parent)

    def _epochs(self) -> list[int]:
        return [int(Path(path).name) for path in self._list(_EPOCHS)]

    def _list(self, prefix: str) -> Iterator[str]:
        for page in obstore.list(self._store, prefix):
            for entry in page:
                yield entry["path"]

    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Turns what the library raises into our two kinds."""
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            # Not terminal: a running server must survive a credential that expires and is renewed.
            raise EndpointUnavailable(f"store {self.url} refuses to {what}: {_first_line(error)}") from error
        except (UnknownConfigurationKeyError, InvalidPathError) as error:
            raise ConfigError(f"store {self.url}: {_first_line(error)}") from error
        except (BaseError, OSError) as error:
            raise EndpointUnavailable(f"store {self.url} cannot {what}: {_first_line(error)}") from error


def _make_folders(folder: Path) -> None:
    try:
        for name in (_EPOCHS, _SEGMENTS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        _sync(folder)
        _sync(folder.parent)
    except OSError as error:
        raise ConfigError(f"store {folder}: {error.strerror}: choose another folder") from None


def _who() -> bytes:
    return orjson.dumps({"host": socket.gethostname(), "pid": os.getpid()})


def _epoch_path(epoch: int) -> str:
    return f"{_EPOCHS}/{epoch:010}"


def _segment_path(number: int) -> str:
    return f"{_SEGMENTS}/{segment_name(number)}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
