"""Object storage: a folder, and a real S3 server."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest

from devtools.s3_server import S3Server
from headrace.errors import ConfigError, EndpointUnavailable
from headrace.objects import NoSuchObject, ObjectExists, ObjectStore


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.processes)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return ObjectStore((tmp_path / "objects").as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("s3_bucket")
    return ObjectStore(f"s3://{bucket}/objects", server.obstore_options())


def test_what_is_put_is_there(store: ObjectStore) -> None:
    store.put("a/b", b"first", "put it")
    store.put("a/b", memoryview(b"second"), "put it")
    assert store.get("a/b", "get it") == b"second"
    assert store.get("a/b", "get it", start=2, end=4) == b"co"
    assert store.get("a/b", "get it", end=100) == b"second"
    assert store.get("a/b", "get it", start=6) == b""
    assert b"".join(store.stream("a/b", "get it")) == b"second"
    assert store.size("a/b", "look for it") == 6


def test_only_one_of_many_creates_an_object(store: ObjectStore) -> None:
    def create(number: int) -> bool:
        try:
            store.create("a", str(number).encode(), "create it")
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert sum(created) == 1
    assert store.get("a", "get it") == str(created.index(True)).encode()


def test_paths_are_listed_in_order_and_from_a_place_on(store: ObjectStore) -> None:
    assert store.list("log", "list it") == []
    for number in (3, 1, 2):
        store.put(f"log/{number:04}", b"", "put it")
    store.put("logs/0001", b"", "put it")
    assert store.list("log", "list it") == ["log/0001", "log/0002", "log/0003"]
    assert store.list("log", "list it", after="log/0002") == ["log/0003"]
    store.remove("log/0002", "remove it")
    store.remove("log/0002", "remove it")
    assert store.list("log", "list it") == ["log/0001", "log/0003"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("nothing", "read the log"),
        lambda store: store.get("nothing", "read the log", end=3),
        lambda store: store.size("nothing", "read the log"),
        lambda store: list(store.stream("nothing", "read the log")),
    ],
)
def test_what_is_not_there_is_told_apart(store: ObjectStore, ask: Callable[[ObjectStore], object]) -> None:
    with pytest.raises(NoSuchObject, match=r"cannot read the log: it is not there"):
        ask(store)


def test_a_store_that_cannot_be_reached_may_come_back() -> None:
    options = {
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "x",
        "secret_access_key": "x",
        "region": "x",
        "client_options": {"allow_http": True},
    }
    with pytest.raises(EndpointUnavailable, match="cannot read the log"):
        ObjectStore("s3://bucket", options).get("a", "read the log")


def test_folders_are_synced_up_to_the_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore((tmp_path / "objects").as_uri())
    synced: list[str] = []
    monkeypatch.setattr(
        "headrace.objects._sync", lambda path: synced.append(path.relative_to(tmp_path).as_posix())
    )
    store.create("a/b/one", b"", "put it")
    assert synced == ["objects/a/b/one", "objects/a/b", "objects/a", "objects"]
    synced.clear()
    store.create("a/b/two", b"", "put it")
    assert synced == ["objects/a/b/two", "objects/a/b"]


def test_what_could_not_be_synced_is_written_again_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a sync that failed another one says nothing about the same pages."""
    store, inodes, is_broken = ObjectStore((tmp_path / "objects").as_uri()), list[int](), True

    def sync(path: Path) -> None:
        if path.name == "one":
            inodes.append(path.stat().st_ino)
        if is_broken and path.name == "objects":
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("headrace.objects._sync", sync)
    with pytest.raises(EndpointUnavailable, match="cannot put it"):
        store.create("a/one", b"x", "put it")
    is_broken = False
    with pytest.raises(ObjectExists):
        store.create("a/one", b"x", "put it")
    assert len(set(inodes)) == 2
    assert store.get("a/one", "get it") == b"x"


def test_a_folder_above_whose_sync_failed_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, synced = ObjectStore((tmp_path / "objects").as_uri()), list[str]()

    def sync(path: Path) -> None:
        synced.append(path.name)
        if path.name == "objects" and synced.count("objects") == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("headrace.objects._sync", sync)
    with pytest.raises(EndpointUnavailable):
        store.put("a/one", b"x", "put it")
    store.put("a/two", b"x", "put it")
    assert synced.count("objects") == 2


def test_every_folder_that_is_made_is_synced_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("headrace.objects._sync", synced.append)
    ObjectStore((tmp_path / "a/b/objects").as_uri())
    assert synced == [tmp_path / "a/b", tmp_path / "a", tmp_path]


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="store 'nonsense://x'"):
        ObjectStore("nonsense://x")


def test_a_store_that_overwrites_what_is_to_be_created_is_refused(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.check_create_only("here")
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *args, mode, **more: put(*args, mode="overwrite", **more))
    with pytest.raises(ConfigError, match=r"overwrites an object .*: use one that honours If-None-Match$"):
        store.check_create_only("here")
    assert store.list("here", "look") == []


@pytest.fixture
def folder(tmp_path: Path) -> ObjectStore:
    return ObjectStore((tmp_path / "objects").as_uri())


def test_an_object_of_a_file_is_created_once_and_survives_its_removal(
    folder: ObjectStore, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    folder.create("a/one", b"data", "put it", file=file)
    assert folder.is_name_of("a/one", file)
    with pytest.raises(ObjectExists, match="cannot put it: it is there already"):
        folder.create("a/one", b"data", "put it", file=file)
    file.unlink()
    assert not folder.is_name_of("a/one", file)
    assert folder.get("a/one", "get it") == b"data"


def test_what_is_put_in_the_place_of_a_file_leaves_the_file_alone(
    folder: ObjectStore, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    folder.create("one", b"data", "put it", file=file)
    folder.put("one", b"other", "put another")
    assert (file.read_bytes(), folder.get("one", "get it")) == (b"data", b"other")


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_a_file_that_cannot_have_another_name_is_copied(
    folder: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    folder.create("one", b"data", "put it", file=file)
    assert not folder.is_name_of("one", file)
    assert folder.get("one", "get it") == b"data"


def test_a_file_with_more_than_the_data_is_copied(folder: ObjectStore, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data, and what was never synced")
    folder.create("one", b"data", "put it", file=file)
    assert folder.get("one", "get it") == b"data"


def test_a_disk_that_is_full_of_names_may_have_room_later(
    folder: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(EndpointUnavailable, match=r"cannot put it: .*No space left"):
        folder.create("one", b"data", "put it", file=file)


def test_elsewhere_a_file_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    store = ObjectStore("memory:///")
    store.create("one", b"data", "put it", file=file)
    assert not store.is_name_of("one", file)
    assert store.get("one", "get it") == b"data"
