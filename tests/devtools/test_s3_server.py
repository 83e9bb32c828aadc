"""The S3 that other tests rely on keeps the promises of S3 that Headrace builds on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError
from obstore.store import S3Store

from devtools.s3_server import S3Server


def store_of(server: S3Server, bucket: str, **changes: str) -> S3Store:
    return S3Store(bucket, retry_config={"max_retries": 0}, **(server.obstore_options() | changes))


def create(store: S3Store, path: str, data: bytes) -> bool:
    """Whether there was nothing in this place yet."""
    try:
        obstore.put(store, path, data, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


def read(store: S3Store, path: str) -> bytes:
    return bytes(obstore.get(store, path).bytes())


def paths_in(store: S3Store) -> list[str]:
    return [found["path"] for found in obstore.list(store).collect()]


def test_objects_are_put_listed_read_and_deleted(s3_server: S3Server, s3_bucket: str) -> None:
    store = store_of(s3_server, s3_bucket)
    assert paths_in(store) == []
    obstore.put(store, "folder/object", b"data")
    assert paths_in(store) == ["folder/object"]
    assert read(store, "folder/object") == b"data"
    obstore.delete(store, "folder/object")
    assert paths_in(store) == []


def test_a_create_only_put_keeps_what_is_there(s3_server: S3Server, s3_bucket: str) -> None:
    store = store_of(s3_server, s3_bucket)
    assert create(store, "object", b"first")
    assert not create(store, "object", b"second")
    assert read(store, "object") == b"first"


def test_of_many_create_only_puts_at_once_one_wins(s3_server: S3Server, s3_bucket: str) -> None:
    store = store_of(s3_server, s3_bucket)
    contents = [str(number).encode() for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        for attempt in range(10):
            path = f"object-{attempt}"
            won = list(pool.map(lambda data, path=path: create(store, path, data), contents))
            assert won.count(True) == 1
            assert read(store, path) == contents[won.index(True)]


@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_wrong_credentials_are_refused(s3_server: S3Server, s3_bucket: str, wrong: str) -> None:
    with pytest.raises(PermissionDeniedError):
        obstore.put(store_of(s3_server, s3_bucket, **{wrong: "wrong"}), "object", b"data")
    assert paths_in(store_of(s3_server, s3_bucket)) == []


@pytest.mark.full
def test_it_keeps_its_port_and_data_while_it_is_down() -> None:
    with S3Server() as server:
        server.create_bucket("bucket")
        store = store_of(server, "bucket")
        obstore.put(store, "object", b"data")
        server.stop()
        with pytest.raises(GenericError, match="error sending request"):
            obstore.put(store, "object", b"lost")
        server.start()
        assert read(store, "object") == b"data"
        assert not create(store, "object", b"again")


@pytest.mark.parametrize("name", ["ab", "Upper", "with/slash", "-dash"])
def test_a_bucket_that_s3_would_not_have_is_refused(s3_server: S3Server, name: str) -> None:
    with pytest.raises(ValueError, match="S3 has no bucket called"):
        s3_server.create_bucket(name)
