"""`headrace connector files`, but with a fault: `--fault kill|stop --step STEP --occurrence N` come first.

A step is one of `headrace.testing.faults`, or `before` or `after` what the connector does to its store:
`write` (begins a staged object), `close` (ends it), `publish`, `create` (a marker) and `delete`.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from headrace.connectors.files import FilesConnector
from headrace.connectors.files.storage import Sink, Storage, StoredObject
from headrace.protocol.grpc import GrpcServer
from headrace.testing import Observed, kill_at, stop_at

Observer = Callable[[str], None]
Result = TypeVar("Result")


class ObservedStorage(Storage):
    def __init__(self, storage: Storage, observer: Observer) -> None:
        self._storage = storage
        self._observer = observer
        self.durability = storage.durability

    def prepare(self, folders: Iterable[str]) -> None:
        self._storage.prepare(folders)

    def write(self, path: str) -> Sink:
        sink = self._told("write", lambda: self._storage.write(path))
        close = sink.close
        sink.close = lambda: self._told("close", close)  # type: ignore[method-assign]
        return sink

    def create(self, path: str, data: bytes) -> bool:
        if not path.endswith(".published"):  # of Apply
            return self._storage.create(path, data)
        return self._told("create", lambda: self._storage.create(path, data))

    def read(self, path: str) -> bytes:
        return self._storage.read(path)

    def size(self, path: str) -> int | None:
        return self._storage.size(path)

    def publish(self, source: str, target: str, size: int) -> bool:
        return self._told("publish", lambda: self._storage.publish(source, target, size))

    def objects(self, folder: str) -> Iterator[StoredObject]:
        return self._storage.objects(folder)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            if "/_staged/" in path:
                self._told("delete", partial(self._storage.delete, [path]))
            else:
                self._storage.delete([path])

    def _told(self, what: str, call: Callable[[], Result]) -> Result:
        self._observer(f"before {what}")
        result = call()
        self._observer(f"after {what}")
        return result


class WatchedConnector(FilesConnector):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def open_storage(self, endpoint: Mapping[str, Any]) -> Storage:
        return ObservedStorage(super().open_storage(endpoint), self._observer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["kill", "stop"], required=True)
    parser.add_argument("--step", required=True)
    parser.add_argument("--occurrence", type=int, default=1)
    parser.add_argument("name", choices=["files"])
    parser.add_argument("--grpc", required=True)
    arguments = parser.parse_args()
    fault = {"kill": kill_at, "stop": stop_at}[arguments.fault]
    observer = fault(arguments.step, arguments.occurrence)
    with GrpcServer(Observed(WatchedConnector(observer), observer), arguments.grpc) as server:
        print(f"listens on 127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()
