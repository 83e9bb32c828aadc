"""Objects in a bucket of S3, Google Cloud Storage, Azure, or a compatible service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from headrace.connectors.files.config import FilesEndpoint
from headrace.connectors.files.failures import StoreFailures
from headrace.connectors.files.storage import Sink, Storage, StoredObject
from headrace.errors import ConfigError, EndpointUnavailable
from headrace.protocol.messages import Durability, Survival

# The library's own retries are kept short: the runtime tries again from the last checkpoint.
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_TIMEOUTS: Any = {"timeout": "60s", "connect_timeout": "5s"}
_PART_BYTES = 8 << 20  # 10,000 of them, the most that S3 takes, are 80 GB
_PARTS_AT_ONCE = 4
_COPYING_SCHEMES = ("s3", "s3a", "gs")  # Azure's copy can be seen before it is whole
_MOST_COPIED_BYTES = 5_000_000_000  # S3 copies no more than 5 GiB in one request


class Bucket(Storage):
    """Puts and copies are atomic to readers here, as these services guarantee."""

    durability = Durability(Survival.HOST, "object storage")

    def __init__(self, endpoint: FilesEndpoint) -> None:
        self._failures = StoreFailures(endpoint)
        self._copies = endpoint.scheme in _COPYING_SCHEMES
        options = dict(endpoint.options)
        try:
            client = {**_TIMEOUTS, **options.pop("client_options", {})}
            arguments: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES, **options}
            self._store = from_url(endpoint.url, **arguments)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"endpoint: key 'options', or 'url': {self._failures.text(error)}") from None

    def write(self, path: str) -> Sink:
        return _ObjectSink(self._store, path, self._failures)

    def create(self, path: str, data: bytes) -> bool:
        with self._failures.of(f"put {path}"):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def read(self, path: str) -> bytes:
        with self._failures.of(f"get {path}"):
            return bytes(obstore.get(self._store, path).bytes())

    def size(self, path: str) -> int | None:
        with self._failures.of(f"look at {path}"):
            try:
                return obstore.head(self._store, path)["size"]
            except FileNotFoundError:
                return None

    def publish(self, source: str, target: str, size: int) -> bool:
        with self._failures.of(f"copy {source} to {target}"):
            try:
                if self._copies and size <= _MOST_COPIED_BYTES:
                    obstore.copy(self._store, source, target)
                else:
                    self._copy_through(source, target, size)
            except FileNotFoundError:
                return False
        return True

    def objects(self, folder: str) -> Iterator[StoredObject]:
        with self._failures.of(f"list {folder}"):
            for page in obstore.list(self._store, folder):
                for found in page:
                    yield StoredObject(found["path"].rpartition("/")[2], found["last_modified"])

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._failures.of(f"delete {path}"):
                try:
                    obstore.delete(self._store, path)
                except FileNotFoundError:
                    continue

    def _copy_through(self, source: str, target: str, size: int) -> None:
        """Reads and writes the object. Nothing of it is visible before the writer is closed."""
        writer = _open_writer(self._store, target)
        copied = 0
        for chunk in obstore.get(self._store, source).stream(min_chunk_size=_PART_BYTES):
            writer.write(chunk)
            copied += len(chunk)
        if copied != size:
            raise EndpointUnavailable(f"{source} ended after {copied} of {size} bytes: try again")
        writer.close()


def _open_writer(store: Any, path: str) -> Any:
    return obstore.open_writer(store, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)


class _ObjectSink(Sink):
    def __init__(self, store: Any, path: str, failures: StoreFailures) -> None:
        super().__init__()
        self._path = path
        self._failures = failures
        self._writer = _open_writer(store, path)

    def write(self, data: Any) -> int:
        with self._failures.of(f"put {self._path}"):
            self._writer.write(data)
        written = memoryview(data).nbytes
        self.size += written
        return written

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with self._failures.of(f"put {self._path}"):
            self._writer.close()
