"""Invariant 4 of docs/invariants.md: readers of files in object storage."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from devtools.s3_server import S3Server
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink, read_manifests
from tests.sinks.s3_place import s3_options


def publish(store: ObjectStore, epoch: int, generation: int) -> None:
    """Puts the object that a commit puts: the manifest of an epoch with one file."""
    name = f"{epoch:020}-{generation}"
    file = {"path": f"data/{name}/part.parquet", "size": 1, "rows": 1, "partition": {}, "statistics": {}}
    manifest = {
        "id": name,
        "epoch": epoch,
        "rows": 1,
        "runtime_checkpoint": {"offsets": epoch},
        "columns": {"value": "long"},
        "generation": generation,
        "files": [file],
    }
    store.put(f"_manifests/{epoch:020}-{generation:06}.json", json.dumps(manifest).encode(), "publish")


def after_the_next_listing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Runs an action between the first request of a reader to the store and the second."""
    listing = ObjectStore.list

    def list_and_act(self: ObjectStore, prefix: str, what: str, *, after: str | None = None) -> list[str]:
        found = listing(self, prefix, what, after=after)
        monkeypatch.undo()
        action()
        return found

    monkeypatch.setattr(ObjectStore, "list", list_and_act)


def test_manifests_are_listed_before_it_is_read_what_was_rolled_back(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 4. In the other order, a reader would accept an epoch that was rolled back and run again.

    Between its two requests the pipeline rewinds to epoch 0 and runs epoch 1 again, and a zombie wakes up and
    publishes its own epoch 1 once more.
    """
    place = Place(f"s3://{s3_bucket}/orders", "view", options=s3_options(s3_server))
    store = ObjectStore(place.location, s3_server.obstore_options())
    sink = ParquetSink("orders", place)
    sink.start(None, None, 1)
    publish(store, 0, generation=0)
    publish(store, 1, generation=0)

    def go_back_and_come_again() -> None:
        sink.rewind(0)
        publish(store, 1, generation=1)
        publish(store, 1, generation=0)

    after_the_next_listing(monkeypatch, go_back_and_come_again)
    seen = [file.epoch for file in read_manifests(place.location, place.options)]
    assert seen == [0], "epoch 1 was there and is rolled back, and its second run came after the listing"
    assert [file.epoch for file in read_manifests(place.location, place.options)] == [0, 1]
