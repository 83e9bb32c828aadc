"""The keys that tell a receiver which requests it has had."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.key_range import KeyRange
from headrace.testing import MemoryLog, Runtime
from tests.connectors.webhook.driving import CLIENT, planned, send, things
from tests.connectors.webhook_endpoint import Receiver


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def test_a_key_names_the_place_and_the_content(receiver: Receiver) -> None:
    send(planned(receiver.address, batch_documents=2), things(3))
    for number, request in enumerate(receiver.received, 1):
        place = json.dumps(["view", "things", "00000000-ffffffff", 1, number], separators=(",", ":"))
        assert request.key == f"{digest(place.encode())}-{digest(request.raw)}"


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_a_replay_has_the_same_keys_however_it_is_cut_and_ordered(
    draw: random.Random, rows_per_message: int
) -> None:
    documents = things(30)
    shuffled = draw.sample(documents, len(documents))
    with Receiver() as receiver:
        materialization = planned(receiver.address, batch_documents=7)
        send(materialization, documents)
        keys = receiver.keys
        assert len(set(keys)) == 5
        send(materialization, shuffled, rows_per_message=rows_per_message)
        assert receiver.keys == keys * 2


def test_each_transaction_has_keys_of_its_own(receiver: Receiver) -> None:
    log = MemoryLog()
    for number in range(3):
        send(planned(receiver.address), things(1), log, n=number)
    assert len(set(receiver.keys)) == 3
    assert len(receiver.stored("things")) == 3, "the same content thrice is not a replay"


@pytest.mark.parametrize("what", ["materialization", "resource", "key range", "batch"])
def test_what_else_tells_keys_apart(receiver: Receiver, what: str) -> None:
    send(planned(receiver.address, "a", batch_documents=1), things(1))
    if what == "batch":
        send(planned(receiver.address, "a", batch_documents=1), [{"id": -1}, *things(1)])
    else:
        materialization = planned(
            receiver.address,
            "b" if what == "resource" else "a",
            name="other" if what == "materialization" else "view",
        )
        key_range = KeyRange(0, 5) if what == "key range" else KeyRange(0, 0xFFFFFFFF)
        send(materialization, things(1), key_range=key_range)
    assert len(set(receiver.keys)) == len(receiver.keys)
    assert len({key.partition("-")[0] for key in receiver.keys}) == len(set(receiver.keys)) - (
        what == "batch"
    )


def test_a_replay_with_other_content_is_told_apart_and_not_lost(receiver: Receiver) -> None:
    send(planned(receiver.address), [{"id": 1, "text": "first"}])
    send(planned(receiver.address), [{"id": 1, "text": "second"}])
    first, second = receiver.received
    assert first.key.partition("-")[0] == second.key.partition("-")[0]
    assert [row["text"] for row in receiver.stored("things")] == ["first", "second"]


def test_a_new_stream_goes_on_counting(receiver: Receiver) -> None:
    log = MemoryLog()
    send(planned(receiver.address), things(1), log)
    with Runtime(CLIENT, planned(receiver.address), log) as runtime:
        runtime.transact([[]], {"n": 2})  # sends nothing, and counts
        runtime.transact([things(1)], {"n": 3})
    assert [request.body["transaction"] for request in receiver.received] == [1, 3]
