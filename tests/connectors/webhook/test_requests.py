"""What is sent: bodies, headers, and how a transaction is cut into requests."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from headrace.connectors.webhook import spool
from headrace.testing import Runtime
from tests.connectors.webhook.driving import CLIENT, planned, send, things
from tests.connectors.webhook_endpoint import Receiver


def test_a_request(receiver: Receiver) -> None:
    send(planned(f"{receiver.address}/hooks?v=1", "shop/things"), [{"id": 7, "text": "\u2603"}])
    (request,) = receiver.received
    assert request.target == "/hooks/shop/things?v=1"
    assert request.body == {
        "format": 1,
        "materialization": "view",
        "resource": "shop/things",
        "collection": "things",
        "key_range": "00000000-ffffffff",
        "transaction": 1,
        "batch": 1,
        "batches": 1,
        "documents": [{"id": 7, "text": "\u2603"}],
    }
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("headrace/")
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"token": "hunter2"}, "Bearer hunter2"),
        ({"token_env": "TEST_TOKEN"}, "Bearer from the environment"),
        ({"headers": {"authorization": "Key hunter2"}}, "Key hunter2"),
    ],
)
def test_signing_in(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], expected: str
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "from the environment")
    send(planned(receiver.address, **config), things(1))
    assert receiver.received[0].headers["authorization"] == expected


def test_signing_in_by_the_address(receiver: Receiver) -> None:
    address = receiver.address.replace("://", "://me%40home:hunter2@")
    send(planned(address), things(1))
    token = b64encode(b"me@home:hunter2").decode()
    assert receiver.received[0].headers["authorization"] == f"Basic {token}"


def test_more_headers(receiver: Receiver) -> None:
    send(planned(receiver.address, headers={"X-Team": "shop", "user-agent": "us"}), things(1))
    headers = receiver.received[0].headers
    assert headers["x-team"] == "shop"
    assert headers["user-agent"] == "us"


def test_compression_changes_only_the_coding(receiver: Receiver) -> None:
    for gzip in (False, True):
        send(planned(receiver.address, gzip=gzip), things(100))
    plain, packed = receiver.received
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.raw) < len(plain.raw) / 2
    assert packed.body == plain.body
    assert packed.key == plain.key


def test_requests_have_the_most_documents(receiver: Receiver) -> None:
    send(planned(receiver.address, batch_documents=4), things(10), rows_per_message=3)
    assert [len(request.documents) for request in receiver.received] == [4, 4, 2]
    assert [request.body["batch"] for request in receiver.received] == [1, 2, 3]
    assert {request.body["batches"] for request in receiver.received} == {3}
    assert sorted(row["id"] for request in receiver.received for row in request.documents) == [*range(10)]


def test_requests_have_the_most_bytes(receiver: Receiver) -> None:
    documents = [*things(10), {"id": 10, "text": "long" * 1000}]
    size = len('{"id":0,"text":"x"}')
    send(planned(receiver.address, batch_bytes=3 * size), documents)
    counts = [len(request.documents) for request in receiver.received]
    assert sum(counts) == 11
    assert max(counts) == 3
    (alone,) = [
        request for request in receiver.received if {"id": 10, "text": "long" * 1000} in request.documents
    ]
    assert len(alone.documents) == 1


def test_an_empty_transaction_sends_nothing(receiver: Receiver) -> None:
    send(planned(receiver.address), [])
    assert receiver.received == []


def test_bindings_go_to_their_own_paths(receiver: Receiver) -> None:
    send(planned(f"{receiver.address}/hooks", "a", "b"), things(2))
    assert [request.target for request in receiver.received] == ["/hooks/a", "/hooks/b"]


def test_a_connection_is_used_again(receiver: Receiver) -> None:
    with Runtime(CLIENT, planned(receiver.address, batch_documents=2)) as runtime:
        for number in range(3):
            runtime.transact([things(10)], {"n": number})
    assert len(receiver.received) == 15
    assert receiver.connections == 1


def test_updates_of_a_key_keep_their_order(receiver: Receiver) -> None:
    """Also where requests overtake each other: a key is in one request of a transaction."""
    with Runtime(CLIENT, planned(receiver.address, batch_documents=3, concurrency=4)) as runtime:
        for number in range(5):
            runtime.transact([things(50, str(number))], {"n": number})
    updates: dict[int, list[str]] = {}
    for row in receiver.stored("things"):
        updates.setdefault(row["id"], []).append(row["text"])
    assert updates == {number: ["0", "1", "2", "3", "4"] for number in range(50)}


def test_requests_under_way_at_once(receiver: Receiver) -> None:
    send(planned(receiver.address, batch_documents=1, concurrency=4), things(40))
    assert 1 < receiver.connections <= 4
    assert sorted(row["id"] for row in receiver.stored("things")) == [*range(40)]


def test_what_memory_cannot_hold_goes_to_a_file(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MEMORY_BYTES", 100)
    documents = [{"id": number, "text": "\u2603" * number} for number in range(200)]
    send(planned(receiver.address, "a", "b", batch_documents=7), documents, rows_per_message=11)
    for resource in ("a", "b"):
        assert sorted(receiver.stored(resource), key=lambda row: int(row["id"])) == documents
