"""Object storage by URL: create-only puts, synced where the store is a folder, and errors of our own."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from headrace.durable import sync_path as _sync
from headrace.errors import ConfigError, EndpointUnavailable
from headrace.faults import reached

# The library's own retries are kept short: ours go on for ever, count, and say what is wrong.
_RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
_TIMEOUTS: Any = {"timeout": "30s", "connect_timeout": "5s"}
_CHUNK = 8 << 20
# Of a folder that is on another disk, or on one that knows no links or no more of them for this file.
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class ObjectExists(EndpointUnavailable):
    """An object of this name is there already."""


class NoSuchObject(EndpointUnavailable):
    """No object of this name is there."""


class ObjectStore:
    """Any store that `obstore` knows by URL. What a call has put or created outlives the machine's restart.

    `what`, where a call has it, completes the sentence "the store cannot ...".
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, writes: bool = True) -> None:
        """Creates a missing folder only if `writes` is true."""
        self.url = url
        parts = urlsplit(url)
        # A file that is put is in the page cache only; nothing is announced before it is synced.
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._known_folders: set[Path] = set()  # that are synced in the folder above them
        self._unsure: set[str] = set()  # paths whose sync is not known to have succeeded
        if self._folder is not None and writes:
            self._make_folder(self._folder)
        config = dict(options or {})
        client = {**_TIMEOUTS, **config.pop("client_options", {})}
        remote: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES}
        try:
            self._store = from_url(url, **({} if self._folder else remote), **config)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"store {url!r}: {_first_line(error)}") from None

    def create(self, path: str, data: bytes | memoryview, what: str, *, file: Path | None = None) -> str:
        """Raises `ObjectExists` if there is one of this name: of two who try, one succeeds.

        Returns the tag by which a store tells the object from any other of its name; a folder has none.

        `file` has the data, and nobody will ever write to it: in a folder on its disk the object is another
        name of it, and takes no room.
        """
        try:
            if file is not None and self._link(path, data, what, file):
                return ""
            return self._put(path, data, what, mode="create")
        except ObjectExists:
            with suppress(NoSuchObject):  # removed meanwhile
                self.sync(path, what)  # who put it may have died before that, and we go by it
            raise

    def check_create_only(self, folder: str) -> None:
        """Refuses a store that would let two who create one object both believe that it is theirs."""
        path, what = f"{folder.strip('/')}/try-{uuid4().hex}", "try whether it creates an object only once"
        try:
            self.create(path, b"first", what)
            with suppress(ObjectExists):
                self.create(path, b"second", what)
                raise ConfigError(
                    f"store {self.url} overwrites an object that was to be created only if there is none: "
                    "use one that honours If-None-Match"
                )
        finally:
            self.remove(path, what)

    def put(self, path: str, data: bytes | memoryview, what: str) -> None:
        """In the place of whatever is there."""
        self._put(path, data, what, mode="overwrite")

    def get(self, path: str, what: str, *, start: int = 0, end: int | None = None) -> bytes:
        with self._speaking(what):
            if end is None and not start:
                return bytes(obstore.get(self._store, path).bytes())
            size = obstore.head(self._store, path)["size"]
            end = size if end is None else min(end, size)
            return bytes(obstore.get_range(self._store, path, start=start, end=end)) if end > start else b""

    def stream(self, path: str, what: str) -> Iterator[memoryview]:
        with self._speaking(what):
            for chunk in obstore.get(self._store, path).stream(min_chunk_size=_CHUNK):
                yield memoryview(chunk)

    def size(self, path: str, what: str) -> int:
        with self._speaking(what):
            size: int = obstore.head(self._store, path)["size"]
            return size

    def tag(self, path: str, what: str) -> str:
        """Returns what `create` did, if the object is still that one."""
        with self._speaking(what):
            return self._tag(obstore.head(self._store, path)["e_tag"])

    def _tag(self, tag: str | None) -> str:
        return "" if self._folder is not None or tag is None else tag

    def is_name_of(self, path: str, file: Path) -> bool:
        """Returns whether an object is another name of a file, so that they cannot differ."""
        if self._folder is None:
            return False
        with suppress(OSError):
            return os.path.samefile(self._folder / path, file)
        return False

    def list(self, prefix: str, what: str, *, after: str | None = None) -> list[str]:
        """The paths under a prefix, sorted; only those after this one."""
        with self._speaking(what):
            pages = obstore.list(self._store, prefix, offset=after)
            return sorted(entry["path"] for page in pages for entry in page)

    def remove(self, path: str, what: str) -> None:
        """None of this name is fine."""
        with self._speaking(what), suppress(NotFoundError, FileNotFoundError):
            obstore.delete(self._store, path)

    def sync(self, path: str, what: str) -> None:
        """For what somebody put who may not have come so far as to sync it."""
        if self._folder is None:
            return
        with self._speaking(what):
            if path in self._unsure:  # a sync that failed may have dropped what it was to write
                data = obstore.get(self._store, path).bytes()
                obstore.put(self._store, path, data, use_multipart=False)
            self._unsure.add(path)
            _sync(self._folder / path)
            folder = (self._folder / path).parent
            _sync(folder)
            unknown = []
            while folder != self._folder and folder not in self._known_folders:
                unknown.append(folder)
                folder = folder.parent
                _sync(folder)
            self._known_folders.update(unknown)
            self._unsure.discard(path)

    def _link(self, path: str, data: bytes | memoryview, what: str, file: Path) -> bool:
        """Returns whether the file got the object's name; a copy is needed if not."""
        if self._folder is None:
            return False
        name = self._folder / path
        with self._speaking(what):
            if file.stat().st_size != len(data):  # with something behind the data that does not count
                return False
            name.parent.mkdir(parents=True, exist_ok=True)
            _sync(file)  # before it has the name: it may have been longer, and must not be again
            reached("object putting")
            try:
                os.link(file, name)
            except FileExistsError as error:
                raise ObjectExists(f"store {self.url} cannot {what}: it is there already") from error
            except OSError as error:
                if error.errno in _CANNOT_LINK:
                    return False
                raise
            reached("object put")
        self.sync(path, what)
        reached("object synced")
        return True

    def _put(self, path: str, data: bytes | memoryview, what: str, mode: Any) -> str:
        with self._speaking(what):
            reached("object putting")
            tag = obstore.put(self._store, path, data, mode=mode, use_multipart=False)["e_tag"]
            reached("object put")
        self.sync(path, what)
        reached("object synced")
        return self._tag(tag)

    def _make_folder(self, folder: Path) -> None:
        try:
            made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for parent in made or [folder]:
                _sync(parent.parent)
            if not os.access(folder, os.W_OK):
                raise ConfigError(f"store {folder} cannot be written: choose another folder")
        except OSError as error:
            raise ConfigError(f"store {folder}: {error.strerror}: choose another folder") from None

    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Turns what the library raises into our kinds."""
        try:
            yield
        except AlreadyExistsError as error:
            raise ObjectExists(f"store {self.url} cannot {what}: it is there already") from error
        except (NotFoundError, FileNotFoundError) as error:
            raise NoSuchObject(f"store {self.url} cannot {what}: it is not there") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            # Not terminal: a running server must survive a credential that expires and is renewed.
            raise EndpointUnavailable(f"store {self.url} refuses to {what}: {_first_line(error)}") from error
        except (UnknownConfigurationKeyError, InvalidPathError) as error:
            raise ConfigError(f"store {self.url}: {_first_line(error)}") from error
        except (BaseError, OSError) as error:
            raise EndpointUnavailable(f"store {self.url} cannot {what}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
