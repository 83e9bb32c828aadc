"""Files in a local folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from headrace.connectors.files.storage import Sink, Storage, StoredObject
from headrace.durable import sync_path
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.protocol.messages import Durability, Survival


class Folder(Storage):
    """Files are synced with their folders, and linked into place, which is atomic and never overwrites."""

    durability = Durability(Survival.PROCESS, "a folder on this host")

    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self, folders: Iterable[str]) -> None:
        for folder in folders:
            with _speaking(f"make the folder {self._root / folder}"):
                self._make(self._root / folder)

    def write(self, path: str) -> Sink:
        return _FileSink(self._root / path)

    def create(self, path: str, data: bytes) -> bool:
        target = self._root / path
        # It gets its name when it is whole.
        draft = target.with_name(f"{target.name}.{uuid4().hex}.draft")
        with _speaking(f"write {target}"):
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, target)
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            sync_path(target.parent)
        return True

    def read(self, path: str) -> bytes:
        with _speaking(f"read {self._root / path}"):
            return (self._root / path).read_bytes()

    def size(self, path: str) -> int | None:
        with _speaking(f"look at {self._root / path}"):
            try:
                return (self._root / path).stat().st_size
            except FileNotFoundError:
                return None

    def publish(self, source: str, target: str, size: int) -> bool:  # noqa: ARG002 - a link has any size
        with _speaking(f"link {self._root / target}"):
            try:
                os.link(self._root / source, self._root / target)
            except FileNotFoundError:
                return False
            except FileExistsError:
                pass  # by the attempt before this one, or by another at the same time
            sync_path((self._root / target).parent)
        return True

    def objects(self, folder: str) -> Iterator[StoredObject]:
        with _speaking(f"list {self._root / folder}"):
            try:
                entries = list(os.scandir(self._root / folder))
            except FileNotFoundError:
                return
            for entry in entries:
                try:
                    modified = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                except FileNotFoundError:  # removed meanwhile
                    continue
                yield StoredObject(entry.name, modified)

    def holds_any(self, folder: str) -> bool:
        with _speaking(f"list {self._root / folder}"):
            try:
                with os.scandir(self._root / folder) as entries:
                    return next(entries, None) is not None
            except FileNotFoundError:
                return False

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _speaking(f"remove {self._root / path}"):
                (self._root / path).unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_path(folder.parent)


class _FileSink(Sink):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        with _speaking(f"write {path}"):
            self._file = path.open("xb")

    def write(self, data: Any) -> int:
        with _speaking(f"write {self._path}"):
            written = self._file.write(data)
        self.size += written
        return written

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with _speaking(f"write {self._path}"), self._file as file:
            file.flush()
            os.fsync(file.fileno())
            sync_path(self._path.parent)


@contextmanager
def _speaking(what: str) -> Iterator[None]:
    """Translates errors of the operating system to our two kinds."""
    try:
        yield
    except (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise EndpointError(f"cannot {what}: {error.strerror}") from error
    except OSError as error:  # such as a full disk
        raise EndpointUnavailable(f"cannot {what}: {error.strerror}") from error
